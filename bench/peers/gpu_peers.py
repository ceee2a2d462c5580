#!/usr/bin/env python3
"""Linear layers of ours against PyTorch on one GPU, in turns.

usage: gpu_peers.py [--build FOLDER] [--python PYTHON] [--only TEXT] [--rounds N] [--block SECONDS]
                    [--seconds N] [--out FILE]

Contenders are PyTorch as it comes, torch.compile with max-autotune, ours, and ours in CUDA graphs. Each
is a job of its own with the same numbers. Ours works out by plain loops in double what is exact at 256
places of each result; who differs there is not timed. Then they sleep until their turns: in every round
each has one block of calls, in random order. A block counts as its wall time, from an idle device to an
idle device, over its calls. Prints the speed of ours, and then of ours in graphs, over that of each of
PyTorch's, as median [10 %, 90 %] of the ratios of one round.

FILE is JSON as support/report.py writes it, anew after each problem. --seconds ends the run: no problem
begins afterwards, and who is not ready by then is left out. Since torch.compile searches for a minute or
more, problems of one dtype and width are then run with PyTorch as it comes first, and after them with
torch.compile, as many as time is left for. Without PyTorch ours are timed alone. Without a GPU the exit
code is 77.
"""

import argparse
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from contender import Contender, Failed, NotReadyInTime, take_turns

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
sys.path[:0] = [str(TREE / "bench/support")]
import report  # noqa: E402

RESULTS = ["y", "grad.x", "grad.weight", "grad.bias"]
MODES = {"forward": "forward", "training": "forward and backward"}
OURS = {"ours": "plain", "ours, graph": "graph"}  # and how a contender's command line calls it
PYTORCH = {"PyTorch": "eager", "torch.compile": "compile"}
PAUSE = 0.01  # seconds between blocks
WIDTHS = [(4096, 14336), (8192, 28672), (12288, 49152)]
ROWS = [2048, 16, 256, 8192]


def problems():
    """[(name, words of a contender's command line)], those first that matter most."""
    found = []
    for dtype in ("bf16", "fp16", "float"):
        for narrow, wide in WIDTHS if dtype == "bf16" else WIDTHS[:1]:
            for rows in ROWS if dtype == "bf16" else ROWS[:2]:
                for kind, ins, outs in (("expand", narrow, wide), ("contract", wide, narrow)):
                    found.append((f"{dtype}/{kind}/{ins}->{outs}/rows:{rows}",
                                  [kind, dtype, str(rows), str(ins), str(outs)]))
    return found


def python_of():
    """The one that PEERS_PYTHON names or get_torch made, or else this one."""
    made = TREE / "build/peers/venv/bin/python"
    return Path(os.environ.get("PEERS_PYTHON") or (made if made.exists() else sys.executable))


def problem_of_torch(python):
    """Why PyTorch cannot compute on a GPU, or nothing."""
    how = "bench/peers/get_torch gets it (3 GB), or --python names a Python that has it"
    try:
        tried = subprocess.run([python, "-c", "import torch; print(torch.cuda.is_available())"],
                               capture_output=True, text=True)
    except OSError as problem:
        return f"{python} cannot be started: {problem.strerror}; {how}"
    if tried.returncode != 0:
        return f"{python} cannot import torch ({tried.stderr.strip()[-200:]}); {how}"
    if tried.stdout.strip() != "True":
        return f"the torch of {python} finds no GPU: it may be built for CPUs alone; {how}"
    return None


def jobs_of(chosen, has_torch, is_limited):
    """[(name of a problem, its words, which of PyTorch's contend)], in their order."""
    if not has_torch:
        return [(*problem, ()) for problem in chosen]
    if not is_limited:
        return [(*problem, tuple(PYTORCH)) for problem in chosen]
    alike = {}
    for name, words in chosen:
        _, dtype, _, *widths = words
        alike.setdefault((dtype, frozenset(widths)), []).append((name, words))
    return [(*problem, (peer,)) for some in alike.values() for peer in PYTORCH for problem in some]


def contenders_of(arguments, words, folder, peers):
    """{name: command}; ours first, since they write what is exact."""
    ours, script = str(arguments.build / "peer_gpu"), str(HERE / "gpu_torch_peer.py")
    commands = {who: [ours, how, *words, folder] for who, how in OURS.items()}
    for who in peers:
        commands[who] = [str(arguments.python), script, PYTORCH[who], *words, folder]
    return commands


def compared(name, blocks):
    """A comparison of each of ours that took part with all of PyTorch's."""
    seconds = {contender.name: [1e-9 * block for block in times] for contender, times in blocks.items()}
    others = {who: times for who, times in seconds.items() if who not in OURS}
    return [report.compared(name, {**others, ours: seconds[ours]}) for ours in OURS if ours in seconds]


