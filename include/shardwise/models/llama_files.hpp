#pragma once
// The directories in which transformers, versions 4 and 5, keep models of the Llama family.

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/checkpoint/config_file.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/models/config_fields.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/rope_files.hpp"

namespace shardwise {

namespace detail {

/// A letter for each layer in layer_types, `s` for sliding_attention and `f` for full_attention;
/// none where the field is not there.
inline std::string letters_of_layers(const ConfigFile& config, std::size_t layers) {
  std::string letters;
  if (!config.has("layer_types")) return letters;
  const std::vector<std::string> types = config.texts("layer_types");
  for (const std::string& type : types) {
    if (type == "sliding_attention" || type == "full_attention") letters += type[0];
  }
  if (letters.size() != layers || types.size() != layers) {
    config.refuse("layer_types",
                  "it must be full_attention or sliding_attention for each of num_hidden_layers");
  }
  return letters;
}

/// The layers in a row of the first letter, and those of the other one, where `s` has the window.
/// throws   data_error unless these two follow each other to the end
inline void read_turn(const ConfigFile& config, const std::string& letters, std::size_t window,
                      LlamaConfig& made) {
  const std::size_t all = letters.size();
  const std::size_t first = std::min(letters.find_first_not_of(letters[0]), all);
  const std::size_t turn = std::min(letters.find(letters[0], first), all);
  for (std::size_t i = 0; i < all; ++i) {
    if (letters[i] == letters[i % turn] && i - i % turn + turn <= all) continue;
    config.refuse("layer_types",
                  sentence({"it begins with a turn of ", first, " and ", turn - first,
                            " layers, which does not go on at layer ", i,
                            "; only such turns, as many layers each time, can be read"}));
  }
  const bool slides = letters[0] == 's';
  made.turn[0] = {first, slides ? window : 0};
  made.turn[1] = {turn - first, slides ? 0 : window};
}

/// The windows of the layers.
inline void read_windows(const ConfigFile& config, unsigned family, LlamaConfig& made) {
  const bool is_qwen = (family & of_qwens) != 0;
  const bool used = config.has("sliding_window") && family != of_llama &&
                    (!is_qwen || config.flag("use_sliding_window"));
  const std::size_t window = used ? config.size("sliding_window") : 0;
  std::size_t full = used ? 0 : made.layers;  // of the first layers
  if (is_qwen && used) {
    const auto all = static_cast<double>(made.layers);
    full = static_cast<std::size_t>(std::clamp(config.number("max_window_layers"), 0.0, all));
  }
  const std::string letters = letters_of_layers(config, made.layers);
  if (family == of_llama) return;
  made.turn[0] = {full, 0};
  made.turn[1] = {made.layers - full, window};
  if (!letters.empty()) {
    const std::string wrong = !used ? "s" : is_qwen ? "" : "f";
    if (letters.find_first_of(wrong) != std::string::npos) {
      config.refuse("layer_types", "sliding_window and use_sliding_window say otherwise");
    }
    read_turn(config, letters, window, made);
  }
  made.form.two_windows = made.turn[0].layers > 0 && made.turn[1].layers > 0;
  made.form.window =
      made.form.two_windows ? dynamic : made.turn[made.turn[0].layers > 0 ? 0 : 1].window;
}

inline void read_experts(const ConfigFile& config, LlamaConfig& made) {
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
/// throws   data_error that names the field, for a file that cannot be read, for fields of another
///          kind or name than config_fields.hpp lists, and for models that cannot be built here
inline LlamaConfig read_llama_config(const std::filesystem::path& directory) {
  const ConfigFile config = detail::read_fields(directory, detail::of_llamas);
  const unsigned family = detail::family_of(config, detail::of_llamas);
  config.require_divides("num_key_value_heads", "num_attention_heads");
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
  const bool is_qwen3 = family == detail::of_qwen3;
  made.head_size =
      is_qwen3 ? config.size("head_dim") : config.size("head_dim", made.features / made.heads);
  made.fused = family == detail::of_phi3;
  // the class of Phi-3 in transformers calls another formula yarn
  const unsigned kinds = made.fused ? detail::of_plain : detail::of_ropes;
  made.rope = detail::rope_options(config, made.head_size, kinds, made.fused);
  if (family == detail::of_mixtral) detail::read_experts(config, made);
  made.form.output_bias = config.flag("attention_bias");
  made.form.bias = family == detail::of_qwen2 || made.form.output_bias;
  made.form.perceptron_bias = config.flag("mlp_bias");
  made.form.head_norms = is_qwen3;
  made.form.tied = config.flag("tie_word_embeddings");
  detail::read_windows(config, family, made);
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
    const auto add = [&](const std::string& own, const std::string& fused, std::size_t first_row,
                         bool has_bias) {
      if (config.fused) {
        tensors.emplace_back(fused + ".weight", first_row);
      } else {
        tensors.emplace_back(own + ".weight");
        if (has_bias) tensors.emplace_back(own + ".bias");
      }
    };
    tensors.emplace_back(block + "input_layernorm.weight");
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string own = attention + letters[i];
      add(own + "_proj", attention + "qkv_proj", first_rows[i], config.form.bias);
      if (config.form.head_norms && i < 2) tensors.emplace_back(own + "_norm.weight");
    }
    tensors.emplace_back(attention + "o_proj.weight");
    if (config.form.output_bias) tensors.emplace_back(attention + "o_proj.bias");
    tensors.emplace_back(block + "post_attention_layernorm.weight");
    if (config.form.experts) {
      const std::string mixture = block + "block_sparse_moe.";
      tensors.emplace_back(mixture + "gate.weight");
      for (const char* part : {"w1", "w3", "w2"})
        tensors.emplace_back(mixture + "experts.*." + part + ".weight");
      continue;
    }
    const bool biased = config.form.perceptron_bias;
    add(block + "mlp.gate_proj", block + "mlp.gate_up_proj", 0, biased);
    add(block + "mlp.up_proj", block + "mlp.gate_up_proj", config.hidden, biased);
    tensors.emplace_back(block + "mlp.down_proj.weight");
    if (biased) tensors.emplace_back(block + "mlp.down_proj.bias");
  }
  tensors.emplace_back("model.norm.weight");
  if (!config.form.tied) tensors.emplace_back("lm_head.weight");
  return tensors;
}

}  // namespace shardwise
