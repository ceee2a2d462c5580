#!/usr/bin/env python3
"""Checks the pages for people: links lead somewhere, code is that of the sources, commands work.

usage: check_documents.py [--update | --run PRESET] [ROOT]

Pages are the .md files in ROOT, and below its folders include, docs, tests and bench. A block of
code, and one without a language, says in a comment on the line above it where it comes from:

    <!-- quote: examples/00_first_model.cpp#model -->   the lines between `begin: model` and
                                                        `end: model`; without #model the whole file
    <!-- run: release -->     commands behind `$ `, run in ROOT with the tree build/release; behind
                              each one what it prints, with `...` for whatever varies
    <!-- said in: tests/x.cpp -->  a message; it is the whole of a string in that file, which
                              breaks its lines elsewhere
    <!-- not run: reason -->  none of them

A table of measured figures is made by bench/figures.py, and so is how many goals it reaches:

    <!-- figures: bench/figures/gpt.json#step -->
    <!-- end of figures -->

Drawings are blocks of ```text, and need none. Nothing stands behind `> `: nobody would hold it to what
it quotes.

Each row of docs/traps.md has a number of its own, and tests/mutants a planted bug of each.

--update    writes what sources hold now into the blocks that quote them, and figures into their tables
--run       runs the commands of a preset, instead of what is checked without running anything
"""

import argparse
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

HOUSE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOUSE / "tests/mutants"), str(HOUSE / "bench")]
import figures  # noqa: E402
import planted  # noqa: E402

FOLDERS = ("include", "docs", "tests", "bench")
LANGUAGES_TO_CHECK = {"", "cpp", "c++", "console", "sh", "shell", "bash", "cmake", "python", "py"}
PRESETS_RUN = {"release"}  # by the test documents.commands
SECONDS_OF_A_COMMAND = 300
FENCE = re.compile(r"^( *)(```+|~~~+) *([\w+-]*)")
TAG = re.compile(r"^ *<!-- *(quote|run|said in|not run): *(.*?) *-->$")
STRINGS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')  # adjacent ones are one
MARKER = re.compile(r"^\s*(?://|#) (begin|end): ([\w.-]+)$")
FIGURES = re.compile(r"^<!-- figures: (.+?)#(.+) -->$")
END_OF_FIGURES = "<!-- end of figures -->"
QUOTATION = re.compile(r"^ {0,3}>")
TRAP = re.compile(r"^\| (\d+) \|")  # its row
HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$")
LINK = re.compile(
    r"""\]\(\s*<?([^()\s>]*(?:\([^()\s]*\)[^()\s>]*)?)>?(?:\s+"[^"]*")?\s*\)"""  # [text](target)
    r"""|^ {0,3}\[[^\]]+\]:[ ]+<?(\S+?)>?(?=\s|$)"""  # [text]: target
    r"""|(?:href|src)="([^"]*)"|<(https?:[^>]*)>""",
    re.MULTILINE,
)


class Problem(Exception):
    """What is wrong and what to do about it, so many lines below where one would look for it."""

    def __init__(self, message, below=0):
        super().__init__(message)
        self.below = below


@dataclass
class Block:
    """A fenced block of a page; lines are counted from 1."""

    line: int
    indent: int
    language: str
    text: list[str]
    kind: str = ""  # quote, run, said in, not run, or none of them
    argument: str = ""
    closed: bool = False


# --- pages -------------------------------------------------------------------------------------


def pages_of(root):
    return [
        page
        for pages in ("*.md", *(f"{folder}/**/*.md" for folder in FOLDERS))
        for page in sorted(root.glob(pages))
    ]


def blocks_of(lines):
    """The fenced blocks of a page, each with the tag on the line above it."""
    blocks, fence = [], None
    for number, line in enumerate(lines, 1):
        found = FENCE.match(line)
        if fence is None and found:
            fence = found[2]
            block = Block(number, len(found[1]), found[3].lower(), [])
            tag = TAG.match(lines[number - 2]) if number > 1 else None
            if tag:
                block.kind, block.argument = tag[1], tag[2]
            blocks.append(block)
        elif (
            fence is not None and line.strip().startswith(fence) and not line.strip(" " + fence[0])
        ):
            fence = None
            blocks[-1].closed = True
        elif fence is not None:
            blocks[-1].text.append(line[min(blocks[-1].indent, len(line) - len(line.lstrip())) :])
    return blocks


