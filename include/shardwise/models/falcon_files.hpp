#pragma once
// The directories in which transformers, versions 4 and 5, keep a Falcon.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/checkpoint/config_file.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/models/config_fields.hpp"
#include "shardwise/models/names.hpp"
#include "shardwise/models/parallel_gpt.hpp"
#include "shardwise/models/rope_files.hpp"

namespace shardwise {

/// Reads config.json in a directory of transformers.
/// throws   data_error that names the field, for a file that cannot be read, for fields of another
///          kind or name than config_fields.hpp lists, and for models that cannot be built here
inline ParallelGptConfig read_falcon_config(const std::filesystem::path& directory) {
  const ConfigFile config = detail::read_fields(directory, detail::of_falcon);
  config.require_divides("num_attention_heads", "hidden_size");
  const bool is_new = config.flag("new_decoder_architecture");
  ParallelGptConfig made;
  made.vocabulary = config.size("vocab_size");
  made.features = config.size("hidden_size");
  made.hidden = config.size("ffn_hidden_size", 4 * made.features);
  made.heads = config.size("num_attention_heads");
  made.layers = config.size("num_hidden_layers");
  made.epsilon = config.number("layer_norm_epsilon");
  if (is_new) {
    config.require_divides("num_kv_heads", "num_attention_heads");
    made.groups = config.size("num_kv_heads", made.heads);
  } else {
    made.groups = config.flag("multi_query") ? 1 : made.heads;
  }
  made.head_size = made.features / made.heads;
  made.rope = detail::rope_options(config, made.head_size, detail::of_ropes, false);
  const std::size_t most_norms = is_new ? 2 : 1;
  const std::size_t norms = config.size("num_ln_in_parallel_attn", most_norms);
  if (norms > most_norms) {
    config.refuse("num_ln_in_parallel_attn",
                  "a block has at most one norm, or two with new_decoder_architecture");
  }
  made.form.two_norms = norms == 2;
  made.form.attention_bias = made.form.perceptron_bias = config.flag("bias");
  made.form.tied = config.flag("tie_word_embeddings");
  return made;
}

/// Where files of transformers have the parameters of a Falcon, in the order in which the model
/// visits them, see `names_in_order`. Queries, keys and values are one tensor, in which the rows of
/// each key head follow those of the query heads that read it, and those of its values follow.
inline std::vector<FileTensor> falcon_tensors(const ParallelGptConfig& config) {
  std::vector<FileTensor> tensors{"transformer.word_embeddings.weight"};
  const auto add_linear = [&](const FileTensor& weight, bool has_bias) {
    tensors.push_back(weight);
    tensors.back().name += ".weight";
    if (!has_bias) return;
    tensors.push_back(weight);
    tensors.back().name += ".bias";
  };
  const std::size_t size = config.head_size, queries = config.heads / config.groups * size;
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = "transformer.h." + std::to_string(layer) + '.';
    const std::string fused = block + "self_attention.query_key_value";
    const auto add_heads = [&](std::size_t first_row, std::size_t rows) {
      add_linear(FileTensor(fused, first_row).in_pieces(rows, queries + 2 * size),
                 config.form.attention_bias);
    };
    detail::add_weight_and_bias(tensors,
                                block + (config.form.two_norms ? "ln_attn" : "input_layernorm"));
    add_heads(0, queries);
    add_heads(queries, size);
    add_heads(queries + size, size);
    add_linear(block + "self_attention.dense", config.form.attention_bias);
    if (config.form.two_norms) detail::add_weight_and_bias(tensors, block + "ln_mlp");
    add_linear(block + "mlp.dense_h_to_4h", config.form.perceptron_bias);
    add_linear(block + "mlp.dense_4h_to_h", config.form.perceptron_bias);
  }
  detail::add_weight_and_bias(tensors, "transformer.ln_f");
  if (!config.form.tied) tensors.emplace_back("lm_head.weight");
  return tensors;
}

}  // namespace shardwise
