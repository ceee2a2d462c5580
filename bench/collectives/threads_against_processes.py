#!/usr/bin/env python3
"""Ranks that are threads against ranks that are processes of MPI, in turns.

usage: threads_against_processes.py [--build FOLDER] [--ranks N] [--rounds N] [--filter REGEX]
                                    [--out FILE] [--quick]

Runs bench_collectives_threads and, through mpiexec, bench_collectives_processes once a round, each in
processes of its own, and changes their order in every second round. What counts of a program in a
round is its median; what counts of the two is the ratio of the same round. Prints of each the median
over the rounds with the 10th and 90th percentile, how many times as fast threads are, and algorithm
and bus bandwidth, which bandwidth.hpp explains; and, where MPI is called by hand too, how many times
as fast ours on processes is. Without MPI threads are measured alone. A comparison that one program
found wrong in some round has no figures; FILE says why, and the exit code is 1.

A sample repeats a short call, with barriers only around all of its calls. An MPI process may go on to
the next broadcast, gather, scatter or send before the others are done with this one; threads meet in
each. So what those four take is throughput, and no latency of a single call.

FILE is JSON as Google Benchmark writes it, with the counters of support/program.hpp.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
sys.path[:0] = [str(TREE / "bench/peers"), str(TREE / "bench/support")]
import report  # noqa: E402
from peers import mpiexec_of  # noqa: E402
from report import failed, spread  # noqa: E402

SAMPLES = 3  # of a program in a round
PATIENCE = 900  # seconds that a program may take for them
ENDING = "/iterations:1/manual_time"  # what Google Benchmark writes behind a name
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1"}


class Failed(Exception):
    """A program did not measure; the text says which and why."""


def read(written):
    """{comparison: {candidate: {counter: value}}, or why it failed} of what a program wrote, all in
    its order."""
    found = {}
    for benchmark in written["benchmarks"]:
        name = benchmark["name"].removesuffix(ENDING)
        if benchmark.get("error_occurred"):
            found[name] = benchmark.get("error_message", "failed")
            continue
        found[name] = {
            candidate: {key.removeprefix(f"{candidate}: "): value
                        for key, value in benchmark.items() if key.startswith(f"{candidate}: ")}
            for candidate in benchmark["label"].split(" | ")}
    return found


def measure(name, command):
    """(context, comparisons) of one program's turn."""
    with tempfile.TemporaryDirectory(prefix="threads-processes-") as folder:
        file = Path(folder) / "report.json"
        try:
            done = subprocess.run([*command, f"--rounds={SAMPLES}", f"--benchmark_out={file}"],
                                  env=dict(os.environ, **MPI_ENVIRONMENT), capture_output=True,
                                  text=True, errors="replace", timeout=PATIENCE)
        except OSError as problem:
            raise Failed(f"{name}: {command[0]} cannot be started: {problem.strerror}") from None
        except subprocess.TimeoutExpired:
            raise Failed(f"{name}: {' '.join(command)} was not done after {PATIENCE} s") from None
        try:
            written = json.loads(file.read_text())
        except (OSError, ValueError):
            written = {"context": {}, "benchmarks": []}
    found = read(written)
    # A program whose comparisons failed says so in its file too.
    if not found or done.returncode != 0 and not any(map(has_failed, found.values())):
        raise Failed(f"{name}: {' '.join(command)} ended with exit code {done.returncode}. It said:\n"
                     f"{done.stderr.strip()[-800:]}")
    return written["context"], found


def has_failed(comparison):
    return isinstance(comparison, str)


def compared(name, seconds, traffic):
    """One comparison: `seconds` of each candidate in each round, ours last, and what a call moves, in
    bytes."""
    entry = report.compared(name, seconds)
    for candidate, times in seconds.items():
        for what, amount in traffic.items():
            entry[f"{candidate}: {what}"] = amount
        if traffic:
            median = spread(times)[0]
            entry[f"{candidate}: algorithm GB/s"] = 1e-9 * traffic["bytes"] / median
            entry[f"{candidate}: bus GB/s"] = 1e-9 * traffic["least bytes"] / median
    return entry


def compared_all(rounds):
    """All comparisons of some rounds, each {program: what measure() found}: between the programs, and
    between ours and MPI on processes."""
    def column(program, name, candidate):
        return [one[program][name][candidate]["seconds"] for one in rounds]

    def traffic(candidates):
        ours = list(candidates.values())[-1]
        return {what: ours[what] for what in ("bytes", "least bytes", "planned bytes") if what in ours}

    programs = [which for which in ("processes", "threads") if which in rounds[0]]
    entries = []
    for name in rounds[0]["threads"]:
        wrong = {which: one[which][name] for which in programs for one in rounds
                 if has_failed(one[which][name])}
        if wrong:
            entries.append(failed(name, "; ".join(f"bench_collectives_{which}: {why}"
                                                  for which, why in wrong.items())))
        else:
            entries.append(compared(name, {which: column(which, name, which) for which in programs},
                                    traffic(rounds[0]["threads"][name])))
        of_processes = rounds[0].get("processes", {}).get(name, {})
        if "processes" not in wrong and len(of_processes) > 1:
            entries.append(compared(f"{name}, on processes",
                                    {which: column("processes", name, which)
                                     for which in of_processes},
                                    traffic(of_processes)))
    return entries


