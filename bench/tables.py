#!/usr/bin/env python3
"""One page of tables from what benchmark programs wrote.

usage: tables.py FILE.json...

Prints Markdown: for each file when and on what it was measured, and for each comparison the time of
ours, its speed over that of every other candidate, as median [10 %, 90 %] of ratios of one round, and
what else was counted. What failed has a row too, which says why. support/program.hpp writes the
files.
"""

import json
import sys
from pathlib import Path

ENDING = "/iterations:1/manual_time"  # what Google Benchmark writes behind a name
SAID_ELSEWHERE = {"date", "num_cpus", "mhz_per_cpu", "processor", "rounds"}
NOT_TOLD = {"host_name", "executable", "cpu_scaling_enabled", "caches", "load_avg",
            "library_build_type", "json_schema_version", "library_version"}


def spread_of(counters, what, scale=1.0):
    """Median [10 %, 90 %], with three digits."""
    median, low, high = (scale * counters[what + ending] for ending in ("", ", 10 %", ", 90 %"))
    return f"{median:.3g} [{low:.3g}, {high:.3g}]"


def time_of(counters):
    """The same of times, in the unit in which the median reads best."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        if counters["seconds"] * scale >= 1:
            break
    return f"{spread_of(counters, 'seconds', scale)} {unit}"


def in_digits(value):
    """Large whole numbers in full, others with three digits."""
    return f"{value:,.0f}" if value >= 1000 and value == int(value) else f"{value:.3g}"


def counters_of(benchmark):
    """{candidate: {counter: value}}, ours last."""
    return {
        candidate: {key.removeprefix(f"{candidate}: "): value
                    for key, value in benchmark.items() if key.startswith(f"{candidate}: ")}
        for candidate in benchmark["label"].split(" | ")}


def more_of(candidates):
    """What else was counted; of another candidate only where it differs from ours."""
    def further(counters):
        return {what: value for what, value in counters.items()
                if not what.startswith(("seconds", "ours over it"))}

    *others, ours = candidates
    own = further(candidates[ours])
    said = [f"{what} {in_digits(value)}" for what, value in own.items()]
    for other in others:
        said += [f"{other}: {what} {in_digits(value)}"
                 for what, value in further(candidates[other]).items() if own.get(what) != value]
    return said


def row_of(benchmark):
    """The cells of one comparison."""
    name = benchmark["name"].removesuffix(ENDING)
    if benchmark.get("error_occurred"):
        return [name, "**failed**", benchmark.get("error_message", ""), ""]
    candidates = counters_of(benchmark)
    *others, ours = candidates
    over = [f"{other}: {spread_of(candidates[other], 'ours over it')}" for other in others]
    return [name, time_of(candidates[ours]), "<br>".join(over), "<br>".join(more_of(candidates))]


def circumstances_of(context):
    """One line: when, on what, how."""
    said = [context.get("date", "at an unknown time"),
            f"{context.get('num_cpus', '?')} x {context.get('processor', 'an unknown processor')}",
            f"{context.get('rounds', '?')} rounds"]
    said += [f"{what}: {value}" for what, value in context.items()
             if what not in SAID_ELSEWHERE | NOT_TOLD]
    return "; ".join(said)


def section_of(file):
    """The lines of one program."""
    lines = ["", f"## {file.stem}", ""]
    try:
        report = json.loads(file.read_text())
        lines += [circumstances_of(report["context"]), "",
                  "| comparison | ours takes | speed of ours over | more |", "|---|---|---|---|"]
        for benchmark in report["benchmarks"]:
            cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in row_of(benchmark)]
            lines.append(f"| {' | '.join(cells)} |")
    except (OSError, ValueError, KeyError) as problem:
        lines += ["", f"**failed**: {file} is not whole: {type(problem).__name__}: {problem}"]
    return lines


def page_of(files):
    lines = ["# Benchmarks", "", "Median [10 %, 90 %]. Speeds are ratios of times of one round."]
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
