#!/usr/bin/env python3
"""Keeps the work that the library gives a compiler from growing unseen: counts the classes and
functions that clang 14 with libstdc++ 12 makes from templates, against a budget. The count is the
same on every machine; other versions count otherwise, and are told apart before anything is counted.

Usage: compile_budget.py [CLANG++]
The budgets stand in .ci/budgets.json, and a tenth more than that is borne. Where more is really needed,
raise one in a commit of its own, and measure what it costs with compile_time.py; where far less is,
lower it.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

from model_program import UMBRELLA, model_program

ROOT = pathlib.Path(__file__).resolve().parents[2]

SKIPPED = 77  # what ctest takes for a test that was skipped

# Classes and functions made from templates.
BUDGETS = json.loads((ROOT / ".ci/budgets.json").read_text())["instantiations"]
TOLERANCE = 1.1


def instantiations(compiler, program):
    """How many classes and functions the program makes from templates."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "program.cpp").write_text(program)
        # No code is made of them. To clang this has to look like making an object: it writes the trace beside it.
        subprocess.run(
            [compiler, "-std=c++20", "-O0", "-ftime-trace", "-ftime-trace-granularity=0",
             "-Xclang", "-fsyntax-only", f"-I{ROOT}/include", "-c", folder / "program.cpp", "-o", folder / "program.o"],
            check=True)
        events = json.loads((folder / "program.json").read_text())["traceEvents"]
    count = collections.Counter(event["name"] for event in events)
    return count["InstantiateClass"], count["InstantiateFunction"]


def versions(compiler):
    """Of the compiler and of libstdc++, as their macros say."""
    text = subprocess.run(
        [compiler, "-std=c++20", "-x", "c++", "-E", "-P", "-"], check=True, capture_output=True, text=True,
        input="#include <version>\n__clang_major__ _GLIBCXX_RELEASE\n").stdout
    return text.splitlines()[-1].strip()


def main():
    compiler = sys.argv[1] if len(sys.argv) > 1 else "clang++"
    if versions(compiler) != "14 12":
        print(f"skipped: the budgets are those of clang 14 with libstdc++ 12, not of {compiler}")
        sys.exit(SKIPPED)
    two, ten = (instantiations(compiler, model_program(layers)) for layers in (2, 10))
    counted = {
        "the umbrella alone": instantiations(compiler, UMBRELLA),
        "a model of 2 linear layers": two,
        "each further layer": tuple((b - a) / 8 for a, b in zip(two, ten)),
    }
    over = 0
    for what, counts in counted.items():
        for kind, count, budget in zip(("classes", "functions"), counts, BUDGETS[what]):
            kept = count <= TOLERANCE * budget
            over += not kept
            print(f"{what:<28} {count:8g} {kind:<9} of {budget:8g}{'' if kept else '  TOO MANY'}")
    if over:
        sys.exit("The library gives compilers more to do than it did: make fewer types and functions "
                 "depend on a layer's type, or raise the budget in .ci/budgets.json and say why.")


if __name__ == "__main__":
    main()
