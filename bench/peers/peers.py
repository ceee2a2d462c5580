#!/usr/bin/env python3
"""Ours against PyTorch and against what is written by hand, in turns, on the same two cores.

usage: peers.py [--build FOLDER] [--python PYTHON] [--only TEXT] [--rounds N] [--block SECONDS]
                [--out FILE]

Each contender is a job of its own. It loads the same weights, input and gradient, must give the
results that the problem holds, and then sleeps until its turn. In every round each has one block of
calls, in random order, and nobody else works meanwhile. What counts of a block is its median call;
what counts of two contenders is the ratio of their blocks in the same round.

Prints tables, and writes FILE anew after each problem: JSON, as support/driver.py writes it. Without
PyTorch or MPI it says so and goes on with the others. README.md beside this file has more.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

from contender import HERE, chosen_of, compete, driver, parser_of, problem_of

PAUSE = 0.04  # seconds after each block, in which OpenMP's threads go from spinning to sleep
MPI_OPTIONS = ["-n", "2", "--bind-to", "none"]  # on the CPUs of the driver, as all others
# OpenBLAS's threads spin for 2^26 ticks of the CPU's clock before they sleep if they are not told
# otherwise; 2^22 are some milliseconds.
ENVIRONMENT = {**driver.MPI_ENVIRONMENT, "OPENBLAS_THREAD_TIMEOUT": "22"}
# What a user has set for threads, or for the kernels that oneDNN, MKL or OpenBLAS chooses, would bend
# only the contenders that have this library; and oneDNN's logs would mix with the lines of turns.hpp.
SETTINGS = ("OMP_", "GOMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_", "ATEN_")

MODES = ["forward", "training"]
# What shows that Python's packages for the programs whose names begin so are there.
PACKAGES = {"torch_": "import torch, numpy", "llama_": "import llama_cpp, gguf, numpy"}


class Place(namedtuple("Place", "folder build python mpiexec")):
    """Where the problem, our programs and those of others are."""

    def ours(self, program, *words):
        return [str(self.build / program), *words, str(self.folder)]

    def processes(self, *command):
        return [self.mpiexec, *MPI_OPTIONS, *self.ours(*command)]

    def python_of(self, program, *words):
        return [str(self.python), str(HERE / program), *words, str(self.folder)]


# Each gives (name, command, modes) of all who contend; the names that begin with `ours` are what others
# stand over.

def perceptrons(at, dtype, _):
    listed = [("ours, threads", at.ours("peer_threads", "mlp", dtype), MODES),
              ("ours, processes", at.processes("peer_processes", "mlp", dtype), MODES)]
    if dtype == "float":  # MPI and OpenBLAS have no bf16
        listed += [("oneDNN and MPI by hand", at.processes("peer_mpi_by_hand"), MODES),
                   ("oneDNN, 2 threads", at.ours("peer_onednn_threads"), MODES),
                   ("OpenBLAS, 2 threads", at.ours("peer_openblas_threads"), MODES)]
    return listed + [("PyTorch, 2 threads", at.python_of("torch_peer.py", "threads", dtype), MODES),
                     ("PyTorch, 2 threads, prepacked",
                      at.python_of("torch_peer.py", "prepacked", dtype), ["forward"]),
                     ("PyTorch, 2 processes, gloo", at.python_of("torch_peer.py", "gloo", dtype), MODES)]


def convolutions(at, dtype, _):
    return [("ours by output, threads", at.ours("peer_threads", "output", dtype), MODES),
            ("ours by height, threads", at.ours("peer_threads", "height", dtype), MODES),
            ("PyTorch, 2 threads", at.python_of("torch_peer.py", "threads", dtype), MODES),
            ("PyTorch, 2 threads, channels last",
             at.python_of("torch_peer.py", "channels_last", dtype), MODES),
            ("PyTorch, 2 threads, prepacked", at.python_of("torch_peer.py", "prepacked", dtype),
             ["forward"])]


def attentions(at, dtype, sizes):
    return [("ours, one thread", [*at.ours("peer_attention", dtype), *sizes], MODES),
            ("PyTorch, one thread", [*at.python_of("torch_attention.py", dtype), sizes[1]], MODES)]


def gpts(at, *_):
    return [("ours, threads", at.ours("peer_gpt", "contend"), ["step"]),
            ("PyTorch, 2 threads", at.python_of("torch_gpt.py"), ["step"])]


LLAMA = {"llama.cpp": "llama_gpt_tokens.py"}
BOTH = {"PyTorch": "torch_gpt_tokens.py", **LLAMA}


def tokens_of_gpts(at, dtype, sizes, what="next", others=BOTH):
    return [contender for threads in ("1", "2") for contender in (
        (f"ours, threads: {threads}", [*at.ours("peer_gpt_tokens", dtype, threads, what), *sizes], ["step"]),
        *((f"{name}, threads: {threads}", [*at.python_of(program, dtype, threads, what), sizes[0]], ["step"])
          for name, program in others.items()))]


# Problems of a kind as (name, sizes that its folder is made of), their dtypes, what writes one into the
# folder that follows, of the sizes behind it, and who contends.
Kind = namedtuple("Kind", "problems dtypes maker contenders")
KINDS = {
    "perceptron": Kind([(f"{rows} rows", [str(rows)]) for rows in (16, 128, 512)],
                       ["float", "bf16"], ["peer_make_problem"], perceptrons),
    "convolutions": Kind([(f"{channels} channels, {extent}x{extent}",
                           ["4", str(channels), str(extent)])
                          for channels, extent in ((64, 56), (256, 14))],
                         ["float", "bf16"], ["peer_make_problem"], convolutions),
    "attention": Kind([(f"{rows} rows, {mask}{who}", [str(rows), mask, keys])
                       for rows in (512, 1024, 2048) for mask in ("full", "causal")
                       for who, keys in (("", "8"), (", one key head", "1"))],
                      ["float", "bf16"], ["peer_attention", "make"], attentions),
    "gpt": Kind([("6 blocks, 8 x 256 tokens", [])], ["float"], ["peer_gpt", "make"], gpts),
    "tokens": Kind([(f"{sequences} x {behind}", [sequences, behind])
                    for sequences, behind in (("1", "1000"), ("8", "8"), ("8", "1000"))],
                   ["float", "bf16"], ["peer_gpt_tokens", "make"], tokens_of_gpts),
    "prompts": Kind([(f"{sequences} x {int(behind) + 1}", [sequences, behind])
                     for sequences, behind in (("16", "8"), ("1", "512"))],
                    ["float", "bf16"], ["peer_gpt_tokens", "make"],
                    lambda *problem: tokens_of_gpts(*problem, "whole")),
    "load": Kind([("1 x 9", ["1", "8"])], ["float", "bf16"], ["peer_gpt_tokens", "make_files"],
                 lambda *problem: tokens_of_gpts(*problem, "load", LLAMA)),
}


def problems():
    """[(name, kind, the sizes that its folder is made of, dtype)]"""
    return [(f"{name}, {shape}, {dtype}", name, sizes, dtype) for name, kind in KINDS.items()
            for shape, sizes in kind.problems for dtype in kind.dtypes]


def results_of(folder, modes):
    """The results of a problem that a contender with these modes has to give."""
    gradients = sorted(path.name.removesuffix(".npy") for path in folder.glob("grad.*.npy"))
    return ["y", *(gradients if "training" in modes else [])]


def missing_of(command, mpiexec, lacks):
    """Why this contender cannot be there, or nothing; `lacks` is what is wrong with PACKAGES."""
    for program in lacks:
        if str(HERE / program) in " ".join(command):
            return lacks[program]
    program = Path(command[0])
    if command[0] == mpiexec:
        if not shutil.which(mpiexec):
            return f"{mpiexec} is not there; openmpi-bin has it"
        program = Path(command[1 + len(MPI_OPTIONS)])
    if not program.exists():
        return f"{program.name} was not built; the build folder's skipped.txt says what it needs"
    return None


def two_cpus(cpus=Path("/sys/devices/system/cpu")):
    """The first two CPUs of different cores that this process may use; or the first two, if there is
    but one core."""
    allowed = sorted(os.sched_getaffinity(0))
    first_of_core = {}
    for cpu in allowed:
        try:
            core = (cpus / f"cpu{cpu}/topology/thread_siblings_list").read_text()
        except OSError:  # a machine that does not tell
            core = cpu
        first_of_core.setdefault(core, cpu)
    return (list(first_of_core.values()) if len(first_of_core) > 1 else allowed)[:2]


def make_problem(maker, folder, sizes):
    """Writes a problem's folder, or ends with what is wrong."""
    program = maker[0]
    try:
        made = subprocess.run([*maker, folder, *sizes], capture_output=True, text=True,
                              errors="replace")
    except OSError as problem:
        driver.leave(f"{program} cannot be started: {problem.strerror}; `./dev peers` builds it "
                 "anew")
    if made.returncode != 0:
        driver.leave(f"{program} wrote no problem and ended with exit code {made.returncode}. "
                 f"It said:\n{made.stderr.strip()[-800:]}")


