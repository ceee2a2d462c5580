#!/usr/bin/env python3
"""Ranks that are threads against ranks that are processes of MPI, in turns.

usage: threads_against_processes.py [--build FOLDER] [--ranks N] [--rounds N] [--filter REGEX]
                                    [--out FILE] [--quick]

Runs bench_collectives_threads and, through mpiexec, bench_collectives_processes once a round, each in
processes of its own, and changes their order in every second round. What counts of a program in a
round is its median; what counts of the two is the ratio of the same round. Prints tables of both, with
algorithm and bus bandwidth, which bandwidth.hpp explains; and, where MPI is called by hand too, of ours
on processes against it. Without MPI threads are measured alone. A comparison that one program found
wrong in some round has no figures; FILE says why, and the exit code is 1.

A sample repeats a short call, with barriers only around all of its calls. An MPI process may go on to
the next broadcast, gather, scatter or send before the others are done with this one; threads meet in
each. So what those four take is throughput, and no latency of a single call.

FILE is JSON as Google Benchmark writes it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import driver  # noqa: E402
from driver import tables  # noqa: E402

SAMPLES = 3  # of a program in a round
PATIENCE = 900  # seconds that a program may take for them
ENVIRONMENT = {**driver.MPI_ENVIRONMENT, "OMPI_MCA_rmaps_base_oversubscribe": "1"}


class Failed(Exception):
    """A program did not measure; the text says which and why."""


def read(written):
    """{comparison: {candidate: {counter: value}}, or why it failed} of what a program wrote, all in
    its order."""
    return {tables.name_of(benchmark): benchmark.get("error_message", "failed")
            if benchmark.get("error_occurred") else tables.counters_of(benchmark)
            for benchmark in written["benchmarks"]}


def measure(name, command):
    """(context, comparisons) of one program's turn."""
    with tempfile.TemporaryDirectory(prefix="threads-processes-") as folder:
        file = Path(folder) / "report.json"
        try:
            done = subprocess.run([*command, f"--rounds={SAMPLES}", f"--benchmark_out={file}"],
                                  env=dict(os.environ, **ENVIRONMENT), capture_output=True,
                                  text=True, errors="replace", timeout=PATIENCE)
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise Failed(f"{name}: {problem}") from None
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
    also = {}
    for candidate, times in seconds.items():
        also[candidate] = dict(traffic)
        if traffic:
            median = driver.spread(times)[0]
            also[candidate]["algorithm GB/s"] = 1e-9 * traffic["bytes"] / median
            also[candidate]["bus GB/s"] = 1e-9 * traffic["least bytes"] / median
    return driver.compared(name, seconds, also)


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
            entries.append(driver.failed(name, "; ".join(f"bench_collectives_{which}: {why}"
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


def programs_of(arguments):
    """The commands by name: without that of processes where MPI is missing. Ends with 2 where
    something was not built."""
    chosen = [f"--benchmark_filter={arguments.filter.pattern}"] if arguments.filter else []
    chosen += ["--quick"] if arguments.quick else []
    mpiexec = driver.mpiexec_of(arguments.build.resolve())
    skipped = arguments.build / "skipped.txt"
    starts = {"threads": lambda program: [program, f"--ranks={arguments.ranks}"],
              "processes": lambda program: [mpiexec, "-n", str(arguments.ranks), program]}
    commands = {}
    for which, start in starts.items():
        target = f"bench_collectives_{which}"
        program = arguments.build / "bench" / target
        if program.exists() and (which == "threads" or shutil.which(mpiexec)):
            commands[which] = [*start(str(program)), *chosen]
        elif program.exists():
            driver.complain(f"{mpiexec} is not there (Debian's openmpi-bin has it)")
        elif skipped.exists() and f"{target}:" in skipped.read_text():
            driver.complain(f"{target} was left out of the build; {skipped} says what it needs")
        else:
            driver.leave(f"{program} is not there; cmake --build {arguments.build} --target {target} "
                         "builds it")
    if "threads" not in commands:
        sys.exit(2)
    if len(commands) == 1:
        driver.complain("going on with threads alone")
    return commands


def main(words=None):
    parser = driver.parser_of(__doc__, 7)
    parser.add_argument("--build", type=Path, default=driver.TREE / "build/release",
                        help="the build folder in which the target `benchmarks` was built")
    parser.add_argument("--ranks", type=driver.at_least_one, default=2)
    parser.add_argument("--filter", type=driver.pattern, metavar="REGEX",
                        help="comparisons whose name has this, such as '^all_reduce' or '64 KiB'")
    parser.add_argument("--quick", action="store_true",
                        help="for a look in passing: one round, of 64 KiB and the barrier alone")
    arguments = parser.parse_args(words)
    if arguments.quick:
        arguments.rounds = 1
    commands = programs_of(arguments)
    report = driver.Report(arguments.out, arguments.rounds)
    rounds, status = [], 0
    try:
        for number in range(arguments.rounds):
            order = list(commands) if number % 2 == 0 else list(reversed(commands))
            found = {}
            for which in order:
                context, found[which] = measure(which, commands[which])
                if which == "threads":
                    report.context.update(context)
            rounds.append(found)
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
    except (Failed, KeyboardInterrupt) as problem:
        driver.complain(f"{problem or 'stopped'}\n{len(rounds)} whole rounds were measured")
        status = 1
    if rounds:
        report.context.update(executable=Path(__file__).name, ranks=str(arguments.ranks),
                              rounds=str(len(rounds)), samples_a_round=str(SAMPLES))
        report.add(compared_all(rounds))
    return report.end() or status


if __name__ == "__main__":
    sys.exit(main())
