#!/usr/bin/env python3
"""Makes small bugs in headers and tells which of them no test finds.

usage: generate.py PATH [N]           PATH is a folder or header below include/shardwise, N the bugs for each
                                      header, 6 if it is left out
       generate.py --untouched [N]    in all headers in which no bug of *.txt is planted

A bug changes an operator, a 0 or 1, a condition, a `!`, `++` or `--`, swaps two arguments or leaves out a
statement; never in comments, texts, assertions or what is thrown. A header has the same bugs in each run.

Tests that include the header run first, one after another and small ones first, then some that include a
header which includes it, and so on, until one finds the bug; eight at most (three in CI), so look for more
before you write one for a survivor. It may also be a change without an effect. What does not compile is left
out. Prints each bug with what found it, and at the end how many survived in each header and folder.
"""

import random
import re
import sys

import planted
import run
import select_tests

OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-",
             "-": "+", "*": "/", "/": "*", "%": "/", "+=": "-=", "-=": "+=", "*=": "/=", "|=": "&=", "<<": ">>"}
RULES = [  # a pattern, and what takes the place of its first group
    (r" ([<>=!&|+\-*/%]{1,2}) (?!=)", lambda found: OPERATORS.get(found)),
    (r"(?<![\w.'])([01])(?![\w.'])", lambda found: "10"[int(found)]),
    (r"(\+\+|--)", lambda found: "--" if found == "++" else "++"),
    (r"(?<=[(\s])(!)(?=[\w(])", lambda found: ""),
    (r"(?<=\w\()(\w[\w.]*, \w[\w.]*)(?=\))", lambda found: ", ".join(reversed(found.split(", ")))),
    (r"^ +((?:[\w.:]|->|\[\w+\])+(?:\(.*\)| [+\-*/|&]?= .*|\+\+|--);)$", lambda found: ";"),
    (r"^ +((?:\+\+|--)[\w.]+;)$", lambda found: ";"),
]
BLANK = [  # what bugs keep away from
    r"//[^\n]*", r"/\*.*?\*/", r'"(?:\\.|[^"\\\n])*"', r"'(?:\\.|[^'\\\n])'", r"^ *#[^\n]*", r"\bthrow\b[^;]*;",
    r"([\w.()]+) [<>] ([\w.()]+) \? (?:\1 : \2|\2 : \1)",  # of equal ones either is right
    r"\b(?:static_assert|assert)\b[^;]*;", r"\boperator\S*", r"\b(?:template|using|friend)\b[^;{]*", r"= (?:0|default|delete);$"]
DIRECT, BESIDE = 5, 3  # tests that include a header, and that reach it by others
IN_CI = 3  # tests for a bug on a changed line
LIBRARY = run.ROOT / "include/shardwise"


def code_of(text):
    """The text with blanks of the same length for what is no code."""
    return re.sub("|".join(BLANK), lambda found: re.sub(r"[^\n]", " ", found[0]), text,
                  flags=re.MULTILINE | re.DOTALL)


def conditions(code):
    """Begin and end of each condition of an `if`."""
    for found in re.finditer(r"\bif \(", code):
        depth, end = 1, found.end()
        while depth and end < len(code):
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        yield found.end(), end - 1


def bugs_in(text):
    """Begin, end and new text of every possible bug, in an order that depends on the text alone."""
    code = code_of(text)
    bugs = [(*found.span(1), made) for pattern, make in RULES for found in re.finditer(pattern, code, re.MULTILINE)
            if (made := make(found[1])) is not None and not {text[found.start() - 1], text[found.end()]} & {'"'}]
    for begin, end in conditions(code):
        bugs += [(begin, end, f"({text[begin:end]}) || true"), (begin, end, f"({text[begin:end]}) && false")]
    random.Random(len(bugs)).shuffle(bugs)
    return bugs


def tests_near(header, tests):
    """Tests that include the header, then tests that include one that includes it, and so on; at each distance
    first those that have its name in theirs, and small ones before large ones."""
    def including(headers):
        groups = {}
        for test in tests:
            own = frozenset(file for file in test.sources - {run.MAIN} if re.match("tests/(?!compile_fail)", file))
            if headers & select_tests.reached(own, through=lambda file: file.startswith("tests/")):
                groups.setdefault(own, []).append(test)
        return sorted(groups.values(), key=lambda group: (header.stem not in group[0].name, *size_of(group[0])))

    def size_of(test):
        return len(select_tests.reached(test.sources)), test.name

    library = [str(file.relative_to(run.ROOT)) for file in LIBRARY.rglob("*.hpp")]
    front = {str(header.relative_to(run.ROOT))}
    near, seen = including(front)[:DIRECT], front
    most = len(near) + BESIDE
    while front and len(near) < most:
        front = {file for file in library if front & select_tests.includes(file)} - seen
        seen = seen | front
        near += [group for group in including(front) if group not in near]
    return near[:most]