def table(entries):
    """For people: times, how many times as fast ours is, and the bandwidths."""
    def in_words(entry, what, form, scale=1):
        return form % tuple(scale * entry[what + ending] for ending in ("", ", 10 %", ", 90 %"))

    def bandwidths(entry, candidate):
        found = [entry.get(f"{candidate}: {which} GB/s") for which in ("algorithm", "bus")]
        return "".join("%10s" % ("" if value is None else "%.3g" % value) for value in found)

    lines = []
    for label in sorted({entry["label"] for entry in entries}, reverse=True):
        candidates = label.split(" | ")
        lines += ["", "microseconds a call [10 % 90 %]; algorithm and bus GB/s of each", " " * 38
                  + "".join(f"{candidate:>36}" for candidate in candidates)
                  + "   times as fast        " * (len(candidates) > 1)
                  + "".join(f"{candidate:>20}" for candidate in candidates)]
        for entry in entries:
            if entry["label"] != label:
                continue
            line = f"{entry['name'].removesuffix(', on processes'):<38}"
            for candidate in candidates:
                line += in_words(entry, f"{candidate}: seconds", "%12.2f [%9.2f %10.2f]", 1e6)
            for candidate in candidates[:-1]:
                line += f"{in_words(entry, candidate + ': ours over it', '%8.2f [%.2f %.2f]'):<24}"
            lines.append(line + "".join(bandwidths(entry, candidate) for candidate in candidates))
    return "\n".join(lines[1:])


def arguments_of(words):
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].partition("\n\n")[0],
                                     description=__doc__.partition("\n")[0])
    parser.add_argument("--build", type=Path, default=TREE / "build/release",
                        help="the build folder in which the target `benchmarks` was built")
    parser.add_argument("--ranks", type=report.at_least_one, default=2)
    parser.add_argument("--rounds", type=report.at_least_one, default=7, help="turns of each program")
    parser.add_argument("--filter", default="", metavar="REGEX",
                        help="comparisons whose name has this, such as '^all_reduce' or '64 KiB'")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write JSON")
    parser.add_argument("--quick", action="store_true",
                        help="for a look in passing: one round, of 64 KiB and the barrier alone")
    arguments = parser.parse_args(words)
    if arguments.quick:
        arguments.rounds = 1
    try:
        re.compile(arguments.filter)
    except re.error as problem:
        parser.error(f"--filter {arguments.filter} is no regular expression: {problem}")
    return arguments


def programs_of(arguments):
    """The commands by name: without that of processes where MPI is missing. Ends with 2 where
    something was not built."""
    def program(which):
        target = f"bench_collectives_{which}"
        file = arguments.build / "bench" / target
        skipped = arguments.build / "skipped.txt"
        if file.exists():
            return str(file)
        if skipped.exists() and f"{target}:" in skipped.read_text():
            print(f"threads_against_processes.py: {target} was left out of the build; {skipped} says "
                  "what it needs", file=sys.stderr)
            return None
        print(f"threads_against_processes.py: {file} is not there; cmake --build {arguments.build} "
              f"--target {target} builds it", file=sys.stderr)
        sys.exit(2)

    threads = program("threads")
    if not threads:
        sys.exit(2)
    chosen = [f"--benchmark_filter={arguments.filter}"] if arguments.filter else []
    chosen += ["--quick"] if arguments.quick else []
    commands = {"threads": [threads, f"--ranks={arguments.ranks}", *chosen]}
    mpiexec = mpiexec_of(arguments.build.resolve())
    if not shutil.which(mpiexec):
        print(f"threads_against_processes.py: {mpiexec} is not there (Debian's openmpi-bin has it); "
              "going on with threads alone", file=sys.stderr)
        return commands
    processes = program("processes")
    if processes:
        commands["processes"] = [mpiexec, "-n", str(arguments.ranks), processes, *chosen]
    else:
        print("threads_against_processes.py: going on with threads alone", file=sys.stderr)
    return commands


def main(words=None):
    arguments = arguments_of(words)
    commands = programs_of(arguments)
    if arguments.out:
        report.claim(arguments.out, __file__)
    rounds, context, status = [], {}, 0
    try:
        for number in range(arguments.rounds):
            order = list(commands) if number % 2 == 0 else list(reversed(commands))
            found = {}
            for which in order:
                of_program, found[which] = measure(which, commands[which])
                if which == "threads" and not context:
                    context = of_program
            rounds.append(found)
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
    except (Failed, KeyboardInterrupt) as problem:
        print(f"threads_against_processes.py: {problem or 'stopped'}\n"
              f"{len(rounds)} whole rounds were measured", file=sys.stderr)
        status = 1
    if not rounds:
        if arguments.out:
            report.leave(arguments.out)
        return status
    entries = compared_all(rounds)
    whole = [entry for entry in entries if "error_message" not in entry]
    print(f"{arguments.ranks} ranks, {len(rounds)} rounds\n{table(whole)}")
    for entry in entries:
        if entry not in whole:
            print(f"threads_against_processes.py: {entry['name']}: {entry['error_message']}",
                  file=sys.stderr)
            status = 1
    if arguments.out:
        context.update(executable=Path(__file__).name, ranks=str(arguments.ranks),
                       rounds=str(len(rounds)), samples_a_round=str(SAMPLES))
        report.write(arguments.out, context, entries)
    return status


if __name__ == "__main__":
    sys.exit(main())
