#!/usr/bin/env python3
"""Plants the bugs of tests/mutants/*.txt and demands that a test which each names finds it.

usage: run.py --check      demands that each can be planted, and plants none
       run.py NAME         plants those with NAME in their name
       run.py --all        plants all; one that was stopped goes on where it stopped, at the same commit
       run.py --changed    plants, in about four minutes, what the commits of the last day may have hidden:
                           bugs in files that changed or that a changed test must find, small new ones on
                           changed lines (see generate.py), and ten of the others

planted.py says how a bug is written. It is killed by a test that fails, or by a static assertion or a
constant that cannot be computed, and has to compile otherwise. Two are planted at a time, each in a tree of
its own below build/mutants, which keeps the log of each. Each source of unit/ is a test of its own here,
such as unit.core.test_view, so that a bug which names it is found by a compilation of that source alone.

Ends with 1 if a bug survives or does not compile, or if a test is red without any. Only told are a bug
whose test needs another processor than this one, and a small new bug that survives: it may be a change
without an effect.
"""

import itertools
import queue
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import planted
from planted import FOLDER, ROOT, Unusable

WORK = ROOT / "build/mutants"
KILLED = WORK / "killed.txt"  # the commit, and what was killed at it
MAIN = "tests/main.cpp"
TREES = 2
BEGAN, SECONDS_OF_CHANGED = time.monotonic(), 180  # after which a run for what changed begins no bug
OTHERS, GENERATED = 10, 20  # bugs of a run for what changed
OPTIONS = [  # one program a source, and nothing precompiled that a planted bug changes
    "-DCMAKE_CXX_FLAGS=-O0 -g0 -ferror-limit=0 -fsanitize=unreachable -fsanitize-trap=unreachable",
    "-DSHARDWISE_TEST_TIMEOUT=120",
    "-DSHARDWISE_TOGETHER=1", "-DSHARDWISE_UNITS_APART=ON", "-DSHARDWISE_PRECOMPILED=OFF"]

sys.path.insert(0, str(FOLDER.parent))
import select_tests  # noqa: E402


@dataclass
class Mutant:
    bug: planted.Bug
    tests: list  # of which one must go red


def named_by(bug, tests):
    pattern = r"static\..*" if bug.red == "compile" else bug.red
    named = [test for test in tests if re.fullmatch(pattern, test.name)]
    if not named:
        raise Unusable(f"{bug.name}: no test is named {bug.red}")
    return named


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
                stopped = "static.assert|must be initialized by a constant expression"
                refused = errors and all(re.search(stopped, line) for line in errors)
                return "killed" if refused else "does not compile"
        numbers = [str(test.number) for test in tests if test.number]
        if not numbers:
            return "survived"
        only = ",".join([numbers[0], numbers[0], "1", *numbers])
        status, _ = self.run(log, "ctest", "--test-dir", self.build, "-I", only, "--output-on-failure")
        return "killed" if status else "survived"

    def plant(self, mutant):
        log = WORK / f"{mutant.bug.name}.log"
        log.unlink(missing_ok=True)
        for file, text in mutant.bug.planted(self.root).items():
            (self.root / file).write_text(text)
        verdict = self.verdict(mutant.tests, log)
        self.copy()
        return verdict

    def require_green(self, tests):
        log = WORK / f"without_{tests[0].name}.log"
        log.unlink(missing_ok=True)
        if self.verdict(tests, log) != "survived":
            raise Unusable(f"red without any planted bug: {log}")