class Planter:
    """Plants small bugs in a tree."""

    def __init__(self, tree):
        self.tree = tree
        self.green = {}

    def is_green(self, group):
        """Whether these tests pass without a bug."""
        name = group[0].name
        if name not in self.green:
            self.green[name] = self.tree.verdict(group, self.log) == "survived"
        return self.green[name]

    @property
    def log(self):
        return run.WORK / f"generated_{self.tree.root.name}.log"

    def found_by(self, groups, header, bug):
        """The name of the first test that finds the bug; "" if none does, None if it does not compile."""
        file = self.tree.root / header.relative_to(run.ROOT)
        right = file.read_text()
        begin, end, made = bug
        for group in filter(self.is_green, groups):
            file.write_text(right[:begin] + made + right[end:])
            verdict = self.tree.verdict(group, self.log)
            file.write_text(right)
            if verdict != "survived":
                return group[0].name if verdict == "killed" else None
        return ""

    def plant(self, header, count, groups):
        """Prints what became of `count` bugs in a header, and returns how many there were and survived."""
        text = header.read_text()
        made = survived = 0
        for bug in bugs_in(text)[:3 * count] if groups else []:
            found = self.found_by(groups, header, bug)
            if found is None:
                continue
            made, survived = made + 1, survived + (found == "")
            print_bug(header, text, bug, found)
            if made == count:
                break
        return made, survived


def print_bug(header, text, bug, found):
    begin, end, made = bug
    place = f"{header.relative_to(LIBRARY)}:{line_of(text, begin)}"
    print(f"{found or 'SURVIVED':<40} {place}: {text[begin:end]!r} -> {made!r}", flush=True)


def line_of(text, begin):
    return text.count("\n", 0, begin) + 1


def on_lines(changed, count, tests, order):
    """Tasks for run.in_trees, which plant `count` bugs on changed lines: the numbers of each file's."""
    bugs = []
    for file, lines in sorted(changed.items()):
        header = run.ROOT / file
        if header.suffix == ".hpp" and header.is_relative_to(LIBRARY) and header.is_file():
            text = header.read_text()
            bugs += [(header, bug) for bug in bugs_in(text) if line_of(text, bug[0]) in lines]
    planters = {}

    def task_of(header, bug):
        def task(tree):
            found = planters.setdefault(tree, Planter(tree)).found_by(tests_near(header, tests)[:IN_CI], header, bug)
            if found is not None:
                print_bug(header, header.read_text(), bug, found)
        return task
    return [task_of(*bug) for bug in order.sample(bugs, min(count, len(bugs)))]


def untouched():
    """The headers in which no bug is planted."""
    touched = {file for bug in planted.bugs().values() for file in bug.files()}
    return [header for header in sorted(LIBRARY.rglob("*.hpp")) if str(header.relative_to(run.ROOT)) not in touched]


def plant_in(headers, count):
    """The bugs in each header and how many survived, by its path below the library."""
    tests = run.listed_tests()
    planters, found = {}, {}

    def task_of(header):
        def task(tree):
            planter = planters.setdefault(tree, Planter(tree))
            found[header.relative_to(LIBRARY)] = planter.plant(header, count, tests_near(header, tests))
        return task

    run.in_trees(task_of(header) for header in headers)
    return found


def main():
    what = sys.argv[1] if len(sys.argv) in (2, 3) else ""
    path = LIBRARY / what
    if what != "--untouched" and (not what or not path.exists()):
        sys.exit(__doc__)
    headers = untouched() if what == "--untouched" else [path] if path.is_file() else sorted(path.rglob("*.hpp"))
    found = plant_in(headers, int(sys.argv[2]) if len(sys.argv) > 2 else 6)
    folders = {}
    for header, numbers in sorted(found.items()):
        print("{}: {} bugs, {} survived".format(header, *numbers))
        folders.setdefault(header.parent.parts[:1], []).append(numbers)
    for folder, numbers in folders.items():
        planted_here, survived = map(sum, zip(*numbers))
        print(f"{''.join(folder) or '.'}: {len(numbers)} headers, {planted_here} bugs, {survived} survived")


if __name__ == "__main__":
    main()
