"""What benchmarks that are scripts write: JSON as support/program.hpp has Google Benchmark write it."""

import argparse
import datetime
import json
import os
import sys
from pathlib import Path


def at_least_one(text):
    """What an option says of how many."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def spread(values):
    """Median, 10th and 90th percentile."""
    ordered = sorted(values)
    return [ordered[int(part * (len(ordered) - 1) + 0.5)] for part in (0.5, 0.1, 0.9)]


def processor():
    """Its name, as /proc says it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def context_of(script, rounds):
    """When and on what `script` measured."""
    return {"date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "executable": Path(script).name, "num_cpus": os.cpu_count(), "processor": processor(),
            "rounds": str(rounds)}


def compared(name, seconds):
    """One comparison: `seconds` of each candidate in each round, ours last."""
    ours = list(seconds)[-1]
    middle = spread(seconds[ours])[0]
    entry = {"name": name, "run_name": name, "run_type": "iteration", "iterations": 1,
             "real_time": 1e6 * middle, "cpu_time": 1e6 * middle, "time_unit": "us",
             "label": " | ".join(seconds)}

    def count(what, values):
        for ending, value in zip(("", ", 10 %", ", 90 %"), spread(values)):
            entry[what + ending] = value

    for candidate, times in seconds.items():
        count(f"{candidate}: seconds", times)
        if candidate != ours:
            count(f"{candidate}: ours over it",
                  [its / own for its, own in zip(times, seconds[ours])])
    return entry


def failed(name, why):
    """A comparison without figures."""
    return {"name": name, "run_name": name, "run_type": "iteration", "iterations": 0,
            "error_occurred": True, "error_message": why}


def claim(out, script):
    """Makes sure that the file can be written, or ends with 2; what it holds stays."""
    try:
        out.open("a").close()
    except OSError as problem:
        print(f"{Path(script).name}: --out {out} cannot be written: {problem.strerror}",
              file=sys.stderr)
        sys.exit(2)


def leave(out):
    """Takes the file away again if nothing was measured."""
    if out.exists() and out.stat().st_size == 0:
        out.unlink()


def write(out, context, entries):
    """The whole file; at any moment it is the old one or the new one."""
    saving = out.with_name(out.name + ".saving")
    saving.write_text(json.dumps({"context": context, "benchmarks": entries}, indent=1) + "\n")
    saving.replace(out)
