"""The tables of docs/benchmarks.md and docs/peers.md, of the figures in bench/figures/*.json.

A file holds tables by name, each with the command that measured it, the headings of its columns and a row
for each figure:

    {"all-reduce": {
      "command": "`bench_collectives_all_reduce`",
      "columns": ["what", "machine", "date", "goal", "got"],
      "rows": [
        ["1 KiB", "EPYC", "2026-11-22", "<= 350 ns", 158]
      ]}}

A cell is a text, a number as it is to be shown, two numbers: a range, three: a median and the interval
around it, or null: not measured. What stands in the column `got` and misses the `goal` of its row is bold.
"""

import json
import operator
import re
from decimal import Decimal

REACHES = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">=": operator.ge}
GOAL = re.compile(r"(=|<=|>=|<) ([\d.]+)( \S+)?")


def cell(value, shown=str, unit=""):
    match value:
        case None:
            return "not measured"
        case str():
            return value
        case [low, high]:
            return f"{shown(low)} to {shown(high)}{unit}"
        case [median, low, high]:
            return f"{shown(median)} [{low}, {high}]{unit}"
    return shown(value) + unit


def judged(value, goal):
    """The cell of what was got, with each number bold that misses the goal."""
    found = GOAL.fullmatch(goal)
    if not found:
        raise ValueError(f"the goal `{goal}` is none: write =, <, <= or >=, a number and perhaps a unit")
    relation, limit, unit = found.groups()

    def shown(number):
        return str(number) if REACHES[relation](number, Decimal(limit)) else f"**{number}**"

    return cell(value, shown, unit or "")


def line_of(cells):
    return f"| {' | '.join(cells)} |"


def cells_of(figure):
    """{heading: cell}"""
    cells = {heading: cell(value) for heading, value in figure.items()}
    if figure.get("goal"):
        cells["got"] = judged(figure["got"], figure["goal"])
    return cells


def count_of(rows):
    """How many of the goals are reached, of those that were measured."""
    got = [row["got"] for row in rows if row.get("goal") and row["got"] != cell(None)]
    return f": {sum('**' not in one for one in got)} of {len(got)} goals are reached" if got else ""


def table(text, name):
    """The lines that stand in a page for the table of this name in a file with this text. What is the same
    in all rows stands once, above them.
    throws ValueError where the file has no such table, or a row that does not fit"""
    tables = json.loads(text, parse_float=Decimal)
    if name not in tables:
        raise ValueError(f"there is no table `{name}`, only {', '.join(tables)}")
    columns, rows = tables[name]["columns"], []
    for row in tables[name]["rows"]:
        if len(row) != len(columns):
            raise ValueError(f"the row of `{row[0]}` in `{name}` has {len(row)} cells for {len(columns)} columns")
        rows.append(cells_of(dict(zip(columns, row))))
    same = [heading for heading in ("dtype", "machine", "date") if len({row.get(heading, "") for row in rows}) == 1]
    said = [tables[name]["command"], *(rows[0][heading] for heading in same if heading in columns)]
    shown = [heading for heading in columns if heading not in same]
    return [f"{', '.join(said)}{count_of(rows)}.", "", line_of(shown), "|" + "---|" * len(shown),
            *(line_of(row[heading] for heading in shown) for row in rows)]
