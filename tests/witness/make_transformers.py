#!/usr/bin/env python3
"""Makes directories of small models as transformers writes them, values/hugging_face/FAMILY, and what
transformers computes with them, values/transformers_FAMILY.safetensors, all in F64. Needs torch,
transformers, safetensors.

usage: make_transformers.py [FAMILY...]    (all of them, if none is named)"""

import copy
import pathlib
import shutil
import sys
import tempfile
from unittest import mock

import torch
import transformers
from safetensors.torch import load_file, save_file

from make_witness import made

VALUES = pathlib.Path(__file__).parent / "values"

SHARED = {"vocab_size": 13, "attn_implementation": "eager"}
LLAMA = SHARED | {"hidden_size": 16, "intermediate_size": 10, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
                  "bos_token_id": 0, "eos_token_id": 0,
                  "pad_token_id": None}  # the table of transformers has no gradient in the row of this id
FALCON = SHARED | {"num_hidden_layers": 2, "max_position_embeddings": 32, "bos_token_id": 0, "eos_token_id": 0}
MIXTRAL = LLAMA | {"num_local_experts": 5, "num_experts_per_tok": 2, "experts_implementation": "eager"}
GPT2 = SHARED | {"n_positions": 11, "n_embd": 12, "n_layer": 2, "n_head": 6, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
                 "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
BERT = SHARED | {"hidden_size": 12, "intermediate_size": 10, "num_hidden_layers": 2, "num_attention_heads": 6,
                 "max_position_embeddings": 11, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
                 "pad_token_id": None}
VIT = {"hidden_size": 12, "intermediate_size": 10, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 10,
       "patch_size": 3, "num_channels": 2, "num_labels": 5, "attn_implementation": "eager"}
FAMILIES = {
    "gpt2": (transformers.GPT2Config, GPT2),
    "gpt2_heads": (transformers.GPT2Config, GPT2 | {"n_embd": 6}),  # of one feature
    "llama": (transformers.LlamaConfig, LLAMA | {"rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}}),
    "llama_biases": (transformers.LlamaConfig, LLAMA | {"attention_bias": True, "mlp_bias": True}),
    "mistral": (transformers.MistralConfig, LLAMA | {"sliding_window": 4}),
    "phi3": (transformers.Phi3Config, LLAMA | {"sliding_window": 4}),
    "qwen2": (transformers.Qwen2Config, LLAMA | {"tie_word_embeddings": True}),
    "qwen3": (transformers.Qwen3Config, LLAMA | {"head_dim": 4}),
    "qwen3_biases": (transformers.Qwen3Config, LLAMA | {
        "head_dim": 4, "attention_bias": True, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}),
    "qwen2_upper": (transformers.Qwen2Config, LLAMA | {
        "tie_word_embeddings": True, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 4,
        "max_window_layers": 1}),
    "qwen3_turns": (transformers.Qwen3Config, LLAMA | {
        "head_dim": 4, "num_hidden_layers": 6, "use_sliding_window": True, "sliding_window": 3,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2}),
    "gptj": (transformers.GPTJConfig, SHARED | {
        "n_positions": 11, "n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4, "bos_token_id": 0,
        "eos_token_id": 0}),
    "falcon": (transformers.FalconConfig, FALCON | {"hidden_size": 16, "num_attention_heads": 4}),
    "falcon_heads": (transformers.FalconConfig, FALCON | {
        "hidden_size": 12, "num_attention_heads": 3, "multi_query": False}),
    "falcon_grouped": (transformers.FalconConfig, FALCON | {
        "hidden_size": 24, "num_attention_heads": 6, "new_decoder_architecture": True, "num_kv_heads": 2,
        "bias": True, "tie_word_embeddings": False}),
    "bert": (transformers.BertConfig, BERT),
    "bert_heads": (transformers.BertConfig, BERT | {"hidden_size": 6}),  # of one feature
    "vit": (transformers.ViTConfig, VIT),
    "vit_heads": (transformers.ViTConfig, VIT | {"hidden_size": 8, "num_attention_heads": 8}),  # of one feature
    "mixtral": (transformers.MixtralConfig, MIXTRAL | {"sliding_window": 4}),
    # one block: with several, transformers has one balancing loss for all, and we have one for each
    "mixtral_balanced": (transformers.MixtralConfig, MIXTRAL | {
        "num_hidden_layers": 1, "output_router_logits": True, "router_aux_loss_coef": 0.5}),
}


def in_double():
    """transformers computes norms, softmax and rotations in float, whatever the model's dtype: here in double."""
    return (mock.patch.object(torch, "float32", torch.float64), mock.patch.object(torch, "float", torch.float64),
            mock.patch.object(torch.Tensor, "float", torch.Tensor.double))


def by_file(model, folder):
    """The parameters under the names, and in the parts, in which transformers writes them."""
    model.save_pretrained(folder)
    return load_file(pathlib.Path(folder) / "model.safetensors")


def of_images(model):
    """What a model gives for made(7) of [3, 2, 10, 10], and the mean loss; the labels are 3, 0 and 2."""
    output = model(made(7, 3, 2, 10, 10))
    return output, torch.nn.functional.cross_entropy(output.logits, torch.tensor([3, 0, 2]))


def of_text(model, inputs={}, mask=torch.ones(2, 11, dtype=torch.long)):
    """What a model gives for the ids i^2 mod 13 of [2, 11], and the mean loss. The label of a row is the id of the next
    row, and -100 in rows 3 and 10 and where a row is no token, which do not count."""
    ids = (torch.arange(22) ** 2 % 13).reshape(2, 11)
    labels = torch.arange(1, 23) ** 2 % 13
    labels[3] = labels[10] = -100
    labels[mask.reshape(22) == 0] = -100
    output = model(ids, **inputs)
    return output, torch.nn.functional.cross_entropy(output.logits.reshape(22, 13), labels)


def of_pairs(model):
    """As of_text, for samples of two sentences: the first lacks its last two tokens, the second its first three. The
    second sentence of each begins in column 5, and in column 7."""
    mask, column = torch.ones(2, 11, dtype=torch.long), torch.arange(11)
    mask[0, 9:] = mask[1, :3] = 0
    types = torch.stack([column >= 5, column >= 7]).long()
    return of_text(model, {"attention_mask": mask, "token_type_ids": types}, mask)


IMAGES = (transformers.AutoModelForImageClassification, of_images)
PAIRS = (transformers.AutoModelForMaskedLM, of_pairs)
KINDS = {"vit": IMAGES, "vit_heads": IMAGES, "bert": PAIRS, "bert_heads": PAIRS}


def computed(family):
    """A small model of one family. Parameter i, in transformers' order, is made(30 + i) / 2. `gradient NAME` is that of
    the loss by the parameter that files call NAME, with the balancing loss where the model has one; `loss` is without
    that, and `balancing loss` is it."""
    config_type, options = FAMILIES[family]
    kind, learn = KINDS.get(family, (transformers.AutoModelForCausalLM, of_text))
    first, second, third = in_double()
    with first, second, third:
        model = kind.from_config(config_type(**options)).double()
        with torch.no_grad():
            for i, parameter in enumerate(model.parameters()):
                parameter.copy_(made(30 + i, *parameter.shape) / 2)
        output, loss = learn(model)
        balance = getattr(output, "aux_loss", None)
        added = {} if balance is None else {"balancing loss": model.config.router_aux_loss_coef * balance}
        sum([loss, *added.values()]).backward()
    folder = VALUES / "hugging_face" / family
    shutil.rmtree(folder, ignore_errors=True)
    saved = copy.deepcopy(model).to(torch.float32)
    by_file(saved, folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    with tempfile.TemporaryDirectory() as gradients:
        return {"logits": output.logits, "loss": loss} | added | {
            f"gradient {name}": gradient for name, gradient in by_file(model, gradients).items()}


if __name__ == "__main__":
    for family in sys.argv[1:] or FAMILIES:
        tensors = {name: t.detach().contiguous().clone() for name, t in computed(family).items()}
        path = VALUES / f"transformers_{family}.safetensors"
        save_file(tensors, path,
                  {"made_with": f"PyTorch {torch.__version__}, transformers {transformers.__version__}"})
        path.chmod(0o644)
