#!/usr/bin/env python3
"""Makes values/hugging_face/FAMILY/continuations.txt: what small models write. A line has a prompt, a space, and the
ids that transformers' greedy `generate` puts behind it, in float and without a cache of keys. The models are those of
make_transformers.py, read from their directories, and gpt2_base, a GPT-2 that is made here: its files are several, and
those of a GPT2Model, whose names have no prefix. Needs torch, transformers.

usage: make_continuations.py"""

import pathlib
import shutil

import torch
import transformers

from make_transformers import FAMILIES as CONFIGS
from make_witness import made

FOLDERS = pathlib.Path(__file__).parent / "values" / "hugging_face"
TOKENS = {"llama": 20, "mistral": 20, "phi3": 20, "qwen2": 20, "qwen3": 20,
          "gpt2": 5, "gpt2_base": 5}  # these have 11 positions, for a prompt and what follows
PROMPTS = ((1, 5, 9), (7,), (12, 0, 3, 3, 8, 2))
LEAST_LEAD = 1e-4  # of a chosen logit before the next one: float's rounding cannot turn them


def make_gpt2_base():
    """Parameter i, in transformers' order, is 2 * made(30 + i), but the last norm only normalises: so its texts differ,
    while a GPT-2 of make_transformers.py writes one token only."""
    config_type, options = CONFIGS["gpt2"]
    model = transformers.GPT2Model(config_type(**options))
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.copy_(2 * made(30 + i, *parameter.shape))
        model.ln_f.weight.fill_(1)
        model.ln_f.bias.zero_()
    folder = FOLDERS / "gpt2_base"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size="6KB")
    for file in folder.glob("*.safetensors"):
        file.chmod(0o644)


def continuation(model, prompt, tokens):
    """The greedy ids; an error if one of them is nearly as likely as another."""
    ids = torch.tensor([prompt])
    written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False,
                             use_cache=False, eos_token_id=None, pad_token_id=0, output_logits=True,
                             return_dict_in_generate=True)
    for logits in written.logits:
        first, second = logits[0].topk(2).values.tolist()
        if first - second < LEAST_LEAD:
            raise ValueError(f"behind {prompt} two logits differ by {first - second}")
    return written.sequences[0, len(prompt):].tolist()


def text_of(ids):
    return ",".join(map(str, ids))


if __name__ == "__main__":
    make_gpt2_base()
    for family, tokens in TOKENS.items():
        model = transformers.AutoModelForCausalLM.from_pretrained(FOLDERS / family, dtype=torch.float32).eval()
        lines = [f"{text_of(prompt)} {text_of(continuation(model, prompt, tokens))}\n" for prompt in PROMPTS]
        (FOLDERS / family / "continuations.txt").write_text("".join(lines))
