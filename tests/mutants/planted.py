"""Reads the planted bugs of tests/mutants/*.txt.

A file has the bugs in one folder of the library. An entry ends at an empty line:

    bias_on_every_rank
    trap 1: every rank adds the bias            the row of docs/traps.md, and what the bug does
    red ranks\\.model_linear                     the tests of which one must go red, as a regular
                                                expression, or `compile` for those of tests/static
    needs amx_tile                              what the processor must have for it to go red, as Linux
                                                names it; left out where no more than any has is needed
    in include/shardwise/model/frame.hpp
    -  const bool is_zero = place.rank != 0;    what stands there, in whole lines
    +  const bool is_zero = place.rank < 0;     what takes its place

Lines behind a blank stand in both. What is to be replaced must be in the file once and not twice, so an
entry has neighbouring lines only where it needs them, and stays right when code around it moves. An entry
may change several places: `in` begins the next one.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


class Unusable(Exception):
    """A bug or a test with which nothing can be shown."""


@dataclass
class Edit:
    file: str
    lines: list = field(default_factory=list)  # each behind its sign

    def text(self, signs):
        return "".join(f"{line[1:]}\n" for line in self.lines if line[0] in signs)


@dataclass
class Bug:
    name: str
    trap: int
    what: str
    red: str
    edits: list
    needs: str = ""
    lines: tuple = ()  # the file of tests/mutants that has it, and the numbers of its lines there

    def files(self):
        return sorted({edit.file for edit in self.edits})

    def planted(self, root=ROOT):
        """The text of each file that the bug changes, with the bug."""
        texts = {}
        for file in self.files():
            text = "\n" + (root / file).read_text()
            places = sorted(self.place_of(edit, text) for edit in self.edits if edit.file == file)
            if any(before[1] > after[0] for before, after in zip(places, places[1:])):
                raise Unusable(f"{self.name}: two of its places in {file} overlap")
            for begin, end, new in reversed(places):
                text = text[:begin] + new + text[end:]
            texts[file] = text[1:]
        return texts

    def place_of(self, edit, text):
        """Begin and end of what is replaced, and what takes its place."""
        old, new = f"\n{edit.text(' -')}", edit.text(" +")
        times = len(re.findall(f"(?={re.escape(old)})", text))
        if times != 1 or old == f"\n{new}":
            raise Unusable(f"{self.name}: these lines are {times} times in {edit.file}, and must be there once and "
                           f"become others: {old}")
        begin = text.index(old) + 1
        return begin, begin + len(old) - 1, new


def bug_of(file, entry):
    """The bug that the lines of an entry say."""
    head = re.match(r"(\w+)\ntrap (\d+): (.*)\nred (.*)(?:\nneeds (\w+))?\nin ", "\n".join(entry))
    if not head:
        raise Unusable(f"{file.name}: the entry {entry[0]} does not begin with its name, a trap, what must go red, "
                       "and a place")
    edits = []
    for line in entry[4 if head[5] else 3:]:
        if line.startswith("in "):
            edits.append(Edit(line.removeprefix("in ")))
        elif line[0] in " -+":
            edits[-1].lines.append(line)
        else:
            raise Unusable(f"{file.name}: {entry[0]}: no sign in front of: {line}")
    return Bug(head[1], int(head[2]), head[3], head[4], edits, head[5] or "")


def entries(file):
    """The number of the first line of each entry of a file, and its lines."""
    entry = []
    for number, line in enumerate([*file.read_text().split("\n"), ""], 1):
        if line:
            entry.append(line)
        elif entry:
            yield number - len(entry), entry
            entry = []


def bugs(folder=FOLDER):
    """All of them, by name."""
    found = {}
    for file in sorted(folder.glob("*.txt")):
        for number, entry in entries(file):
            bug = bug_of(file, entry)
            bug.lines = (file, range(number, number + len(entry)))
            if bug.name in found:
                raise Unusable(f"{file.name}: two bugs have the name {bug.name}")
            found[bug.name] = bug
    if not found:
        raise Unusable(f"{folder} has no planted bug")
    return found
