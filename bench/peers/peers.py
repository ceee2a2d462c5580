#!/usr/bin/env python3
"""Ours against PyTorch and against what is written by hand, in turns, on the same two cores.

usage: peers.py [--build FOLDER] [--python PYTHON] [--output NAME] [--only TEXT] [--rounds N]
                [--block SECONDS]

Each contender is a job of its own. It loads the same weights, input and gradient, must give the
results that the problem holds, and then sleeps until its turn. In every round each has one block of
calls, in random order, and nobody else works meanwhile. What counts of a block is its median call;
what counts of two contenders is the ratio of their blocks in the same round.

Writes NAME.md and NAME.json, anew after each problem; NAME is date and time in build/peers if it is
not given. Without PyTorch or MPI it says so and goes on with the others. README.md beside this file
has more.
"""

import argparse
import datetime
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from contender import Contender, Failed, take_turns

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
sys.path.insert(0, str(TREE / "bench/support"))
from report import processor  # noqa: E402

PAUSE = 0.04  # seconds after each block, in which OpenMP's threads go from spinning to sleep
MPI_OPTIONS = ["-n", "2", "--bind-to", "none"]  # on the CPUs of the driver, as all others
# OpenBLAS's threads spin for 2^26 ticks of the CPU's clock before they sleep if they are not told
# otherwise; 2^22 are some milliseconds.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OPENBLAS_THREAD_TIMEOUT": "22"}
# What a user has set for threads, or for the kernels that oneDNN, MKL or OpenBLAS chooses, would bend
# only the contenders that have this library; and oneDNN's logs would mix with the lines of turns.hpp.
SETTINGS = ("OMP_", "GOMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_", "ATEN_")

PROBLEMS = {
    "perceptron": [(f"{rows} rows", [str(rows)]) for rows in (16, 128, 512)],
    "convolutions": [(f"{channels} channels, {extent}x{extent}", ["4", str(channels), str(extent)])
                     for channels, extent in ((64, 56), (256, 14))],
}
TITLES = {
    "perceptron": "Perceptron 1024 -> 4096 -> 1024 with ReLU",
    "convolutions": "Three 3x3 convolutions with ReLU between them, 4 images",
}
DTYPES = ["float", "bf16"]
MODES = {"forward": "forward", "training": "with backward"}


def contenders_of(kind, dtype, folder, build, python, mpiexec):
    """(name, command, modes) of each; the names that begin with `ours` are what others stand over."""
    def ours(program, plan):
        return [str(build / program), plan, dtype, str(folder)]

    def torch(how):
        return [str(python), str(HERE / "torch_peer.py"), how, dtype, str(folder)]

    def processes(command):
        return [mpiexec, *MPI_OPTIONS, *command]

    both, forward = list(MODES), ["forward"]
    if kind == "perceptron":
        listed = [("ours, threads", ours("peer_threads", "mlp"), both),
                  ("ours, processes", processes(ours("peer_processes", "mlp")), both)]
        if dtype == "float":  # MPI and OpenBLAS have no bf16
            def by_hand(program):
                return [str(build / program), str(folder)]

            listed += [("oneDNN and MPI by hand", processes(by_hand("peer_mpi_by_hand")), both),
                       ("oneDNN, 2 threads", by_hand("peer_onednn_threads"), both),
                       ("OpenBLAS, 2 threads", by_hand("peer_openblas_threads"), both)]
        return listed + [("PyTorch, 2 threads", torch("threads"), both),
                         ("PyTorch, 2 threads, prepacked", torch("prepacked"), forward),
                         ("PyTorch, 2 processes, gloo", torch("gloo"), both)]
    return [("ours by output, threads", ours("peer_threads", "output"), both),
            ("ours by height, threads", ours("peer_threads", "height"), both),
            ("PyTorch, 2 threads", torch("threads"), both),
            ("PyTorch, 2 threads, channels last", torch("channels_last"), both),
            ("PyTorch, 2 threads, prepacked", torch("prepacked"), forward)]


def results_of(folder, modes):
    """The results of a problem that a contender with these modes has to give."""
    gradients = sorted(path.name.removesuffix(".npy") for path in folder.glob("grad.*.npy"))
    return ["y", *(gradients if "training" in modes else [])]


