#!/usr/bin/env python3
"""Chooses tests of a build folder: those that names ask for, and those that depend on changed files.

usage: select_tests.py BUILD [--changed] [--affected-by FILE] [--directly] [--label LABEL] [NAME...]

A NAME is one of
  a folder of include/shardwise   its unit tests; each test of laws/ and ranks/ and each unit of static/
                                  that includes one of its headers directly, in a source or in a header
                                  that stands beside it; each wrong program of which one of its headers
                                  says the sentence; and the laws, the tests on stand-ins or on MPI where
                                  they belong to the folder
  a test, or a part of its name   ranks.pool, pool, compile_fail, compile_fail.pooling; * stands for
                                  anything: ranks.conv_*

Units of static/ are no tests of ctest: they have passed when they compile; `static` names them, and with
them static.all_headers, which is all headers in one unit, and static.all_headers_alone and
static.all_headers_alone_compiled, where one call of the compiler reads each alone.
--changed takes what depends on the files that differ from the last commit, --affected-by on FILE, with
--directly only what includes such a file in a file of tests/; --label takes what ctest knows by that label. What is asked for in several ways is all taken.

Prints `build TARGET` and `run NUMBER` for each target of ninja and test of ctest. Ends with 2 if a name
is unknown, and names those that are near.
"""

import argparse
import difflib
import fnmatch
import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
VALUES = re.compile(r'\bValues\b[^"\n]*"(\w+)/')  # tests/witness/values.hpp
ADD_TEST = re.compile(r"^add_test\((?:\[=*\[)?([^\]\s]+?)(?:\]=*\])?\s+(.*)\)$", re.MULTILINE)
STATIC = re.compile(r"tests/CMakeFiles/(?:static_tests\.dir/(?:static|together)"
                    r"|(?:all_headers|headers_alone)\.dir/headers_alone(?=/all_))/(\w+)\.cpp\.o")
ALSO = {  # kinds of tests that belong to a folder as a whole
    "backend": ("cuda", "cudnn"),
    "comm": ("openmpi", "mpich", "nccl"),
    "layout": ("laws",),
    "redistribute": ("laws",),
}
BY_INCLUDES = re.compile(r"(laws|ranks|static)\.")  # tests that belong to several folders
OF_SOURCE = "--source-file=*/"  # of a program that several tests share, the cases of one source
SENTENCE = "-Dsentence="


@dataclass
class Test:
    name: str
    number: int | None  # by which ctest knows it
    targets: list  # of ninja
    find_sources: Callable[[], set]  # asks ninja, which takes a while
    labels: list
    sentence: str | None  # that the compiler must say, as a regular expression

    @functools.cached_property
    def sources(self):
        """Those of its targets, and files that its command names."""
        return self.find_sources()


def output_of(*command):
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"select_tests: {' '.join(map(str, command))} failed: {done.stdout}{done.stderr}")
    return done.stdout


def inside(path):
    """The path below ROOT as text, or None for a file that is not the project's own."""
    path = Path(path)
    if not path.is_file():
        return None
    path = path.resolve()
    if not path.is_relative_to(ROOT) or path.is_relative_to(ROOT / "build"):
        return None
    return str(path.relative_to(ROOT))


def commands(build):
    """The words of each test's command, by its name, as CMake wrote them for ctest."""
    found = {}
    for file in build.rglob("CTestTestfile.cmake"):
        for name, text in ADD_TEST.findall(file.read_text()):
            words = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
            found[name] = [part for word in words for part in re.split(r"\\?;", word)]
    return found


def tests_of(build):
    made = (line.rsplit(": ", 1) for line in output_of("ninja", "-C", build, "-t", "targets", "all").splitlines())
    outputs = {output for output, rule in made if rule != "phony"}

    @functools.cache
    def sources(target):
        inputs = [build / line for line in output_of("ninja", "-C", build, "-t", "inputs", target).splitlines()]
        together = [file for file in inputs if file.match("together/*.cpp")]  # cmake/together.cmake
        inputs += [Path(source) for file in together for source in INCLUDE.findall(file.read_text())
                   if Path(source).is_absolute()]
        return {path for file in inputs if (path := inside(file))}

    def compiled(targets, words):
        named = {path for word in words if (path := inside(ROOT / word))}
        own = [f"tests/{word.removeprefix(OF_SOURCE)}" for word in words if word.startswith(OF_SOURCE)]
        return named.union([*own, "tests/main.cpp"] if own else [], *([] if own else map(sources, targets)))

    tests = []
    words_of = commands(build)
    listed = json.loads(output_of("ctest", "--test-dir", build, "--show-only=json-v1"))["tests"]
    for number, test in enumerate(listed, 1):
        name = test["name"]
        labels = [label for kept in test["properties"] if kept["name"] == "LABELS" for label in kept["value"]]
        words = [word.removeprefix(f"{build}/") for word in words_of[name]]
        # A compiler finds a precompiled header beside the header that it stands for.
        targets = [made for word in words for made in (word, f"{word}.gch") if made in outputs]
        sentences = [word.removeprefix(SENTENCE).replace(r"\\", "\\") for word in words if word.startswith(SENTENCE)]
        tests.append(Test(name, number, targets, functools.partial(compiled, targets, words), labels,
                          *sentences or [None]))
    for target in sorted(filter(STATIC.fullmatch, outputs)):
        name = f"static.{STATIC.fullmatch(target)[1]}"
        tests.append(Test(name, None, [target], functools.partial(sources, target), [], None))
    return tests


