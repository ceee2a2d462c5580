#!/usr/bin/env python3
"""Shows what a run of .ci/run spent its time on, and keeps what it compiles from growing unseen.

usage: growth.py PRESET...

Prints the ten targets that took longest to build, the ten tests that took longest, and by kind how
often a compiler was called and for how many seconds. Seconds differ between machines and fail nothing;
what fails is a number of compilations more than a tenth above its budget in budgets.json. A budget is
raised in a commit of its own, which says why.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOLERANCE = 1.1

KINDS = {  # by what compiles: the object of a target, or a test that calls a compiler
    "headers alone": r".*/(all_headers|headers_(alone|linked))[^/]*\.dir/.*\.o$",
    "wrong programs": r"(compile_fail\..*|example\.[^.]*\.(control|\d+))$",
    "static": r".*/static_tests\.dir/.*\.o$",
    "unit": r"tests/CMakeFiles/unit_.*\.o$",
    "laws": r"tests/CMakeFiles/laws_.*\.o$",
    "ranks": r"tests/CMakeFiles/ranks_.*\.o$",
    "MPI": r"tests/mpi/.*\.o$",
    "stand-ins": r"tests/(cuda|cudnn|nccl)/.*\.o$",
    "nvcc": r"(tests|bench)/gpu/.*\.o$|cuda\.functors|nvcc\.headers$",
    "examples": r"examples/.*\.o$",
    "benchmarks": r"bench/.*\.o$",
    "users' projects": r"(nccl\.)?consumer(\.|$)",
    "other": r".*\.(o|gch|pch)$",
}


def kind_of(name):
    return next((kind for kind, pattern in KINDS.items() if re.match(pattern, name)), None)


def lines_of(*command):
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout.splitlines()


def tests(build):
    listed = json.loads("\n".join(lines_of("ctest", "--test-dir", build, "--show-only=json-v1")))
    return [test["name"] for test in listed["tests"]]


def seconds_built(build):
    """Of each output that ninja made, the last time that it did. In a clean clone that is all of them."""
    rows = (line.split("\t") for line in (build / ".ninja_log").read_text().splitlines()[1:])
    return {row[3]: (int(row[1]) - int(row[0])) / 1000 for row in rows}


def seconds_tested(build):
    file = build / "Testing/Temporary/CTestCostData.txt"
    rows = (line.split() for line in file.read_text().splitlines()) if file.exists() else ()
    return {row[0]: float(row[2]) for row in rows if len(row) == 3}


def print_slowest(title, seconds):
    print(f"\nThe ten {title}:")
    for name, took in sorted(seconds.items(), key=lambda row: -row[1])[:10]:
        print(f"{took:8.1f} s  {name}")


def main():
    built, tested, count, spent = {}, {}, Counter(), Counter()
    for preset in sys.argv[1:]:
        build = ROOT / "build" / preset
        building, testing = seconds_built(build), seconds_tested(build)
        built |= {f"{preset} {name}": took for name, took in building.items()}
        tested |= {f"{preset} {name}": took for name, took in testing.items()}
        for name, took in [*building.items(), *((name, testing.get(name, 0)) for name in tests(build))]:
            kind = kind_of(name)
            if kind:
                count[kind] += 1
                spent[kind] += took
    print_slowest("targets that took longest to build", built)
    print_slowest("tests that took longest", tested)

    budgets = json.loads((ROOT / ".ci/budgets.json").read_text())["compilations"]
    over = [kind for kind in count if count[kind] > TOLERANCE * budgets.get(kind, 0)]
    print("\nCompilations by kind, with the seconds of all cores:")
    for kind in KINDS:
        print(f"{kind:<16} {count[kind]:5} of {budgets.get(kind, 0):5} {spent[kind]:8.0f} s"
              f"{'  TOO MANY' if kind in over else ''}")
    if over:
        sys.exit("More is compiled than a tenth above the budget. Compile less of it, or raise the budget in "
                 ".ci/budgets.json, in a commit of its own that says why.")


if __name__ == "__main__":
    main()