def missing_of(command, mpiexec, torch_problem):
    """Why this contender cannot be there, or nothing."""
    if "torch_peer.py" in " ".join(command):
        return torch_problem
    program = Path(command[0])
    if command[0] == mpiexec:
        if not shutil.which(mpiexec):
            return f"{mpiexec} is not there; openmpi-bin has it"
        program = Path(command[1 + len(MPI_OPTIONS)])
    if not program.exists():
        return f"{program.name} was not built; the build folder's skipped.txt says what it needs"
    return None


def problem_of_torch(python):
    """Why PyTorch cannot be called, or nothing."""
    how = "bench/peers/get_torch gets it (3 GB), or --python names a Python that has it"
    if not Path(python).exists():
        return f"{python} is not there; {how}"
    tried = subprocess.run([python, "-c", "import torch, numpy"], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"{python} cannot import torch and numpy ({tried.stderr.strip()[-200:]}); {how}"
    return None


def mpiexec_of(build):
    """The launcher of the MPI that CMake found for the programs; `mpiexec` may be another MPI's."""
    for folder in (build, *build.parents):
        cache = folder / "CMakeCache.txt"
        if cache.exists():
            found = re.search(r"^MPIEXEC_EXECUTABLE:\w+=(/.+)$", cache.read_text(), re.MULTILINE)
            return found[1] if found else "mpiexec"
    return "mpiexec"


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


def machine(cpus):
    """What the figures depend on."""
    system = re.search(r'PRETTY_NAME="?([^"\n]*)', Path("/etc/os-release").read_text())
    return {"cpu": processor(), "cpus": cpus,
            "cpus_of_machine": os.cpu_count(), "system": system[1] if system else platform.system()}


def spread(values):
    """First quartile, median, third quartile."""
    if len(values) < 2:
        return [values[0]] * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def summary(blocks):
    """Of each contender the microseconds of a call, and its time over that of each of ours."""
    result = {}
    for name, times in blocks.items():
        over = {other: spread([a / b for a, b in zip(times, theirs)])
                for other, theirs in blocks.items() if other.startswith("ours") and other != name}
        result[name] = {"us": spread([time / 1000 for time in times]), "over": over,
                        "blocks_ns": times}
    return result


class Run:
    """All that was measured so far, and where it is written to."""

    def __init__(self, output, machine_, rounds, block):
        self.output = output
        self.data = {"date": datetime.date.today().isoformat(), "machine": machine_, "versions": {},
                     "rounds": rounds, "block_seconds": block, "load": [], "waiting": {},
                     "left_out": {}, "failed": [], "results": []}

    def add(self, kind, shape, dtype, mode, blocks, differences):
        self.data["load"].append(os.getloadavg()[0])
        self.data["results"].append({"kind": kind, "shape": shape, "dtype": dtype, "mode": mode,
                                     "differences": differences, "contenders": summary(blocks)})

    def end_of(self, contender):
        """Keeps how much a contender worked in others' turns."""
        if contender.slept > 0:
            share = contender.spun / contender.slept
            self.data["waiting"][contender.name] = max(
                share, self.data["waiting"].get(contender.name, 0))

    def write(self):
        for suffix, text in ((".json", json.dumps(self.data, indent=1) + "\n"),
                             (".md", self.markdown())):
            saving = Path(f"{self.output}{suffix}.saving")
            saving.write_text(text)
            saving.replace(f"{self.output}{suffix}")

    def markdown(self):
        data = self.data
        load = f"{min(data['load']):.1f} to {max(data['load']):.1f}" if data["load"] else "unknown"
        versions = ", ".join(f"{what.replace('_', ' ')} {text}"
                             for what, text in data["versions"].items())
        cpus = " and ".join(map(str, data["machine"]["cpus"]))
        lines = [f"On {data['date']}, CPUs {cpus} of {data['machine']['cpus_of_machine']}, "
                 f"{data['machine']['cpu']}, {data['machine']['system']}; {versions}. "
                 f"{data['rounds']} rounds; load average {load}. `[a, b]` are quartiles. \"Over\" is "
                 "the contender's time over ours in the same round: above 1, ours is faster. "
                 "\"From exact\" is the largest |got - exact| / |exact| of the tensors it gave: of y "
                 "forward, of gradients too with backward.", ""]
        for kind, title in TITLES.items():
            results = [result for result in data["results"] if result["kind"] == kind]
            if results:
                best = fastest(results)
                lines += [f"## {title}", "", *best, *([""] if best else []), *table(results), ""]
        if data["waiting"]:
            lines.append(f"Who waited used at most {100 * max(data['waiting'].values()):.1f} % of a "
                         "core.")
        lines += [f"- left out: {name}: {why}" for name, why in data["left_out"].items()]
        lines += [f"- FAILED: {text}" for text in data["failed"]]
        return "\n".join(lines).rstrip() + "\n"


def fastest(results):
    """For each measurement, the fastest of PyTorch over the fastest of ours."""
    rows = ["| | dtype | | fastest of PyTorch | fastest of ours | over ours |", "|---|---|---|---|---|---|"]
    for result in results:
        def best(begin):
            return min((of["us"][1], name) for name, of in result["contenders"].items()
                       if name.startswith(begin))[1]
        try:
            ours, torch = best("ours"), best("PyTorch")
        except ValueError:  # there is none
            continue
        first, median, third = result["contenders"][torch]["over"][ours]
        rows.append(f"| {result['shape']} | {result['dtype']} | {MODES[result['mode']]} | {torch} | "
                    f"{ours} | {median:.2f} [{first:.2f}, {third:.2f}] |")
    return rows if len(rows) > 2 else []


def from_exact(mode, differences):
    """The largest of the differences that were found of a contender in this mode."""
    return max(difference for tensor, difference in differences.items()
               if mode == "training" or not tensor.startswith("grad."))


def table(results):
    """The rows of all measurements of one kind."""
    ours = list(dict.fromkeys(name for result in results for name in result["contenders"]
                              if name.startswith("ours")))
    rows = ["| " + " | ".join(["", "dtype", "", "contender", "us a call", "from exact"]
                              + [f"over {name}" for name in ours]) + " |",
            "|" + "---|" * (6 + len(ours))]
    for result in results:
        what = [result["shape"], result["dtype"], MODES[result["mode"]]]
        for name, of in result["contenders"].items():
            first, median, third = of["us"]
            cells = [f"{median:.0f} [{first:.0f}, {third:.0f}]",
                     f"{from_exact(result['mode'], result['differences'][name]):.2g}"]
            for other in ours:
                over = of["over"].get(other)
                cells.append(f"{over[1]:.2f} [{over[0]:.2f}, {over[2]:.2f}]" if over else "")
            rows.append("| " + " | ".join([*what, name, *cells]) + " |")
    return rows


def measure(run, kind, shape, dtype, folder, arguments, torch_problem):
    """One problem by all that can be there."""
    def failed(contender, problem):
        print(f"FAILED: {problem}", file=sys.stderr, flush=True)
        run.data["failed"].append(f"{shape}, {dtype}: {problem}")

    playing, modes_of = [], {}
    try:
        for name, command, modes in contenders_of(kind, dtype, folder, arguments.build,
                                                  arguments.python, arguments.mpiexec):
            missing = missing_of(command, arguments.mpiexec, torch_problem)
            if missing:
                if name not in run.data["left_out"]:
                    print(f"left out: {name}: {missing}", file=sys.stderr, flush=True)
                run.data["left_out"][name] = missing
                continue
            try:
                contender = Contender(name, command, results_of(folder, modes), ENVIRONMENT)
            except Failed as problem:
                failed(None, problem)
                continue
            playing.append(contender)
            modes_of[name] = modes
            run.data["versions"].update(contender.versions)
        for mode in MODES:
            order = random.Random(f"{shape} {dtype} {mode}")
            able = [contender for contender in playing if mode in modes_of[contender.name]]
            blocks = take_turns(able, mode, arguments.rounds, arguments.block, PAUSE, order,
                                lambda contender, problem: (playing.remove(contender),
                                                            failed(contender, problem)))
            run.add(kind, shape, dtype, mode,
                    {contender.name: times for contender, times in blocks.items()},
                    {contender.name: contender.differences for contender in able})
            print("\n".join(table(run.data["results"][-1:])[2:]), flush=True)
    finally:
        for contender in playing:
            run.end_of(contender)
            contender.end()
    run.write()


def arguments_of_command_line():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].partition("\n\n")[0],
                                     description=__doc__.partition("\n")[0])
    parser.add_argument("--build", type=Path, default=TREE / "build/release/bench/peers",
                        help="where the target `peers` was built")
    parser.add_argument("--python", type=Path, help="a Python with torch and numpy",
                        default=os.environ.get("PEERS_PYTHON", TREE / "build/peers/venv/bin/python"))
    parser.add_argument("--output", type=Path,
                        default=TREE / f"build/peers/{datetime.datetime.now():%Y-%m-%d-%H%M%S}",
                        help="what is written, without .md and .json")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="problems whose name has this regular expression, such as '128 rows, "
                             "float' or convolutions")
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each contender")
    parser.add_argument("--block", type=float, default=0.15, help="about how many seconds one lasts")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or not arguments.block > 0:
        parser.error("--rounds and --block must be above 0")
    try:
        re.compile(arguments.only)
    except re.error as problem:
        parser.error(f"--only {arguments.only} is no regular expression: {problem}")
    return arguments


