#!/usr/bin/env python3
"""One page of tables from what benchmark programs wrote.

usage: tables.py FILE.json...

Prints Markdown: for each file when and on what it was measured, and a table for each set of candidates
that are compared: the time of the last one, ours, its speed over that of every other one, as median
[10 %, 90 %] of ratios of one round, and what else was counted. What failed stands above the tables,
with the reason. support/program.hpp writes the files.
"""

import json
import sys
from pathlib import Path

BAR = "\\|"  # in a cell
ENDING = "/iterations:1/manual_time"  # what Google Benchmark writes behind a name
SAID_ELSEWHERE = {"date", "num_cpus", "mhz_per_cpu", "processor", "rounds"}
NOT_TOLD = {"host_name", "executable", "cpu_scaling_enabled", "caches", "load_avg",
            "library_build_type", "json_schema_version", "library_version"}


def in_digits(value):
    """Three digits, and all of a large number that are in front of the point."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def spread_of(counters, what, scale=1.0):
    """Median [10 %, 90 %]."""
    median, low, high = (in_digits(scale * counters[what + ending])
                         for ending in ("", ", 10 %", ", 90 %"))
    return f"{median} [{low}, {high}]"


def time_of(counters):
    """The same of times, in the unit in which the median reads best."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        if counters["seconds"] * scale >= 1:
            break
    return f"{spread_of(counters, 'seconds', scale)} {unit}"


def counters_of(benchmark):
    """{candidate: {counter: value}}, ours last."""
    return {
        candidate: {key.removeprefix(f"{candidate}: "): value
                    for key, value in benchmark.items() if key.startswith(f"{candidate}: ")}
        for candidate in benchmark["label"].split(" | ")}


def more_of(candidates):
    """{heading: cell} of what else was counted; of another candidate only where it differs from
    ours."""
    def further(candidate):
        return {what: value for what, value in candidates[candidate].items()
                if not what.startswith(("seconds", "ours over it"))}

    *others, ours = candidates
    own = further(ours)
    more = {what: in_digits(value) for what, value in own.items()}
    for other in others:
        more.update({f"{other}: {what}": in_digits(value)
                     for what, value in further(other).items() if own.get(what) != value})
    return more


def cells_of(benchmark):
    """{heading: cell} of one comparison."""
    candidates = counters_of(benchmark)
    *others, ours = candidates
    cells = {"comparison": name_of(benchmark), f"{ours} takes": time_of(candidates[ours])}
    for other in others:
        cells[f"speed over {other}"] = spread_of(candidates[other], "ours over it")
    return {**cells, **more_of(candidates)}


def name_of(benchmark):
    return benchmark["name"].removesuffix(ENDING)


def line_of(cells):
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


def table_of(rows):
    """Lines; a row has no cell where it does not have another one's heading."""
    headings = list(dict.fromkeys(heading for row in rows for heading in row))
    return ["", line_of(headings), "|" + "---|" * len(headings),
            *(line_of([row.get(heading, "") for heading in headings]) for row in rows)]


def circumstances_of(context):
    """One line: when, on what, how."""
    said = [context.get("date", "at an unknown time"),
            f"{context.get('num_cpus', '?')} x {context.get('processor', 'an unknown processor')}",
            f"{context.get('rounds', '?')} rounds"]
    said += [f"{what}: {value}" for what, value in context.items()
             if what not in SAID_ELSEWHERE | NOT_TOLD]
    return "; ".join(said)


def report_of(text):
    """What a program wrote, and nothing or why that is not whole: of a program that was stopped it
    is the comparisons that it had written before.
    throws ValueError where there is none"""
    try:
        return json.loads(text), None
    except ValueError as problem:
        end_of_comparison = "\n    }"  # as Google Benchmark writes it
        known, found, _ = text.rpartition(end_of_comparison)
        if not found:
            raise
        return json.loads(f"{known}{found}]}}"), problem


def tables_of(benchmarks):
    """Lines: a table for each set of candidates, below what failed."""
    lines, tables = [], {}
    for benchmark in benchmarks:
        if benchmark.get("error_occurred"):
            why = benchmark.get("error_message", "").replace("\n", " ")
            lines += ["", f"**failed**: {name_of(benchmark)}: {why}"]
        else:
            tables.setdefault(benchmark["label"], []).append(cells_of(benchmark))
    return lines + [line for rows in tables.values() for line in table_of(rows)]


def section_of(file):
    """The lines of one program."""
    lines = ["", f"## {file.stem}", ""]
    try:
        report, problem = report_of(file.read_text())
        lines += [circumstances_of(report["context"])]
        if problem:
            lines += ["", f"**failed**: {file} ends too early: {problem}. What it has:"]
        lines += tables_of(report["benchmarks"])
    except (OSError, ValueError, KeyError) as problem:
        lines += ["", f"**failed**: {file} is not whole: {type(problem).__name__}: {problem}"]
    return lines


def page_of(files):
    lines = ["# Benchmarks", "", "Median [10 %, 90 %]. A speed over another is its time over ours in the same round: above 1, ours is "
             "faster."]
    for file in files:
        lines += section_of(file)
    return "\n".join(lines) + "\n"


def main(words):
    if not words or any(word.startswith("-") for word in words):
        print("usage: tables.py FILE.json...", file=sys.stderr)
        return 2
    sys.stdout.write(page_of([Path(word) for word in words]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
