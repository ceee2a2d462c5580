#!/usr/bin/env python3
"""Plants each bug of tests/mutants/*.patch and demands that the test which the patch names finds it.

usage: run.py [NAME]    only the patches with NAME in their file name

A patch is a unified diff (-p1) below two kinds of lines:
  # trap: <which trap it plants, in words>
  # red: <regular expression of the tests that must go red>, or `compile` for those of tests/static

A planted bug is killed by a test that fails or by a static assertion; it has to compile otherwise.
Two are planted at a time, each in a tree of its own below build/mutants, which keeps the log of each.

Each source of unit/ is a test of its own here, such as unit.core.test_view, so that a patch which names
it is found by a compilation of that source alone.

Verdicts stand in tests/mutants/verdicts.tsv, with a hash of the patch, of the files that it changes
and of the sources of its tests, but for the main() of all tests. Where that hash is still the same,
nothing is planted again; so a run that was stopped goes on where it stopped, on any machine.

Ends with 1 if a bug survives, does not apply or does not compile, or if a test is red without any.
"""

import hashlib
import queue
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
WORK = ROOT / "build/mutants"
TABLE = FOLDER / "verdicts.tsv"
MAIN = "tests/main.cpp"
TREES = 2
OPTIONS = [  # one program a source, and nothing precompiled that a planted bug changes
    "-DCMAKE_CXX_FLAGS=-O0 -g0 -ferror-limit=0 -fsanitize=unreachable -fsanitize-trap=unreachable",
    "-DSHARDWISE_TEST_TIMEOUT=120",
    "-DSHARDWISE_TOGETHER=1", "-DSHARDWISE_UNITS_APART=ON", "-DSHARDWISE_PRECOMPILED=OFF"]

sys.path.insert(0, str(FOLDER.parent))
import select_tests  # noqa: E402


@dataclass
class Mutant:
    name: str
    patch: Path
    trap: str
    files: list  # that it changes
    tests: list  # of which one must go red
    key: str


class Unusable(Exception):
    """A patch or test with which nothing can be shown."""


def read_mutant(patch, tests):
    text = patch.read_text()
    trap = " ".join(re.findall(r"^# trap: (.*)$", text, re.MULTILINE))
    red = re.search(r"^# red: (.*)$", text, re.MULTILINE)
    if not red:
        raise Unusable(f"{patch.name}: no line '# red: <regular expression>'")
    pattern = r"static\..*" if red[1] == "compile" else red[1]
    named = [test for test in tests if re.fullmatch(pattern, test.name)]
    if not named:
        raise Unusable(f"{patch.name}: no test is named {red[1]}")
    files = re.findall(r"^\+\+\+ b/(\S+)", text, re.MULTILINE)
    own = select_tests.reached({source for test in named for source in test.sources} - {MAIN},
                               through=lambda file: file.startswith("tests/"))
    digest = hashlib.sha256(text.encode())
    for file in [*files, *sorted(file for file in own if file.startswith("tests/"))]:
        digest.update((ROOT / file).read_bytes())
    return Mutant(patch.stem, patch, trap, files, named, digest.hexdigest()[:16])


def read_verdicts():
    if not TABLE.exists():
        return {}
    lines = [line.split("\t") for line in TABLE.read_text().splitlines()[1:]]
    return {name: (key, verdict) for name, key, verdict in lines}


def write_verdicts(verdicts):
    rows = [f"{name}\t{key}\t{verdict}" for name, (key, verdict) in sorted(verdicts.items())]
    TABLE.write_text("\n".join(["mutant\thash\tverdict", *rows]) + "\n")


