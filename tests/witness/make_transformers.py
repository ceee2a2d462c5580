#!/usr/bin/env python3
"""Makes values/transformers.safetensors: what transformers computes, all in F64. Needs torch, transformers, safetensors."""

import pathlib

import torch
import transformers
from safetensors.torch import save_file

from make_witness import made


def gpt2():
    """A GPT-2 of 2 blocks of width 12, 6 heads, 13 tokens, its table tied. Parameter i, in the order of
    `order`, is made(30 + i) / 2; weights are [out, in]. ids: i^2 mod 13 of [2, 11]; the label of a row is
    the id of the next row, and -100 in rows 3 and 10. `gradient i` is that of parameter i."""
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=13, n_positions=11, n_embd=12, n_layer=2, n_head=6, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, attn_implementation="eager")).double()
    inner = model.transformer
    order = [(inner.wte.weight, None), (inner.wpe.weight, None)]
    for block in inner.h:
        order += [(block.ln_1.weight, None), (block.ln_1.bias, None)]
        for k in range(3):
            order += [(block.attn.c_attn.weight, k), (block.attn.c_attn.bias, k)]
        order += [(block.attn.c_proj.weight, 0), (block.attn.c_proj.bias, None)]
        order += [(block.ln_2.weight, None), (block.ln_2.bias, None)]
        for layer in (block.mlp.c_fc, block.mlp.c_proj):
            order += [(layer.weight, 0), (layer.bias, None)]
    order += [(inner.ln_f.weight, None), (inner.ln_f.bias, None)]

    def ours(tensor, part):
        """The part as [out, in]: Conv1D of transformers holds [in, out], and q, k, v side by side."""
        if part is None:
            return tensor
        size = 12 if tensor.shape[-1] == 36 else tensor.shape[-1]
        return tensor[..., size * part:size * (part + 1)].T if tensor.dim() == 2 else tensor[size * part:size * (part + 1)]

    with torch.no_grad():
        for i, (parameter, part) in enumerate(order):
            view = ours(parameter, part)
            view.copy_(made(30 + i, *view.shape) / 2)
    ids = (torch.arange(22) ** 2 % 13).reshape(2, 11)
    labels = torch.arange(1, 23) ** 2 % 13
    labels[3] = labels[10] = -100
    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(22, 13), labels)
    loss.backward()
    return {"logits": logits, "loss": loss} | {
        f"gradient {i}": ours(p.grad, part) for i, (p, part) in enumerate(order)}


if __name__ == "__main__":
    tensors = {f"gpt2/{name}": t.detach().contiguous().clone() for name, t in gpt2().items()}
    path = pathlib.Path(__file__).parent / "values" / "transformers.safetensors"
    save_file(tensors, path, {"made_with": f"PyTorch {torch.__version__}, transformers {transformers.__version__}"})