def prose_of(lines):
    """The page with blocks of code left empty, so that lines keep their numbers."""
    prose = list(lines)
    for block in blocks_of(lines):
        for i in range(block.line - 1, min(block.line + len(block.text) + 1, len(lines))):
            prose[i] = ""
    return prose


def anchors_of(page):
    """The names of a page's headings, as GitHub makes them."""
    anchors = set()
    for line in prose_of(page.read_text().splitlines()):
        heading = HEADING.match(line)
        if heading:
            text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            repeats = sum(
                1 for other in anchors if re.fullmatch(re.escape(name) + r"(-\d+)?", other)
            )
            anchors.add(f"{name}-{repeats}" if name in anchors else name)
        anchors.update(re.findall(r'<a (?:id|name)="([^"]+)"', line))
    return anchors


# --- links -------------------------------------------------------------------------------------


def links_of(lines):
    """Yields the line and the target of every link outside code."""
    prose = "\n".join(prose_of(lines))
    prose = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", lambda code: re.sub(r"[^\n]", " ", code[0]), prose)
    for link in LINK.finditer(prose):
        yield prose.count("\n", 0, link.start()) + 1, next(
            t for t in link.groups() if t is not None
        )


def check_link(root, page, target):
    parts = urlsplit(target)
    if parts.scheme in ("http", "https"):
        if not re.fullmatch(r"[\w.-]+\.\w+(:\d+)?", parts.netloc):
            raise Problem(f"the link {target} names no host: mend the address")
        return
    if parts.scheme:
        raise Problem(f"the link {target} is no file and no https address: mend it")
    file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not file.is_relative_to(root) or not file.exists():
        raise Problem(
            f"the link {target} leads nowhere: there is no such file; mend the path, which is "
            f"relative to the page's folder"
        )
    if parts.fragment and file.suffix != ".md":
        raise Problem(
            f"the link {target} has an anchor into a file that is no page: leave #... out"
        )
    if parts.fragment and parts.fragment not in anchors_of(file):
        raise Problem(
            f"the link {target} leads nowhere: {file.relative_to(root)} has no heading of that "
            f"name, only {', '.join(sorted(anchors_of(file)))}"
        )


# --- planted bugs ------------------------------------------------------------------------------


def check_traps(root):
    """Yields line and problem of rows of the traps that no planted bug has, and the other way round."""
    page = root / "docs/traps.md"
    lines = page.read_text().splitlines() if page.is_file() else []
    rows = [(int(row[1]), at) for at, line in enumerate(lines, 1) if (row := TRAP.match(line))]
    if not rows:
        return
    line_of = dict(rows)
    planted_for = {bug.trap for bug in planted.bugs(root / "tests/mutants").values()}
    for at, line in enumerate(lines, 1):
        if line.startswith("|") and not TRAP.match(line) and not re.match(r"\|( number |-)", line):
            yield at, Problem("this trap has no number: give it the next one")
    for number, at in rows:
        if line_of[number] != at:
            yield at, Problem(f"two traps have the number {number}")
        if number not in planted_for:
            yield at, Problem(f"no bug of tests/mutants is of trap {number}: plant the bug that it excludes")
    for number in sorted(planted_for - line_of.keys()):
        yield 1, Problem(f"tests/mutants has a bug of trap {number}: add its row")


# --- quotes ------------------------------------------------------------------------------------


def text_of(root, path):
    source = root / path
    if not source.is_file():
        raise Problem(
            f"names {path}, which does not exist: mend the path, which is relative to the root"
        )
    return source.read_text()


def quoted(root, argument):
    """The lines that `file#name` stands for, without markers and common indentation."""
    path, _, name = argument.partition("#")
    lines = text_of(root, path).splitlines()
    marks = [(i, *mark.groups()) for i, mark in enumerate(map(MARKER.match, lines)) if mark]
    if name:
        begins = [i for i, kind, of in marks if (kind, of) == ("begin", name)]
        ends = [i for i, kind, of in marks if (kind, of) == ("end", name)]
        if len(begins) != 1 or len(ends) != 1 or begins[0] > ends[0]:
            raise Problem(
                f"quotes {argument}, but {path} has not one line `begin: {name}` and one line "
                f"`end: {name}` behind it: add the two as comments"
            )
        lines = lines[begins[0] + 1 : ends[0]]
    kept = [line for line in lines if not MARKER.match(line)]
    return textwrap.dedent("\n".join(kept)).strip("\n").splitlines()