class Tree:
    """A copy of the project's files in which bugs are planted, built with the preset dev."""

    def __init__(self, number):
        self.root = WORK / str(number)
        self.build = self.root / "build/dev"

    def copy(self):
        """Files that did not change keep their time, so that nothing else is built again."""
        listed = select_tests.output_of("git", "ls-files", "-co", "--exclude-standard").splitlines()
        wanted = {file for file in listed if (ROOT / file).is_file()}
        for kept in self.root.rglob("*"):
            file = kept.relative_to(self.root)
            if kept.is_file() and file.parts[0] != "build" and str(file) not in wanted:
                kept.unlink()
        for file in wanted:
            source, copied = ROOT / file, self.root / file
            if not copied.is_file() or copied.read_bytes() != source.read_bytes():
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copied)

    def run(self, log, *command):
        done = subprocess.run(command, cwd=self.root, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, errors="replace")
        with open(log, "a") as file:
            file.write(done.stdout)
        return done.returncode, done.stdout

    def configure(self):
        self.copy()
        status, text = self.run(WORK / "configure.log", "cmake", "--preset", "dev", *OPTIONS)
        if status:
            raise Unusable(f"the copy of the project cannot be configured:\n{text}")

    def verdict(self, tests, log):
        """What building and running the tests comes to, in the tree as it is."""
        targets = sorted({target for test in tests for target in test.targets})
        if targets:
            status, text = self.run(log, "ninja", "-C", self.build, "-j", "1", "-k", "0", *targets)
            errors = [line for line in text.splitlines() if "error: " in line]
            if status:
                refused = errors and all(re.search("static.assert", line) for line in errors)
                return "killed" if refused else "does not compile"
        numbers = [str(test.number) for test in tests if test.number]
        if not numbers:
            return "survived"
        only = ",".join([numbers[0], numbers[0], "1", *numbers])
        status, _ = self.run(log, "ctest", "--test-dir", self.build, "-I", only, "--output-on-failure")
        return "killed" if status else "survived"

    def plant(self, mutant):
        log = WORK / f"{mutant.name}.log"
        log.unlink(missing_ok=True)
        status, _ = self.run(log, "patch", "-p1", "-s", "--no-backup-if-mismatch", "-i", mutant.patch)
        verdict = "does not apply" if status else self.verdict(mutant.tests, log)
        self.copy()
        return verdict


def work_off(tree, groups, done, problems):
    """Plants the bugs of one group after another; those of a group have the same tests."""
    try:
        tree.configure()
        while True:
            group = groups.get_nowait()
            log = WORK / f"without_{group[0].tests[0].name}.log"
            log.unlink(missing_ok=True)
            if tree.verdict(group[0].tests, log) != "survived":
                raise Unusable(f"red without any planted bug: {log}")
            for mutant in group:
                done(mutant, tree.plant(mutant))
    except queue.Empty:
        return
    except Unusable as problem:
        problems.append(problem)


def run_all(mutants, verdicts):
    """Plants all of these; each verdict is in the table as soon as it is known."""
    by_tests = {}
    for mutant in mutants:
        by_tests.setdefault(tuple(test.name for test in mutant.tests), []).append(mutant)
    groups = queue.Queue()
    for group in sorted(by_tests.values(), key=len, reverse=True):
        groups.put(group)
    lock, problems = threading.Lock(), []

    def done(mutant, verdict):
        with lock:
            verdicts[mutant.name] = (mutant.key, verdict)
            write_verdicts(verdicts)
            print(f"{mutant.name:<40} {verdict:<18} {mutant.trap}", flush=True)

    workers = [threading.Thread(target=work_off, args=(Tree(number), groups, done, problems))
               for number in range(1, TREES + 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if problems:
        raise Unusable("\n".join(map(str, problems)))


def listed_tests():
    """All tests, as a folder that builds the project itself lists them; a tree has the same ones."""
    WORK.mkdir(parents=True, exist_ok=True)
    listed = WORK / "list"
    select_tests.output_of("cmake", "--preset", "dev", "-B", listed, *OPTIONS)
    return select_tests.tests_of(listed)


def main():
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    patches = sorted(patch for patch in FOLDER.glob("*.patch") if part in patch.stem)
    if not patches:
        sys.exit(f"mutants: no patch in tests/mutants has '{part}' in its name")
    tests = listed_tests()
    mutants = [read_mutant(patch, tests) for patch in patches]
    every = {patch.stem for patch in FOLDER.glob("*.patch")}
    verdicts = {name: row for name, row in read_verdicts().items() if name in every}
    to_plant = [mutant for mutant in mutants if verdicts.get(mutant.name) != (mutant.key, "killed")]
    run_all(to_plant, verdicts)
    write_verdicts(verdicts)
    killed = sum(verdicts[mutant.name][1] == "killed" for mutant in mutants)
    print(f"mutants: {len(mutants)} planted, {killed} killed; {len(mutants) - len(to_plant)} of these verdicts "
          "stood in tests/mutants/verdicts.tsv, logs of the others in build/mutants")
    sys.exit(killed != len(mutants))


if __name__ == "__main__":
    try:
        main()
    except Unusable as problem:
        sys.exit(f"mutants: {problem}")
