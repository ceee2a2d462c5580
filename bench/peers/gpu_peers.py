#!/usr/bin/env python3
"""Linear layers of ours against PyTorch on one GPU, in turns.

usage: gpu_peers.py [--build FOLDER] [--python PYTHON] [--only TEXT] [--rounds N] [--block SECONDS]
                    [--seconds N] [--out FILE]

Contenders are PyTorch as it comes, torch.compile with max-autotune, ours, and ours in CUDA graphs. Each
is a job of its own with the same numbers. Ours works out by plain loops in double what is exact at 256
places of each result; who differs there is not timed. Then they sleep until their turns: in every round
each has one block of calls, in random order. A block counts as its wall time, from an idle device to an
idle device, over its calls. Prints tables of ours, and of ours in graphs, against each of PyTorch's.

FILE is JSON as support/driver.py writes it, anew after each problem. --seconds ends the run: no problem
begins afterwards, and who is not ready by then is left out. Since torch.compile searches for a minute or
more, problems of one dtype and width are then run with PyTorch as it comes first, and after them with
torch.compile, as many as time is left for. Without PyTorch ours are timed alone. Without a GPU the exit
code is 77.
"""

import math
import shutil
import sys
import tempfile
import time

from contender import HERE, chosen_of, compete, driver, parser_of, problem_of

RESULTS = ["y", "grad.x", "grad.weight", "grad.bias"]
MODES = ["forward", "training"]
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
    """What compete() takes; ours first, since they write what is exact."""
    ours, script = str(arguments.build / "peer_gpu"), str(HERE / "gpu_torch_peer.py")
    commands = {who: [ours, how, *words, folder] for who, how in OURS.items()}
    for who in peers:
        commands[who] = [str(arguments.python), script, PYTORCH[who], *words, folder]
    return {who: (command, RESULTS, MODES) for who, command in commands.items()}


def main(words=None):
    parser = parser_of(__doc__, "build/gpu/programs", 9, 0.05)
    parser.add_argument("--seconds", type=driver.above_zero, default=math.inf,
                        help="no problem begins later")
    arguments = parser.parse_args(words)
    chosen = chosen_of(problems(), arguments.only)
    if not shutil.which("nvidia-smi"):
        driver.complain("no NVIDIA GPU with a driver is to be seen here: run it on a machine that has one")
        return 77
    if not (arguments.build / "peer_gpu").exists():
        driver.leave(f"{arguments.build / 'peer_gpu'} is not there; `./dev gpu build` builds it")
    torch_problem = problem_of(arguments.python, "import torch; torch.zeros(1).cuda()")
    if torch_problem:
        print(f"left out: PyTorch: {torch_problem}", file=sys.stderr)
    report = driver.Report(arguments.out, arguments.rounds)
    until = time.monotonic() + arguments.seconds
    for name, words_of_problem, peers in jobs_of(chosen, not torch_problem,
                                                 arguments.seconds < math.inf):
        if time.monotonic() > until:
            driver.complain(f"{arguments.seconds:.0f} s are over: '{name}' and those behind it were not "
                            "measured")
            break
        with tempfile.TemporaryDirectory(prefix="gpu-peers-") as folder:
            compete(report, name, contenders_of(arguments, words_of_problem, folder, peers), arguments,
                    PAUSE, ready_by=until, needed="ours")
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