def check_quote(root, block):
    source = quoted(root, block.argument)
    if block.text == source:
        return
    same = [a == b for a, b in zip(block.text, source)]
    first = same.index(False) if False in same else len(same)
    raise Problem(
        f"is not what {block.argument} holds, from its line {first + 1} on: run "
        f"cmake/check_documents.py --update, or mend the source"
    )


def check_message(root, block):
    strings = (
        re.sub(r'(?<!\\)"\s*"', "", text)[1:-1].replace('\\"', '"')
        for text in STRINGS.findall(text_of(root, block.argument))
    )
    message = " ".join(" ".join(block.text).split())
    if not message or message not in strings:
        raise Problem(
            f"is no string in {block.argument}, which is where a test should demand this message, "
            "or a header give it to the compiler: show what it says there"
        )


def check_figures(root, lines):
    """Yields line and problem of each table of figures that is not what its file makes."""
    for at, end, path, name in tables_of(lines):
        try:
            if end is None:
                raise Problem(f"no line {END_OF_FIGURES} ends this table: add it below")
            if lines[at:end] != table_of(root, path, name):
                raise Problem(f"the table is not what {path} makes: run cmake/check_documents.py --update")
        except Problem as problem:
            yield at, problem


def tables_of(lines):
    """Yields for each table of figures where it begins and ends (or none), its file and its name."""
    for number, line in enumerate(lines, 1):
        found = FIGURES.match(line)
        if found:
            rest = lines[number:]
            end = number + rest.index(END_OF_FIGURES) if END_OF_FIGURES in rest else None
            yield number, end, found[1], found[2]


def table_of(root, path, name):
    try:
        return figures.table(text_of(root, path), name)
    except ValueError as problem:
        raise Problem(f"{path} makes no table: {problem}") from None


def update(root, page):
    """Writes what the sources hold into the blocks and tables of a page that show it."""
    text = page.read_text()
    lines = text.splitlines()
    for at, end, path, name in reversed(list(tables_of(lines))):
        try:
            if end:
                lines[at:end] = table_of(root, path, name)
        except Problem:
            continue  # the check tells
    for block in reversed([block for block in blocks_of(lines) if block.kind == "quote"]):
        try:
            source = quoted(root, block.argument)
        except Problem:
            continue  # the check tells
        indented = [" " * block.indent + line if line else "" for line in source]
        lines[block.line : block.line + len(block.text)] = indented
    updated = "\n".join(lines) + "\n"
    if updated != text:
        page.write_text(updated)


# --- commands ----------------------------------------------------------------------------------


def commands_of(block):
    """Yields line in the block, command and expected output of each `$ ` line."""
    lines = list(enumerate(block.text))
    while lines:
        at, line = lines.pop(0)
        if not line.startswith("$ "):
            raise Problem("begins without a command: its first line begins with `$ `")
        command = [line[2:]]
        while command[-1].endswith("\\") and lines:
            command.append(lines.pop(0)[1])
        expected = []
        while lines and not lines[0][1].startswith("$ "):
            expected.append(lines.pop(0)[1])
        yield at, "\n".join(command), expected


def pattern_of(expected):
    """What is expected as a regular expression, of output whose lines all end in a newline."""
    parts = []
    for line in expected:
        varies = ".*?".join(re.escape(part) for part in line.rstrip().split("..."))
        parts.append(r"(?:.*\n)*?" if line.strip() == "..." else varies + r"[ \t]*\n")
    return "".join(parts)


def first_difference(expected, output):
    """The number of the first expected line that the output lacks; none if it is as expected."""
    text = "".join(line + "\n" for line in output.strip("\n").splitlines())
    while expected and not expected[-1].strip():
        expected = expected[:-1]
    if re.fullmatch(pattern_of(expected), text):
        return None
    for count in range(1, len(expected) + 1):
        if not re.match(pattern_of(expected[:count]), text):
            return count - 1
    return len(expected)


