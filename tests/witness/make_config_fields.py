#!/usr/bin/env python3
"""Makes values/config_fields.json and values/config_fields.safetensors: what transformers computes in F64 with the small
models of values/hugging_face when fields of their config.json have other values, or are not there. Needs torch,
transformers, safetensors.

The JSON has for each family the defaults of its config class, and a list of cases: fields that are set, fields that
are taken out, and `logits`: the tensor that holds them, `same` if no bit changed, or null if transformers cannot load
these weights so."""

import dataclasses
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

from make_transformers import KINDS, VALUES, in_double, of_text

EVERY = {  # of all families; None is a JSON null
    "bos_token_id": [2], "eos_token_id": [3, [1, 2]], "pad_token_id": [4], "torch_dtype": ["bfloat16"],
    "dtype": ["float16"], "use_cache": [False], "initializer_range": [0.4], "architectures": [["Other"]],
    "temperature": [0.5], "top_k": [3], "max_length": [5], "repetition_penalty": [2.0], "task_specific_params": [{"a": 1}],
    "output_attentions": [True], "output_hidden_states": [True], "return_dict": [True], "name_or_path": ["x"],
    "transformers_version": ["4.40.0"], "chunk_size_feed_forward": [11], "label2id": [{"a": 0, "b": 1}],
    "problem_type": ["regression"], "gradient_checkpointing": [True], "is_encoder_decoder": [False],
    "tokenizer_class": ["T"], "cross_attention_hidden_size": [4], "pruned_heads": [{}, {"0": [0]}],
    "is_decoder": [False, True], "add_cross_attention": [False, True], "tie_encoder_decoder": [False],
    "quantization_config": [None, {"quant_method": "of tomorrow"}], "id2label": [{"0": "a"}], "num_labels": [3], "a_field_of_tomorrow": [1]}
ROPES = [
    {"rope_type": "linear", "factor": 4.0}, {"type": "linear", "factor": 4.0}, {"type": "linear"},
    {"rope_type": "default", "factor": 4.0, "mscale": 0.7, "truncate": False},
    {"rope_type": "default", "type": "linear", "factor": 4.0},
    {"rope_type": "linear", "factor": 4.0, "rope_theta": 300.0},
    {"rope_type": "linear", "factor": 4.0, "partial_rotary_factor": 0.5},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 16},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 3.0,
     "original_max_position_embeddings": 16},
    {"rope_type": "llama3", "factor": 8.0},
    {"rope_type": "yarn", "factor": 4.0}, {"rope_type": "yarn"},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 200000},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.5},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 2.0, "beta_slow": 0.5},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 0, "beta_slow": 0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale_all_dim": 0.7},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7, "mscale_all_dim": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7, "mscale_all_dim": 0.7},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "truncate": True},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "truncate": False},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2, "rope_theta": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 200000, "rope_theta": 2.0},
    {"rope_type": "dynamic", "factor": 4.0}, {"rope_type": "longrope"},
    {"type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [2.0, 2.0]},
    {"type": "su", "short_factor": [1.0, 1.0], "long_factor": [2.0, 2.0]},
    {"type": "mrope", "mrope_section": [1, 1]}, {"rope_type": "default", "mrope_section": [1, 1]},
    {"rope_type": "proportional", "partial_rotary_factor": 0.5},
    {"rope_theta": 300.0}, {"rope_type": "default"}, {"rope_type": "default", "partial_rotary_factor": 0.5},
    {"full_attention": {"rope_type": "default", "rope_theta": 300.0}}, {}, 3]


def ropes():
    """Rotations in both versions' fields, inside and outside; each a dictionary of fields that are set."""
    for rope in ROPES:
        yield {"rope_scaling": rope, "rope_parameters": None}
        yield {"rope_scaling": None, "rope_parameters": rope, "rope_theta": 500.0}
    yield {"rope_parameters": None, "rope_theta": 500.0}
    yield {"rope_parameters": None}
    yield {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "rope_theta": 700.0}
    yield {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
           "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    yield {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "rope_scaling": {}}
    yield {"rope_parameters": {"rope_type": "default"}, "partial_rotary_factor": 0.5}
    yield {"rope_parameters": {"rope_type": "default"}, "partial_rotary_factor": 1.0}
    yield {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1.0}, "partial_rotary_factor": 0.5}
    yield {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}, "max_position_embeddings": 16}
    yield {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 8}


FULL, PART = "full_attention", "sliding_attention"
WINDOWS = [{"sliding_window": w, "layer_types": types} | more
           for w in (None, 4) for types in (None, [FULL, FULL], [PART, PART], [FULL, PART], [PART])
           for more in ({}, {"use_sliding_window": True}, {"use_sliding_window": True, "max_window_layers": 0},
                        {"use_sliding_window": True, "max_window_layers": 1},
                        {"use_sliding_window": True, "max_window_layers": 2},
                        {"use_sliding_window": False, "max_window_layers": 0})]
