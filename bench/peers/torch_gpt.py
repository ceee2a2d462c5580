#!/usr/bin/env python3
"""A training step of the GPT in PyTorch with two threads as a contender; see gpt.cpp.

usage: torch_gpt.py FOLDER
"""

import os
import sys
from pathlib import Path

from turns import require_difference, take_turns, timed_by_call

os.environ["OMP_NUM_THREADS"] = "2"

import numpy  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

HEADS = 6


def load(folder, name):
    return torch.from_numpy(numpy.load(folder / f"{name}.npy"))


class Folder:
    """The layers that the folder's parameters belong to."""

    def __init__(self, folder):
        self.folder = folder

    def parameters(self, *names):
        """Weight and bias of several layers, one below the other."""
        return {what: nn.Parameter(torch.cat([load(self.folder, f"{name}.{what}") for name in names]))
                for what in ("weight", "bias")}

    def linear(self, *names):
        parameters = self.parameters(*names)
        layer = nn.Linear(*reversed(parameters["weight"].shape))
        layer.weight, layer.bias = parameters["weight"], parameters["bias"]
        return layer

    def norm(self, name):
        parameters = self.parameters(name)
        layer = nn.LayerNorm(parameters["weight"].shape)
        layer.weight, layer.bias = parameters["weight"], parameters["bias"]
        return layer

    def table(self, name):
        return nn.Embedding.from_pretrained(load(self.folder, f"{name}.weight"), freeze=False)


class Block(nn.Module):
    """Queries, keys and values are one product."""

    def __init__(self, folder, name):
        super().__init__()
        self.norm1 = folder.norm(f"{name}.0.0")
        self.heads = folder.linear(*(f"{name}.0.1.{i}" for i in range(3)))
        self.out = folder.linear(f"{name}.0.2")
        self.norm2 = folder.norm(f"{name}.1.0")
        self.up = folder.linear(f"{name}.1.1")
        self.down = folder.linear(f"{name}.1.3")

    def forward(self, x):
        q, k, v = (each.unflatten(2, (HEADS, -1)).transpose(1, 2)
                   for each in self.heads(self.norm1(x)).chunk(3, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, folder, blocks):
        super().__init__()
        self.tokens = folder.table("0")
        self.positions = folder.table("1")
        self.blocks = nn.Sequential(*(Block(folder, f"4.{i}") for i in range(blocks)))
        self.norm = folder.norm("5")

    def forward(self, ids):
        x = self.norm(self.blocks(self.tokens(ids) + self.positions.weight))
        return functional.linear(x, self.tokens.weight)


def main(folder):
    folder = Path(folder)
    torch.set_num_threads(2)
    print(f"version PyTorch {torch.__version__}")
    ids, labels = (load(folder, name).to(torch.int64) for name in ("ids", "labels"))
    model = Gpt(Folder(folder), len(list(folder.glob("4.*.0.0.weight.npy"))))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    exact = load(folder, "y")
    losses = torch.stack([step() for _ in exact])
    require_difference("y", float((losses - exact).norm() / exact.norm()), False, 1e-5)
    take_turns(timed_by_call(step, step))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
