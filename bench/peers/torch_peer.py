#!/usr/bin/env python3
"""PyTorch as a contender; see turns.hpp for what it reads and prints, results.hpp for the folder.

usage: torch_peer.py HOW DTYPE FOLDER

HOW    threads         one process with two threads
       prepacked       the same, forward only, with weights that oneDNN has packed
       channels_last   the same as threads, with images as [batch, height, width, channel]
       gloo            two processes of one thread each: ColwiseParallel, then RowwiseParallel
DTYPE  float or bf16
"""

import os
import subprocess
import sys
import warnings
from pathlib import Path

from turns import require_difference, take_turns, timed_by_call

RANKS = 2
THREADS = 1 if sys.argv[1:2] == ["gloo"] else 2
os.environ["OMP_NUM_THREADS"] = str(THREADS)

try:
    import numpy
    import torch
    from torch import nn
except ImportError as problem:
    sys.exit(f"torch_peer.py: {problem} in {sys.executable}; bench/peers/get_peers sets up a Python that "
             "has PyTorch and NumPy")


def load(folder, name, dtype):
    return torch.from_numpy(numpy.load(folder / f"{name}.npy")).to(dtype)


def make_model(folder, dtype):
    """The layers that the folder's parameters belong to, with ReLU between them."""
    layers = []
    for number in sorted(int(path.name.split(".")[0]) for path in folder.glob("[0-9]*.weight.npy")):
        weight = load(folder, f"{number}.weight", dtype)
        if weight.dim() == 2:
            layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=dtype)
        else:
            layer = nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1, dtype=dtype)
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.bias.copy_(load(folder, f"{number}.bias", dtype))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def require_exact(folder, name, got, dtype, speaks):
    exact = load(folder, name, torch.float64)
    got = got.full_tensor() if hasattr(got, "full_tensor") else got
    difference = float((got.to(torch.float64) - exact).norm() / exact.norm())
    require_difference(name, difference, dtype != torch.float32, 0.0, speaks)


def wait_for(y):
    """An output's sum over ranks may still be under way; whoever reads it waits, as a loss does."""
    if hasattr(y, "wait"):
        y.wait()


def start_other_ranks(meeting):
    return [subprocess.Popen([sys.executable, __file__, *sys.argv[1:]], stdin=subprocess.DEVNULL,
                             env=dict(os.environ, PEER_RANK=str(rank), PEER_MEETING=meeting))
            for rank in range(1, RANKS)]


class Gloo:
    """This process as one of two ranks; the first one has started the other."""

    def __init__(self, folder):
        import torch.distributed as dist

        self.dist = dist
        self.rank = int(os.environ.get("PEER_RANK", 0))
        self.others = []
        meeting = os.environ.get("PEER_MEETING")
        if self.rank == 0:
            meeting = f"{folder}/meeting-{os.getpid()}"
            self.others = start_other_ranks(meeting)
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=self.rank,
                                world_size=RANKS)

    def split(self, model):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                       parallelize_module)

        return parallelize_module(model, init_device_mesh("cpu", (RANKS,)),
                                  {"0": ColwiseParallel(), "2": RowwiseParallel()})

    def share(self, turn):
        """The first rank's turn, on all; who waits for it sleeps."""
        message = torch.tensor(turn)
        self.dist.broadcast(message, 0)
        return message.tolist()

    def end(self):
        self.dist.destroy_process_group()
        for other in self.others:
            other.wait()


class Alone:
    rank = 0

    def split(self, model):
        return model

    def share(self, turn):
        return turn

    def end(self):
        pass


def main(how, dtype_name, folder):
    folder = Path(folder)
    dtype = {"float": torch.float32, "bf16": torch.bfloat16}[dtype_name]
    torch.set_num_threads(THREADS)
    ranks = Gloo(folder) if how == "gloo" else Alone()
    speaks = ranks.rank == 0
    if speaks:
        of_onednn = [line.split(" v")[1].split()[0]
                     for line in torch.__config__.show().splitlines() if "MKL-DNN v" in line]
        print(f"version PyTorch {torch.__version__}")
        print(f"version oneDNN_of_PyTorch {of_onednn[0] if of_onednn else 'none'}")

    x, dy = load(folder, "x", dtype), load(folder, "dy", dtype)
    model = make_model(folder, dtype)
    if how == "channels_last":
        x, dy, model = (each.to(memory_format=torch.channels_last) for each in (x, dy, model))
    if how == "prepacked":
        from torch.utils import mkldnn

        warnings.filterwarnings("ignore", category=FutureWarning)
        packed = mkldnn.to_mkldnn(model.eval(), dtype)
    model = ranks.split(model)

    # Split tensors take twice as long in inference mode.
    without_gradients = torch.no_grad if how == "gloo" else torch.inference_mode

    def forward():
        with without_gradients():
            if how == "prepacked":
                return packed(x.to_mkldnn()).to_dense(dtype)
            y = model(x)
            wait_for(y)
            return y

    def train():
        model.zero_grad(set_to_none=True)
        y = model(x)
        wait_for(y)
        y.backward(dy)
        return y

    require_exact(folder, "y", forward(), dtype, speaks)
    if how != "prepacked":
        require_exact(folder, "y", train().detach(), dtype, speaks)
        for name, parameter in model.named_parameters():
            require_exact(folder, f"grad.{name}", parameter.grad, dtype, speaks)

    take_turns(timed_by_call(forward, train), ranks.share, speaks)
    ranks.end()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
