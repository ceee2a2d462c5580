#pragma once
// The directories in which transformers, versions 4 and 5, keep models of the Llama family.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/checkpoint/config_file.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/rope_files.hpp"

namespace shardwise {

namespace detail {

/// Throws data_error for fields that ask for what the family's models here do not do.
inline void refuse_other_forms(const ConfigFile& config) {
  config.require_text("hidden_act", "silu");
  config.require_flags(false, {"attention_bias", "mlp_bias"});
  config.require_divides("num_key_value_heads", "num_attention_heads");
  config.refuse_dropout({"attention_dropout", "embd_pdrop", "resid_pdrop"});
  if (!config.is_uniform("layer_types")) {
    config.refuse("layer_types", "only models whose layers are alike can be read");
  }
}

inline void read_experts(const ConfigFile& config, LlamaConfig& made) {
  if (config.number("router_jitter_noise", 0) != 0) {
    config.refuse("router_jitter_noise", "models with noise in their router cannot be read");
  }
  made.form.experts = true;
  made.experts = config.size("num_local_experts");
  made.chosen = config.size("num_experts_per_tok");
  if (made.chosen > made.experts) {
    config.refuse("num_experts_per_tok", "it must be no more than num_local_experts");
  }
}

}  // namespace detail

/// Reads config.json in a directory of transformers: of Llama, Mistral, Mixtral, Phi-3, Qwen2 or
/// Qwen3. What it says of a balancing loss is of a training, and is not read: set `form.balanced`
/// and `balance` if you want one.
/// throws   data_error that names the field, for a file that cannot be read, for fields that are
///          missing or of another kind, and for models that cannot be built here
inline LlamaConfig read_llama_config(const std::filesystem::path& directory) {
  const ConfigFile config(directory);
  const std::string type = config.text("model_type");
  const bool is_qwen = type == "qwen2" || type == "qwen3";
  const bool is_mixtral = type == "mixtral";
  if (type != "llama" && type != "mistral" && type != "phi3" && !is_qwen && !is_mixtral) {
    config.refuse("model_type", "llama, mistral, mixtral, phi3, qwen2 and qwen3 can be read");
  }
  detail::refuse_other_forms(config);
  LlamaConfig made;
  made.vocabulary = config.size("vocab_size");
  made.features = config.size("hidden_size");
  made.hidden = config.size("intermediate_size");
  made.heads = config.size("num_attention_heads");
  made.groups = config.size("num_key_value_heads", made.heads);
  made.layers = config.size("num_hidden_layers");
  made.epsilon = config.number("rms_norm_eps");
  if (!config.has("head_dim") && made.features % made.heads != 0) {
    config.refuse("num_attention_heads", "it must divide hidden_size where head_dim is missing");
  }
  made.head_size = config.size("head_dim", made.features / made.heads);
  made.rope = detail::rope_options(config, made.head_size, config.size("max_position_embeddings"));
  made.fused = type == "phi3";
  if (is_mixtral) detail::read_experts(config, made);
  made.form.bias = type == "qwen2";
  made.form.head_norms = type == "qwen3";
  made.form.tied = config.flag("tie_word_embeddings", false);
  if (!is_qwen || config.flag("use_sliding_window", false)) {
    made.form.window = config.size("sliding_window", 0);
  }
  return made;
}

/// Where files of transformers have the parameters of a Llama, in the order in which the model
/// visits them, see `names_in_order`.
inline std::vector<FileTensor> llama_tensors(const LlamaConfig& config) {
  std::vector<FileTensor> tensors{"model.embed_tokens.weight"};
  const std::size_t queries = config.heads * config.head_size;
  const std::size_t first_rows[] = {0, queries, queries + config.groups * config.head_size};
  const std::string letters = "qkv";
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = "model.layers." + std::to_string(layer) + '.';
    const std::string attention = block + "self_attn.";
    const auto add = [&](const std::string& own, const std::string& fused, std::size_t first_row) {
      if (config.fused) {
        tensors.emplace_back(fused + ".weight", first_row);
      } else {
        tensors.emplace_back(own + ".weight");
      }
    };
    tensors.emplace_back(block + "input_layernorm.weight");
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string own = attention + letters[i];
      add(own + "_proj", attention + "qkv_proj", first_rows[i]);
      if (config.form.bias) tensors.emplace_back(own + "_proj.bias");
      if (config.form.head_norms && i < 2) tensors.emplace_back(own + "_norm.weight");
    }
    tensors.emplace_back(attention + "o_proj.weight");
    tensors.emplace_back(block + "post_attention_layernorm.weight");
    if (config.form.experts) {
      const std::string mixture = block + "block_sparse_moe.";
      tensors.emplace_back(mixture + "gate.weight");
      for (const char* part : {"w1", "w3", "w2"})
        tensors.emplace_back(mixture + "experts.*." + part + ".weight");
      continue;
    }
    add(block + "mlp.gate_proj", block + "mlp.gate_up_proj", 0);
    add(block + "mlp.up_proj", block + "mlp.gate_up_proj", config.hidden);
    tensors.emplace_back(block + "mlp.down_proj.weight");
  }
  tensors.emplace_back("model.norm.weight");
  if (!config.form.tied) tensors.emplace_back("lm_head.weight");
  return tensors;
}

}  // namespace shardwise