@functools.cache
def includes(file):
    """The project's files that a file includes, and those of PyTorch's values that it reads."""
    text = (ROOT / file).read_text(errors="replace")
    files = (ROOT / "tests/witness/values" / f"{name}.safetensors" for name in VALUES.findall(text))
    found = set(filter(None, map(inside, files)))
    for header in INCLUDE.findall(text):
        folders = [Path(file).parent, *map(Path, ("include", "tests", "bench", "examples"))]
        found.update(filter(None, (inside(ROOT / folder / header) for folder in folders)))
    return found


def reached(files, through=lambda file: True):
    """These files and all that they include, by way of files that `through` admits."""
    seen = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            if through(file):
                waiting += includes(file)
    return seen


@functools.cache
def literals(folder):
    """The headers of a folder with string literals that follow each other joined."""
    headers = sorted((ROOT / "include/shardwise" / folder).rglob("*.hpp"))
    return re.sub(r'"\s*"', "", "\n".join(header.read_text() for header in headers))


def is_of_folder(test, folder):
    if test.sentence:
        return bool(re.search(test.sentence, literals(folder)))
    if re.fullmatch(rf"unit\.{folder}(_\w+)?(\.\w+)?", test.name) or test.name.split(".")[0] in ALSO.get(folder, ()):
        return True
    kind = BY_INCLUDES.match(test.name)
    if not kind:
        return False
    beside = f"tests/{kind[1]}/"
    own = [source for source in test.sources if source.startswith(beside)]
    named = reached(own, through=lambda file: file.startswith(beside))
    return any(file.startswith(f"include/shardwise/{folder}/") for file in named)


def is_named(test, name):
    parts = test.name.split(".")
    tails = [".".join(parts[begin:end]) for begin in range(len(parts)) for end in range(begin + 1, len(parts) + 1)]
    return any(fnmatch.fnmatchcase(tail, name) for tail in tails)


def chosen_by(name, tests, folders):
    if name in folders:
        return [test for test in tests if is_of_folder(test, name)]
    chosen = [test for test in tests if is_named(test, name)]
    if not chosen:
        known = {*folders, *(test.name for test in tests), *(part for test in tests for part in test.name.split("."))}
        near = difflib.get_close_matches(name, sorted(known), n=5, cutoff=0.5)
        print(f"select_tests: no test is named {name}. Near it: {', '.join(near) or 'nothing'}; "
              f"folders: {' '.join(folders)}", file=sys.stderr)
        sys.exit(2)
    return chosen


def changed_files():
    return set(output_of("git", "diff", "--name-only", "HEAD").split("\n")
               + output_of("git", "ls-files", "--others", "--exclude-standard").split("\n")) - {""}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=lambda text: Path(text).resolve())
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--affected-by", action="append", default=[])
    parser.add_argument("--directly", action="store_true")
    parser.add_argument("--label")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()

    folders = sorted(path.name for path in (ROOT / "include/shardwise").iterdir() if path.is_dir())
    tests = tests_of(asked.build)
    chosen = {test.name: test for name in asked.names for test in chosen_by(name, tests, folders)}
    chosen |= {test.name: test for test in tests if asked.label in test.labels}
    files = set(asked.affected_by) | (changed_files() if asked.changed else set())
    if files:
        def through(file):
            return not asked.directly or file.startswith("tests/")
        depending = {test.name: (test, reached(test.sources, through) & files) for test in tests}
        chosen |= {name: test for name, (test, on) in depending.items() if on}
        unused = files.difference(*(on for _, on in depending.values()))
        if unused and not asked.directly:
            print(f"select_tests: no test depends on {' '.join(sorted(unused))}", file=sys.stderr)

    for target in sorted({target for test in chosen.values() for target in test.targets}):
        print("build", target)
    for number in sorted(test.number for test in chosen.values() if test.number):
        print("run", number)


if __name__ == "__main__":
    main()
