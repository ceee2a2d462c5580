#!/usr/bin/env python3
"""PyTorch as a contender on a GPU; see turns.hpp for what it reads and prints.

usage: gpu_torch_peer.py eager|compile expand|contract bf16|fp16|float ROWS IN OUT FOLDER

`compile` is torch.compile with max-autotune, which launches CUDA graphs. They read the input where it
lies; there remains a copy of the gradient of the output in every call, since PyTorch takes no such word
about it. Weights, input and gradient are those of bench/gpu/uniform.hpp, and FOLDER holds what is exact at
some places of each result. Times are wall time from an idle device to an idle device, around a block of
calls.
"""

import math
import sys
import time
from pathlib import Path

from turns import require_difference, take_turns

MASK = 0xFFFFFFFF
TENSORS = {"x": 1, "dy": 2, "weight": 3, "bias": 4}


def mixed(number):
    """32 bits that look random, as in uniform.hpp; of a whole number or a tensor of them."""
    h = (number & MASK) * 0x9E3779B1 & MASK
    h = h ^ (h >> 15)
    h = h * 0x85EBCA77 & MASK
    h = h ^ (h >> 13)
    h = h * 0xC2B2AE3D & MASK
    return h ^ (h >> 16)


def uniform_bits(tensor, i):
    """24 bits of element i; it is these times 2^-23, less 1."""
    return mixed(i + mixed(tensor + 1)) >> 8


def read_samples(file):
    """[(place, exact)]"""
    pairs = [line.split() for line in file.read_text().splitlines()]
    return [(int(place), float(exact)) for place, exact in pairs]


def difference(got, exact):
    return math.sqrt(sum((g - e) ** 2 for g, e in zip(got, exact)) / sum(e * e for e in exact))


def require_exact(folder, name, numbers_at, dtype):
    """`numbers_at(places)` gives what was computed there."""
    places, exact = zip(*read_samples(folder / f"{name}.txt"))
    require_difference(name, difference(numbers_at(list(places)), exact), dtype != "float", 1e-4)


class Layer:
    """The layer by PyTorch, with its numbers."""

    def __init__(self, how, kind, dtype, rows, ins, outs):
        import torch

        self.torch = torch
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "float": torch.float32}[dtype]
        linear = torch.nn.Linear(ins, outs, device="meta", dtype=self.dtype)
        linear = linear.to_empty(device="cuda")
        with torch.no_grad():
            linear.weight.copy_(self.numbers("weight", outs, ins))
            linear.bias.copy_(self.numbers("bias", outs))
        self.linear = linear
        self.x = self.numbers("x", rows, ins).requires_grad_()
        self.dy = self.numbers("dy", rows, outs)
        model = torch.nn.Sequential(linear, torch.nn.ReLU()) if kind == "expand" else linear
        self.compiled = how == "compile"
        if self.compiled:
            import torch._dynamo

            torch._dynamo.mark_static_address(self.x)
        self.model = torch.compile(model, mode="max-autotune") if self.compiled else model

    def numbers(self, tensor, *shape):
        torch = self.torch
        flat = torch.empty(math.prod(shape), dtype=self.dtype, device="cuda")
        for part, first in zip(flat.split(1 << 26), range(0, flat.numel(), 1 << 26)):
            i = torch.arange(first, first + part.numel(), device="cuda")
            part.copy_(uniform_bits(TENSORS[tensor], i).to(torch.float32) * 2.0 ** -23 - 1)
        return flat.view(shape)

    def begin(self):
        if self.compiled:  # what the last call returned is not needed any more
            self.torch.compiler.cudagraph_mark_step_begin()

    def forward(self):
        self.begin()
        with self.torch.no_grad():
            return self.model(self.x)

    def train(self):
        self.begin()
        self.x.grad = self.linear.weight.grad = self.linear.bias.grad = None
        y = self.model(self.x)
        y.backward(self.dy)
        return y

    def results(self):
        """Of training, and y of forward under its own name."""
        y = self.train().detach()
        return {"y": y, "grad.x": self.x.grad, "grad.weight": self.linear.weight.grad,
                "grad.bias": self.linear.bias.grad}

    def take(self, tensor, places):
        return tensor.flatten()[self.torch.tensor(places, device="cuda")].double().tolist()


def main(how, kind, dtype, rows, ins, outs, folder):
    layer = Layer(how, kind, dtype, int(rows), int(ins), int(outs))
    print(f"version PyTorch {layer.torch.__version__}")
    forward = layer.forward()
    require_exact(Path(folder), "y", lambda places: layer.take(forward, places), dtype)
    for _ in range(3):  # a compiled one records its graphs in the first calls
        results = layer.results()
    for name, tensor in results.items():
        require_exact(Path(folder), name, lambda places: layer.take(tensor, places), dtype)
    del forward, results, tensor

    def block(training, calls):
        layer.torch.cuda.synchronize()
        began = time.perf_counter_ns()
        for _ in range(calls):
            layer.train() if training else layer.forward()
        layer.torch.cuda.synchronize()
        return [(time.perf_counter_ns() - began) // calls] * calls

    take_turns(block)


if __name__ == "__main__":
    if len(sys.argv) != 8:
        sys.exit(__doc__)
    main(*sys.argv[1:])