SIZES = {"vocab_size": [17], "hidden_size": [24], "intermediate_size": [12], "num_hidden_layers": [1, 3],
         "num_attention_heads": [2, 3], "head_dim": [2], "hidden_act": ["gelu", "swish"]}
LLAMA = SIZES | {
    "num_key_value_heads": [1, 4, None], "rms_norm_eps": [0.1], "max_position_embeddings": [16, 64],
    "tie_word_embeddings": [True, False], "attention_bias": [True, False], "mlp_bias": [True, False],
    "attention_dropout": [0.5, 0.0], "pretraining_tp": [2], "original_max_position_embeddings": [8],
    "use_mrope": [False, True], "rope_interleaved": [False, True], "is_llama_config": [True]}
NO_SIZE = {"head_dim": [None, 2]}
MIXTRAL = LLAMA | {"num_local_experts": [4], "num_experts": [4], "num_experts_per_tok": [1, 3, 6],
                   "output_router_logits": [True], "router_aux_loss_coef": [0.5], "router_jitter_noise": [0.5, 0.0]}
GPT = {"vocab_size": [17], "n_positions": [16], "n_embd": [24], "n_layer": [1, 3], "n_head": [1, 4, 12], "n_inner": [20, None],
       "activation_function": ["relu", "gelu"], "resid_pdrop": [0.5], "embd_pdrop": [0.5], "attn_pdrop": [0.5],
       "layer_norm_epsilon": [0.1], "summary_type": ["last"], "summary_use_proj": [False], "summary_activation": ["tanh"],
       "summary_proj_to_labels": [False], "summary_first_dropout": [0.5], "scale_attn_weights": [False, True],
       "hidden_size": [24], "num_hidden_layers": [1], "n_ctx": [5], "rope_theta": [500.0], "n_special": [1],
       "predict_special_tokens": [False]}
FIELDS = {
    "llama": LLAMA | NO_SIZE, "mistral": LLAMA | NO_SIZE, "phi3": LLAMA | {"resid_pdrop": [0.5], "embd_pdrop": [0.5]},
    "qwen2": LLAMA, "qwen3": LLAMA | NO_SIZE, "mixtral": MIXTRAL | NO_SIZE,
    "gpt2": GPT | {"scale_attn_by_inverse_layer_idx": [True, False], "reorder_and_upcast_attn": [True, False],
                   "tie_word_embeddings": [False]},
    "gptj": GPT | {"rotary_dim": [2, 8, 3, None], "rotary": [True, False], "tie_word_embeddings": [True]},
    "falcon": {
        "vocab_size": [17], "hidden_size": [24], "num_hidden_layers": [1, 3], "num_attention_heads": [2],
        "num_ln_in_parallel_attn": [1, 2], "layer_norm_epsilon": [0.1], "hidden_dropout": [0.5], "attention_dropout": [0.5],
        "num_kv_heads": [1, 2], "alibi": [True, False], "new_decoder_architecture": [True, False],
        "multi_query": [True, False], "parallel_attn": [True, False], "bias": [True, False],
        "max_position_embeddings": [16, 64], "ffn_hidden_size": [20, None], "activation": ["relu", "gelu_new"],
        "tie_word_embeddings": [False], "apply_residual_connection_post_layernorm": [False, True], "n_embed": [24],
        "ff_factor": [4]},
    "bert": {
        "vocab_size": [17], "hidden_size": [24], "num_hidden_layers": [1, 3], "num_attention_heads": [3, 12],
        "intermediate_size": [12], "hidden_act": ["relu", "gelu_new"], "hidden_dropout_prob": [0.5],
        "attention_probs_dropout_prob": [0.5], "max_position_embeddings": [16], "type_vocab_size": [3],
        "layer_norm_eps": [0.1], "classifier_dropout": [0.5], "tie_word_embeddings": [False],
        "position_embedding_type": ["absolute", "relative_key"], "directionality": ["left"],
        "embedding_size": [8], "pooler_fc_size": [8], "pooler_num_attention_heads": [2], "pooler_num_fc_layers": [2],
        "pooler_size_per_head": [2], "pooler_type": ["last"]},
    "vit": {
        "hidden_size": [24], "num_hidden_layers": [1, 3], "num_attention_heads": [2, 4, 12], "intermediate_size": [12],
        "hidden_act": ["relu", "gelu_new"], "hidden_dropout_prob": [0.5], "attention_probs_dropout_prob": [0.5],
        "layer_norm_eps": [0.1], "image_size": [13], "patch_size": [4], "num_channels": [3], "qkv_bias": [False, True],
        "encoder_stride": [4], "pooler_output_size": [7], "pooler_act": ["relu"], "head_dim": [2, 4],
        "tie_word_embeddings": [False]}}