def run_command(root, command, expected):
    try:
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=root,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS_OF_A_COMMAND,
        )
    except subprocess.TimeoutExpired:
        raise Problem(
            f"`{command}` ran for more than {SECONDS_OF_A_COMMAND} s: show a shorter one"
        ) from None
    printed = "it printed\n" + textwrap.indent(ran.stdout.strip("\n") or "(nothing)", "    ")
    if ran.returncode != 0:
        raise Problem(
            f"`{command}` failed with status {ran.returncode}: mend the command or the program; "
            + printed
        )
    at = first_difference(expected, ran.stdout)
    if at is not None:
        missing = f"does not print `{expected[at]}` there" if at < len(expected) else "prints more"
        raise Problem(
            f"`{command}` {missing}: show what it prints, with ... for what varies; {printed}",
            below=command.count("\n") + 1 + at,
        )


# --- checks ------------------------------------------------------------------------------------


def check_tag(block):
    if not block.closed:
        raise Problem("the block that begins here does not end: close it with a line of ```")
    if not block.kind and block.language in LANGUAGES_TO_CHECK:
        raise Problem(
            f"a block of {block.language or 'no language'} does not say where it comes from: put "
            "<!-- quote: file#name -->, <!-- run: release -->, <!-- said in: file --> or "
            "<!-- not run: reason --> on the line above it, or make it ```text if it is a drawing"
        )
    if block.kind and not block.argument:
        raise Problem(
            f"the comment `{block.kind}:` above the block says nothing behind the colon: add it"
        )
    if block.kind == "run" and block.language != "console":
        raise Problem("commands that are run stand in a block of ```console, behind `$ `")
    if block.kind == "run" and block.argument not in PRESETS_RUN:
        raise Problem(
            f"nothing runs the commands of the preset {block.argument}, only those of "
            f"{', '.join(sorted(PRESETS_RUN))}: name that one"
        )


def check_page(root, page):
    """Yields line and problem for all that can be seen without running anything."""
    lines = page.read_text().splitlines()
    for line, target in links_of(lines):
        try:
            check_link(root, page, target)
        except Problem as problem:
            yield line, problem
    yield from check_figures(root, lines)
    blocks = blocks_of(lines)
    for block in blocks:
        try:
            check_tag(block)
            if block.kind == "quote":
                check_quote(root, block)
            elif block.kind == "said in":
                check_message(root, block)
            elif block.kind == "run":
                list(commands_of(block))
        except Problem as problem:
            yield block.line, problem
    above = {block.line - 1 for block in blocks if block.kind}
    for number, line in enumerate(prose_of(lines), 1):
        if TAG.match(line) and number not in above:
            yield number, Problem(
                "no block of code begins on the next line: put the comment right above it"
            )
        if QUOTATION.match(line):
            yield number, Problem(
                "nothing holds what stands behind `>` to what the library says: make a message a "
                "block below <!-- said in: file -->, and say the rest in words of the page"
            )


def run_page(root, page, preset):
    """Yields line and problem for the commands of a page that are run with the tree of a preset."""
    for block in blocks_of(page.read_text().splitlines()):
        if (block.kind, block.argument) != ("run", preset):
            continue
        for at, command, expected in commands_of(block):
            print("$", command.replace("\n", "\n$ "), flush=True)
            try:
                run_command(root, command, expected)
            except Problem as problem:
                yield block.line + 1 + at + problem.below, problem


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    todo = parser.add_mutually_exclusive_group()
    todo.add_argument("--update", action="store_true")
    todo.add_argument("--run", metavar="PRESET", choices=PRESETS_RUN)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    options = parser.parse_args()
    root = options.root.resolve()
    pages, count = pages_of(root), 0
    for page in pages:
        if options.update:
            update(root, page)
        for line, problem in (
            run_page(root, page, options.run) if options.run else check_page(root, page)
        ):
            print(f"{page.relative_to(root)}:{line}: {problem}")
            count += 1
    for line, problem in [] if options.run else check_traps(root):
        print(f"docs/traps.md:{line}: {problem}")
        count += 1
    print(f"documents: {len(pages)} pages, {count} problems")
    return 1 if count or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
