"""What benchmarks that are scripts have in common: their command line, and the JSON that they write as
support/program.hpp has Google Benchmark write it."""

import argparse
import datetime
import json
import os
import re
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "bench"))
import tables  # noqa: E402

MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def at_least_one(text):
    """What an option says of how many."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def above_zero(text):
    """What an option says of how long."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def pattern(text):
    """What an option says of names."""
    try:
        return re.compile(text)
    except re.error as problem:
        raise argparse.ArgumentTypeError(f"{text} is no regular expression: {problem}") from None


def parser_of(text, rounds):
    """The options that all have, for a script that begins with this text."""
    parser = argparse.ArgumentParser(usage=text.partition("usage: ")[2].partition("\n\n")[0],
                                     description=text.partition("\n")[0])
    parser.add_argument("--rounds", type=at_least_one, default=rounds, metavar="N",
                        help=f"turns of each [{rounds}]")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write JSON")
    return parser


def complain(text):
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


def leave(text):
    """Ends the script, which could not begin."""
    complain(text)
    sys.exit(2)


def mpiexec_of(build):
    """The launcher of the MPI that CMake found for the programs; `mpiexec` may be another MPI's."""
    for folder in (build, *build.parents):
        cache = folder / "CMakeCache.txt"
        if cache.exists():
            found = re.search(r"^MPIEXEC_EXECUTABLE:\w+=(/.+)$", cache.read_text(), re.MULTILINE)
            return found[1] if found else "mpiexec"
    return "mpiexec"


def spread(values):
    """Median, 10th and 90th percentile."""
    ordered = sorted(values)
    return [ordered[int(part * (len(ordered) - 1) + 0.5)] for part in (0.5, 0.1, 0.9)]


def compared(name, seconds, also=None):
    """One comparison: `seconds` of each candidate in each round, ours last, and what else there is to
    say, as {candidate: {what: number}}."""
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
        for what, number in (also or {}).get(candidate, {}).items():
            entry[f"{candidate}: {what}"] = number
    return entry


def failed(name, why):
    """A comparison without figures."""
    return {"name": name, "run_name": name, "run_type": "iteration", "iterations": 0,
            "error_occurred": True, "error_message": why}


class Report:
    """What was measured so far, and the file that holds it: at any moment the old one or the new one."""

    def __init__(self, out, rounds):
        """Ends with 2 if the file cannot be written; what it holds stays."""
        processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        self.out, self.entries = out, []
        self.context = {"date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
                        "executable": Path(sys.argv[0]).name, "num_cpus": os.cpu_count(),
                        "processor": processor[1] if processor else "unknown", "rounds": str(rounds)}
        try:
            if out:
                out.open("a").close()
        except OSError as problem:
            leave(f"--out {out} cannot be written: {problem.strerror}")

    def add(self, entries):
        """Prints the comparisons, and adds them to the file."""
        self.put(self.entries + entries)
        self.show(entries)

    def put(self, entries):
        """Has these in the file, instead of those before."""
        self.entries = entries
        if self.out and entries:
            saving = self.out.with_name(self.out.name + ".saving")
            saving.write_text(json.dumps({"context": self.context, "benchmarks": entries}, indent=1)
                              + "\n")
            saving.replace(self.out)

    @staticmethod
    def show(entries):
        print("\n".join(tables.tables_of(entries)), flush=True)

    def end(self):
        """The exit code. Takes the file away again if nothing was measured."""
        if self.out and self.out.exists() and self.out.stat().st_size == 0:
            self.out.unlink()
        return 1 if any("error_message" in entry for entry in self.entries) else 0