def claim(output):
    """The files to write, empty and so known to be writable."""
    files = [Path(f"{output}{suffix}") for suffix in (".md", ".json")]
    for file in files:
        if file.exists():
            sys.exit(f"peers.py: {file} is there already and is left as it is; --output names another "
                     "place")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        for file in files:
            file.touch()
    except OSError as problem:
        sys.exit(f"peers.py: {file} cannot be written: {problem.strerror}; --output names another "
                 "place")
    return files


def make_problem(program, folder, sizes):
    """Writes a problem's folder, or ends with what is wrong."""
    try:
        made = subprocess.run([program, folder, *sizes], capture_output=True, text=True,
                              errors="replace")
    except OSError as problem:
        sys.exit(f"peers.py: {program} cannot be started: {problem.strerror}; `./dev peers` builds it "
                 "anew")
    if made.returncode != 0:
        sys.exit(f"peers.py: {program} wrote no problem and ended with exit code {made.returncode}. "
                 f"It said:\n{made.stderr.strip()[-800:]}")


def main():
    arguments = arguments_of_command_line()
    chosen = [(kind, shape, sizes, dtype) for kind, shapes in PROBLEMS.items()
              for shape, sizes in shapes for dtype in DTYPES
              if re.search(arguments.only, f"{kind}, {shape}, {dtype}")]
    if not chosen:
        sys.exit(f"peers.py: no problem has '{arguments.only}' in its name; they are called "
                 f"'perceptron, 128 rows, float' and the like")
    maker = arguments.build / "peer_make_problem"
    if not maker.exists():
        sys.exit(f"peers.py: {maker} is not there; `./dev peers` builds it, where oneDNN is installed")
    cpus = two_cpus()
    if len(cpus) < 2:
        sys.exit(f"peers.py: every contender needs two CPUs, and there is only CPU {cpus[0]} to use; "
                 "taskset -p $$ tells which a shell may use")
    os.sched_setaffinity(0, cpus)  # all that this process starts has them from it
    for name in [name for name in os.environ if name.startswith(SETTINGS)]:
        del os.environ[name]
    arguments.mpiexec = mpiexec_of(arguments.build.resolve())
    torch_problem = problem_of_torch(arguments.python)
    run = Run(arguments.output, machine(cpus), arguments.rounds, arguments.block)
    files = claim(arguments.output)
    try:
        with tempfile.TemporaryDirectory(prefix="peers-") as work:
            made = set()
            for kind, shape, sizes, dtype in chosen:
                folder = Path(work) / shape.replace(" ", "_")
                if shape not in made:
                    make_problem(maker, folder, sizes)
                    made.add(shape)
                print(f"== {kind}, {shape}, {dtype}", flush=True)
                measure(run, kind, shape, dtype, folder, arguments, torch_problem)
    finally:
        for file in files:
            if file.exists() and file.stat().st_size == 0:  # nothing was measured
                file.unlink()
    waiting = {name: share for name, share in run.data["waiting"].items() if share > 0.05}
    for name, share in waiting.items():
        print(f"peers.py: {name} used {100 * share:.0f} % of a core in others' turns: these figures "
              "are not fair", file=sys.stderr)
    print(f"{arguments.output}.md")
    return 1 if run.data["failed"] or waiting else 0


if __name__ == "__main__":
    sys.exit(main())