def in_trees(tasks, seconds=None):
    """Calls each task with a tree, several at a time, but begins none after so many seconds of this run and
    a minute of its own."""
    waiting = queue.Queue()
    for task in tasks:
        waiting.put(task)
    problems = []

    def work(tree):
        try:
            tree.configure()
            end = max(BEGAN + seconds, time.monotonic() + 60) if seconds else float("inf")
            while not problems and time.monotonic() < end:
                waiting.get_nowait()(tree)
        except queue.Empty:
            return
        except BaseException as problem:  # a thread would end on it without a word
            problems.append(problem)

    workers = [threading.Thread(target=work, args=(Tree(number),)) for number in range(1, TREES + 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if problems:
        raise Unusable("\n".join(map(repr, problems)))


def group_task(group, tell):
    """Plants the bugs of a group, which have the same tests."""
    def task(tree):
        tree.require_green(group[0].tests)
        for mutant in group:
            tell(mutant.bug, tree.plant(mutant))
    return task


def plant_all(mutants, tell):
    by_tests = {}
    for mutant in mutants:
        by_tests.setdefault(tuple(test.name for test in mutant.tests), []).append(mutant)
    in_trees(group_task(group, tell) for group in sorted(by_tests.values(), key=len, reverse=True))


def listed_tests():
    """All tests, as a folder that builds the project itself lists them; a tree has the same ones."""
    WORK.mkdir(parents=True, exist_ok=True)
    listed = WORK / "list"
    select_tests.output_of("cmake", "--preset", "dev", "-B", listed, *OPTIONS)
    return select_tests.tests_of(listed)


def commit_of_the_day_before():
    """The last commit that is a day older than this one; the first one if there is none."""
    date = select_tests.output_of("git", "log", "-1", "--format=%ct").strip()
    before = select_tests.output_of("git", "log", "-1", "--format=%H", f"--before={int(date) - 86400}")
    return (before or select_tests.output_of("git", "rev-list", "--max-parents=0", "HEAD")).split()[0]


def changed_lines():
    """The numbers of the lines of each file that changed in the last day; of none in a shallow clone."""
    changed, file = {}, None
    if select_tests.output_of("git", "rev-parse", "--is-shallow-repository").strip() == "true":
        print(f"mutants: this clone is shallow, so nothing tells what changed: only {OTHERS} of all bugs are planted")
        return changed
    diff = select_tests.output_of("git", "-c", "core.quotePath=false", "diff", "-U0", "--no-ext-diff", "--src-prefix=a/",
                                  "--dst-prefix=b/", commit_of_the_day_before())
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif found := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            begin, count = int(found[1]), int(found[2] or 1)
            changed.setdefault(file, set()).update(range(begin, begin + count))
    return changed


def plant_changed(mutants, tests, tell):
    """The tests without a bug are those of the other stages of CI."""
    import generate
    changed = changed_lines()
    order = random.Random(select_tests.output_of("git", "rev-parse", "HEAD"))
    order.shuffle(mutants)

    def is_touched(mutant):
        entry, lines = mutant.bug.lines
        own = set().union(*(test.sources for test in mutant.tests)) - {MAIN}
        tests_of = select_tests.reached(own, through=lambda file: file.startswith("tests/"))
        files = {*mutant.bug.files(), *(file for file in tests_of if file.startswith("tests/"))}
        return changed.keys() & files or changed.get(str(entry.relative_to(ROOT)), set()) & set(lines)

    touched = [mutant for mutant in mutants if is_touched(mutant)]
    others = [mutant for mutant in mutants if mutant not in touched][:OTHERS]
    made = generate.on_lines(changed, GENERATED, tests, order)
    known = [lambda tree, mutant=mutant: tell(mutant.bug, tree.plant(mutant)) for mutant in [*touched, *others]]
    turns = itertools.zip_longest(known[:len(touched)], made, known[len(touched):])
    in_trees((task for turn in turns for task in turn if task), SECONDS_OF_CHANGED)


def killed_before():
    """What was killed in a run of this commit that was stopped; nothing if files differ from it."""
    commit = select_tests.output_of("git", "rev-parse", "HEAD").strip()
    if select_tests.output_of("git", "status", "--porcelain"):
        commit += "-and-changes-of-" + time.strftime("%F-%T")
    lines = KILLED.read_text().split() if KILLED.exists() else []
    if lines[:1] != [commit]:
        KILLED.write_text(f"{commit}\n")
        return set()
    return set(lines[1:])


def can_go_red(bug):
    """Whether the processor has what the bug needs; tells if not."""
    cpu = Path("/proc/cpuinfo")
    can = not bug.needs or (cpu.exists() and bug.needs in re.findall(r"\w+", cpu.read_text()))
    if not can:
        print(f"{bug.name:<40} {'left out':<18} this processor has no {bug.needs}")
    return can


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    what, bugs = sys.argv[1], planted.bugs()
    for bug in bugs.values():
        bug.planted()
    if what == "--check":
        return
    chosen = [bug for bug in bugs.values() if what.startswith("--") or what in bug.name]
    if what not in ("--all", "--changed") and (what.startswith("--") or not chosen):
        sys.exit(f"mutants: no bug in tests/mutants has '{what}' in its name")
    possible = [bug for bug in chosen if can_go_red(bug)]
    tests = listed_tests()
    verdicts, lock = {}, threading.Lock()

    def tell(bug, verdict):
        with lock:
            verdicts[bug.name] = verdict
            print(f"{bug.name:<40} {verdict:<18} {bug.what}", flush=True)
            if what == "--all" and verdict == "killed":
                with open(KILLED, "a") as file:
                    file.write(f"{bug.name}\n")

    mutants = [Mutant(bug, named_by(bug, tests)) for bug in possible]
    if what == "--changed":
        plant_changed(mutants, tests, tell)
    else:
        before = killed_before() if what == "--all" else set()
        verdicts |= dict.fromkeys(before & bugs.keys(), "killed")
        plant_all([mutant for mutant in mutants if mutant.bug.name not in before], tell)
    killed = sum(verdict == "killed" for verdict in verdicts.values())
    print(f"mutants: {time.strftime('%Y-%m-%d')}, {len(verdicts)} of {len(bugs)} planted, {killed} killed; "
          "logs are in build/mutants")
    complete = verdicts if what == "--changed" else mutants
    sys.exit(killed != len(complete) or not (verdicts or len(possible) < len(chosen)))


if __name__ == "__main__":
    try:
        main()
    except Unusable as problem:
        sys.exit(f"mutants: {problem}")