def measure(arguments, name, words, folder, peers, until):
    """(entries, sentences about who failed, versions) of one problem."""
    playing, failures, versions, entries = [], [], {}, []

    def failed(contender, problem):
        print(f"FAILED: {name}: {problem}", file=sys.stderr, flush=True)
        failures.append(str(problem))

    try:
        for who, command in contenders_of(arguments, words, folder, peers).items():
            try:
                playing.append(Contender(who, command, RESULTS, patience=min(900, arguments.seconds),
                                         ready_by=until))
                versions.update(playing[-1].versions)
            except NotReadyInTime as problem:  # and no time is left to measure the others
                print(f"left out: {name}: {problem}", file=sys.stderr, flush=True)
                return entries, failures, versions
            except Failed as problem:
                failed(None, problem)
                if who == "ours":  # the others have nothing to compare with
                    break
        for mode, words_of_mode in MODES.items():
            blocks = take_turns(list(playing), mode, arguments.rounds, arguments.block, PAUSE,
                                random.Random(f"{name} {mode}"),
                                lambda contender, problem: (playing.remove(contender),
                                                            failed(contender, problem)))
            entries += compared(f"{name}/{words_of_mode}", blocks)
    finally:
        for contender in playing:
            contender.end()
    return entries, failures, versions


def line_of(entry):
    """For people."""
    *others, ours = entry["label"].split(" | ")
    said = f"{entry['name']}: {ours} takes {entry['real_time']:.1f} us"
    for other in others:
        middle, low, high = (entry[f"{other}: ours over it{ending}"]
                             for ending in ("", ", 10 %", ", 90 %"))
        said += f"; over {other} {middle:.3f} [{low:.3f}, {high:.3f}]"
    return said


def arguments_of(words):
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].partition("\n\n")[0],
                                     description=__doc__.partition("\n")[0])
    parser.add_argument("--build", type=Path, default=TREE / "build/gpu/programs",
                        help="where `./dev gpu build` put peer_gpu")
    parser.add_argument("--python", type=Path, default=python_of(), help="a Python with torch")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="problems whose name has this regular expression, such as 'rows:16$'")
    parser.add_argument("--rounds", type=int, default=9, help="blocks of each contender")
    parser.add_argument("--block", type=float, default=0.05, help="about how many seconds one lasts")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no problem begins later")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write JSON")
    arguments = parser.parse_args(words)
    if arguments.rounds < 1 or not arguments.block > 0 or not arguments.seconds > 0:
        parser.error("--rounds, --block and --seconds must be above 0")
    try:
        re.compile(arguments.only)
    except re.error as problem:
        parser.error(f"--only {arguments.only} is no regular expression: {problem}")
    return arguments


def main(words=None):
    arguments = arguments_of(words)
    chosen = [one for one in problems() if re.search(arguments.only, one[0])]
    if not chosen:
        sys.exit(f"gpu_peers.py: no problem has '{arguments.only}' in its name; they are called "
                 f"'{problems()[0][0]}' and the like")
    if not shutil.which("nvidia-smi"):
        print("gpu_peers.py: no NVIDIA GPU with a driver is to be seen here: run it on a machine that "
              "has one", file=sys.stderr)
        return 77
    if not (arguments.build / "peer_gpu").exists():
        sys.exit(f"gpu_peers.py: {arguments.build / 'peer_gpu'} is not there; `./dev gpu build` builds it")
    torch_problem = problem_of_torch(arguments.python)
    if torch_problem:
        print(f"left out: PyTorch: {torch_problem}", file=sys.stderr)
    if arguments.out:
        report.claim(arguments.out, __file__)
    until = time.monotonic() + arguments.seconds
    context = report.context_of(__file__, arguments.rounds)
    entries, status = [], 0
    try:
        for name, words_of_problem, peers in jobs_of(chosen, not torch_problem,
                                                     arguments.seconds < math.inf):
            if time.monotonic() > until:
                against = f" against {peers[0]}" if peers else ""
                print(f"gpu_peers.py: {arguments.seconds:.0f} s are over: '{name}'{against} and those "
                      "behind it were not measured", file=sys.stderr)
                break
            with tempfile.TemporaryDirectory(prefix="gpu-peers-") as folder:
                found, failures, versions = measure(arguments, name, words_of_problem, folder, peers,
                                                    until)
            for entry in found:
                print(line_of(entry), flush=True)
            entries += found + [report.failed(name, why) for why in failures]
            context.update(versions)
            status = 1 if failures else status
            if arguments.out:
                report.write(arguments.out, context, entries)
    except KeyboardInterrupt:
        print("gpu_peers.py: stopped", file=sys.stderr)
        status = 1
    finally:
        if arguments.out:
            report.leave(arguments.out)
    return status


if __name__ == "__main__":
    sys.exit(main())