def measure(report, problem, folder, arguments, mpiexec, lacks):
    """One problem by all that can be there. Returns who spun in others' turns, and how much."""
    name, kind, sizes, dtype = problem
    place, commands = Place(folder, arguments.build, arguments.python, mpiexec), {}
    for who, command, modes in KINDS[kind].contenders(place, dtype, sizes):
        missing = missing_of(command, mpiexec, lacks)
        if missing:
            report.context[f"left out: {who}"] = missing
        else:
            commands[who] = (command, results_of(folder, modes), modes)
    return compete(report, name, commands, arguments, PAUSE, ENVIRONMENT)


def main(words=None):
    arguments = parser_of(__doc__, "build/release/bench/peers", 15, 0.15).parse_args(words)
    chosen = chosen_of(problems(), arguments.only)
    maker = arguments.build / "peer_make_problem"
    if not maker.exists():
        driver.leave(f"{maker} is not there; `./dev peers` builds it, where oneDNN is installed")
    cpus = two_cpus()
    if len(cpus) < 2:
        driver.leave(f"every contender needs two CPUs, and there is only CPU {cpus[0]} to use; "
                     "taskset -p $$ tells which a shell may use")
    os.sched_setaffinity(0, cpus)  # all that this process starts has them from it
    for name in [name for name in os.environ if name.startswith(SETTINGS)]:
        del os.environ[name]
    lacks = {program: problem_of(arguments.python, test) for program, test in PACKAGES.items()}
    report = driver.Report(arguments.out, arguments.rounds)
    report.context["CPUs"] = " and ".join(map(str, cpus))
    mpiexec, made, spun = driver.mpiexec_of(arguments.build.resolve()), set(), {}
    with tempfile.TemporaryDirectory(prefix="peers-") as work:
        for problem in chosen:
            folder = Path(work) / "-".join(problem[1:2] + tuple(problem[2]))
            if folder not in made:
                program, *words = KINDS[problem[1]].maker
                make_problem([arguments.build / program, *words], folder, problem[2])
                made.add(folder)
            for who, share in measure(report, problem, folder, arguments, mpiexec,
                                      lacks).items():
                spun[who] = max(share, spun.get(who, 0))
    for what, why in report.context.items():
        if what.startswith("left out: "):
            print(f"{what}: {why}", file=sys.stderr)
    unfair = [who for who, share in spun.items() if share > 0.05]
    for who in unfair:
        driver.complain(f"{who} used {100 * spun[who]:.0f} % of a core in others' turns: these figures "
                        "are not fair")
    return report.end() or (1 if unfair else 0)


if __name__ == "__main__":
    sys.exit(main())
