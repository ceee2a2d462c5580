#!/usr/bin/env python3
"""Ranks that are threads against ranks that are processes of MPI, in turns.

usage: threads_against_processes.py BUILD_FOLDER [RANKS] [ROUNDS]

Runs bench_collectives_threads and, through mpiexec, bench_collectives_processes as many times as
there are rounds, each in processes of its own, and changes their order in every second round. Prints
for each measurement the median time on threads and on processes, in microseconds, with the 10th and
90th percentile, and how many times as fast threads are: the median of the ratios of each round.
MPI_Allreduce stands against our all_reduce on processes.
"""
import os
import statistics
import subprocess
import sys


def measure(command):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1")
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    lines = [line.split() for line in output.stdout.splitlines()]
    return {(name, int(size)): float(seconds) for name, size, seconds in lines}


def quantiles(values):
    ordered = sorted(values)
    at = lambda part: ordered[round(part * (len(ordered) - 1))]
    return statistics.median(ordered), at(0.1), at(0.9)


def in_words(seconds):
    return "%10.2f [%10.2f %10.2f]" % tuple(1e6 * value for value in quantiles(seconds))


def main(build, ranks="2", rounds="11"):
    programs = {
        "threads": [f"{build}/bench/bench_collectives_threads", ranks],
        "processes": ["mpiexec", "-n", ranks, f"{build}/bench/bench_collectives_processes"],
    }
    seen = []
    for number in range(int(rounds)):
        order = list(programs) if number % 2 == 0 else list(reversed(programs))
        seen.append({which: measure(programs[which]) for which in order})

    def column(which, key):
        return [one[which][key] for one in seen]

    def show(name, size, first, second):
        ratio = quantiles([b / a for a, b in zip(first, second)])
        print("%-45s %9d %s %s   %6.2f [%.2f %.2f]" %
              (name, size, in_words(first), in_words(second), *ratio), flush=True)

    print(f"{ranks} ranks, {rounds} rounds; microseconds a call [10 % 90 %]")
    print("%-45s %9s %34s %34s   times as fast" %
          ("", "bytes/rows", "threads", "processes"))
    for name, size in seen[0]["threads"]:
        show(name, size, column("threads", (name, size)), column("processes", (name, size)))
    print("\n%-45s %9s %34s %34s   times as fast" %
          ("on processes", "bytes", "all_reduce", "MPI_Allreduce"))
    for name, size in seen[0]["processes"]:
        if name == "MPI_Allreduce":
            show("all_reduce", size, column("processes", ("all_reduce", size)),
                 column("processes", (name, size)))


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
