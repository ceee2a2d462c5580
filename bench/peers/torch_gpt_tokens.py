#!/usr/bin/env python3
"""The next token of texts by a GPT-2 in PyTorch, whose keys and values are in memory that was taken
beforehand, as a contender; see gpt_tokens.cpp.

usage: torch_gpt_tokens.py float|bf16 THREADS next|whole FOLDER SEQUENCES
"""

import sys
from pathlib import Path

from torch_gpt import Block, Folder, Gpt, functional, load, torch
from turns import require_difference, take_turns, timed_by_call

HEADS, PIECES = 12, 8


class Cached(Block):
    """Tokens see those before them, whose keys and values are kept."""

    def forward(self, x):
        q, k, v = (each.unflatten(2, (HEADS, -1)).transpose(1, 2)
                   for each in self.heads(self.norm1(x)).chunk(3, dim=2))
        end = self.begin + q.shape[2]
        for kept, new in zip(self.kept, (k, v)):
            kept[:, :, self.begin:end] = new
        k, v = (kept[:, :, :end] for kept in self.kept)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


def texts(ids, sequences):
    """What is read before, [sequence, token], and the next token of each."""
    pieces = ids[:-sequences].view(PIECES, sequences, -1)
    return pieces.transpose(0, 1).flatten(1), ids[-sequences:].unsqueeze(1)


def main(dtype, threads, what, folder, sequences):
    folder, sequences = Path(folder), int(sequences)
    torch.set_num_threads(int(threads))
    print(f"version PyTorch {torch.__version__}")
    is_short = dtype == "bf16"
    read, following = texts(load(folder, "ids").to(torch.int64), sequences)
    blocks = len(list(folder.glob("4.*.0.0.weight.npy")))
    model = Gpt(Folder(folder), 0)
    model.blocks = torch.nn.Sequential(*(Cached(Folder(folder), f"4.{i}") for i in range(blocks)))
    model = model.to(torch.bfloat16 if is_short else torch.float).eval()
    weight = model.tokens.weight
    for block in model.blocks:
        block.kept = torch.zeros(2, sequences, HEADS, read.shape[1] + 1, weight.shape[1] // HEADS,
                                 dtype=weight.dtype)

    def logits_of(ids, begin):
        for block in model.blocks:
            block.begin = begin
        x = model.tokens(ids) + model.positions.weight[begin:begin + ids.shape[1]]
        return functional.linear(model.norm(model.blocks(x))[:, -1], weight)

    whole = torch.cat((read, following), 1)

    def step():
        with torch.inference_mode():
            return logits_of(whole, 0) if what == "whole" else logits_of(following, read.shape[1])

    with torch.inference_mode():
        logits_of(read, 0)
    exact = load(folder, "y")
    require_difference("y", float((step().float() - exact).norm() / exact.norm()), False,
                       1 / 32 if is_short else 1e-5)
    take_turns(timed_by_call(step, step))


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
