#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention on one thread as a contender; see attention.cpp.

usage: torch_attention.py float|bf16 FOLDER full|causal
"""

import os
import sys
from pathlib import Path

from turns import require_difference, take_turns, timed_by_call

os.environ["OMP_NUM_THREADS"] = "1"

import numpy  # noqa: E402
import torch  # noqa: E402

HEAD_SIZE = 64


def load(folder, name):
    """[rows, heads · features] of a file as [1, head, row, feature]."""
    rows = torch.from_numpy(numpy.load(folder / f"{name}.npy"))
    return rows.unflatten(1, (-1, HEAD_SIZE)).transpose(0, 1).unsqueeze(0).contiguous()


def main(dtype, folder, mask):
    folder = Path(folder)
    torch.set_num_threads(1)
    print(f"version PyTorch {torch.__version__}")
    is_short = dtype == "bf16"
    dtype = torch.bfloat16 if is_short else torch.float
    operands = {name: load(folder, name).to(dtype).requires_grad_() for name in "qkv"}
    q, k, v = operands.values()
    dy = load(folder, "dy").to(dtype)

    def attention():
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=mask == "causal", enable_gqa=k.shape != q.shape)

    def forward():
        with torch.inference_mode():
            return attention()

    def train():
        for operand in operands.values():
            operand.grad = None
        y = attention()
        y.backward(dy)
        return y.detach()

    def require_close(name, got):
        exact = load(folder, name)
        require_difference(name, float((got - exact).norm() / exact.norm()), is_short, 1e-5)

    require_close("y", forward())
    require_close("y", train())
    for name, operand in operands.items():
        require_close(f"grad.{name}", operand.grad)

    take_turns(timed_by_call(forward, train))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