LEFT_OUT = {("phi3", "pad_token_id")}  # by default an id that a table of 13 tokens lacks
TURNED, WINDOWED = ("llama", "mistral", "phi3", "qwen2", "qwen3", "mixtral", "falcon"), ("llama", "mistral", "phi3",
                                                                                       "qwen2", "qwen3", "mixtral")


def cases(family, config):
    """Pairs: fields that are set, fields that are taken out."""
    for field, values in (EVERY | FIELDS[family]).items():
        for value in values:
            yield {field: value}, []
    for field in config:
        if field != "model_type" and (family, field) not in LEFT_OUT:
            yield {}, [field]
    for rope in ropes() if family in TURNED else ():
        if family == "mixtral":
            rope["head_dim"] = 4  # a null ends yarn in an error
        yield {field: value for field, value in rope.items() if value is not None}, [
            field for field, value in rope.items() if value is None]
    for window in WINDOWS if family in WINDOWED else ():
        yield {k: v for k, v in window.items() if v is not None}, [k for k, v in window.items() if v is None]
    if family in WINDOWED:
        yield {}, ["sliding_window", "layer_types"]
        for value in (0, None, 3):
            yield {"sliding_window": value}, []
            yield {"sliding_window": value, "layer_types": [PART, PART]}, []
            yield {"sliding_window": value, "layer_types": [FULL, FULL]}, []
    if family == "vit":
        yield {"num_labels": 5}, ["id2label"]


def config_type(family):
    return type(transformers.AutoConfig.for_model(family))


def logits_of(family, config, weights):
    kind, learn = KINDS.get(family, (transformers.AutoModelForCausalLM,
                                     lambda model: of_text(model, {"use_cache": False})))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config.json").write_text(json.dumps(config))
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        first, second, third = in_double()
        try:
            with first, second, third, torch.no_grad():
                made = config_type(family).from_pretrained(folder)
                model, info = kind.from_pretrained(folder, config=made, attn_implementation="eager", dtype=torch.float64,
                                                   output_loading_info=True,
                                                   **({"experts_implementation": "eager"} if family == "mixtral" else {}))
                if any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
                    return None
                logits = learn(model.eval())[0].logits
                return logits if torch.isfinite(logits).all() else None
        except Exception:  # of many types: the model cannot be made, loaded or run so
            return None


def defaults_of(family):
    return {field.name: field.default for field in dataclasses.fields(config_type(family))
            if field.default is not dataclasses.MISSING}


if __name__ == "__main__":
    tensors, families = {}, {}
    for family in FIELDS:
        directory = VALUES / "hugging_face" / family
        weights = {name: t.double() for name, t in load_file(directory / "model.safetensors").items()}
        config = json.loads((directory / "config.json").read_text())
        base = logits_of(family, config, weights)
        theirs = load_file(VALUES / f"transformers_{family}.safetensors")["logits"]
        assert (base - theirs).abs().max() < 1e-12, family
        listed, seen = [], set()
        for changed, removed in cases(family, config):
            removed = [field for field in removed if field in config]
            text = json.dumps([changed, removed], sort_keys=True)
            if text in seen or not (changed or removed):
                continue
            seen.add(text)
            made = {k: v for k, v in (config | changed).items() if k not in removed}
            logits = logits_of(family, made, weights)
            said = None
            if logits is not None and logits.shape == base.shape:
                said = "same" if torch.equal(logits, base) else next(
                    (name for name, other in tensors.items() if torch.equal(other, logits)), f"{family}/{len(listed)}")
                if said not in ("same", *tensors):
                    tensors[said] = logits.contiguous().clone()
            listed.append({"set": changed, "without": removed, "logits": said})
        families[family] = {"defaults": defaults_of(family), "cases": listed}
        print(family, len(listed), sum(one["logits"] is None for one in listed), len(tensors), flush=True)
    def line(value):
        return json.dumps(value, separators=(",", ":"))

    texts = [f"{line(family)}:{{\"defaults\":{line(one['defaults'])},\"cases\":[\n" +
             ",\n".join(map(line, one["cases"])) + "]}" for family, one in families.items()]
    (VALUES / "config_fields.json").write_text("{" + ",\n".join(texts) + "}\n")
    save_file(tensors, VALUES / "config_fields.safetensors",
              {"made_with": f"PyTorch {torch.__version__}, transformers {transformers.__version__}"})
    (VALUES / "config_fields.safetensors").chmod(0o644)
