#pragma once
// The directories in which transformers, versions 4 and 5, keep a GPT-J.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/checkpoint/config_file.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/models/config_fields.hpp"
#include "shardwise/models/names.hpp"
#include "shardwise/models/parallel_gpt.hpp"

namespace shardwise {

/// Reads config.json in a directory of transformers. The form of the model is `gptj_form`.
/// throws   data_error that names the field, for a file that cannot be read, for fields of another
///          kind or name than config_fields.hpp lists, and for models that cannot be built here
inline ParallelGptConfig read_gptj_config(const std::filesystem::path& directory) {
  const ConfigFile config = detail::read_fields(directory, detail::of_gptj);
  config.require_divides("n_head", "n_embd");
  ParallelGptConfig made;
  made.form = gptj_form;
  made.vocabulary = config.size("vocab_size");
  made.features = config.size("n_embd");
  made.hidden = config.size("n_inner", 4 * made.features);
  made.heads = config.size("n_head");
  made.groups = made.heads;
  made.layers = config.size("n_layer");
  made.epsilon = config.number("layer_norm_epsilon");
  made.head_size = made.features / made.heads;
  made.rope.features = config.size("rotary_dim");
  made.rope.pairs = Rope::Pairs::neighbours;
  if (made.rope.features % 2 != 0 || made.rope.features > made.head_size) {
    config.refuse("rotary_dim", "it must be an even number of the features of a head");
  }
  return made;
}

/// Where files of transformers have the parameters of a GPT-J, in the order in which the model
/// visits them, see `names_in_order`.
inline std::vector<FileTensor> gptj_tensors(const ParallelGptConfig& config) {
  std::vector<FileTensor> tensors{"transformer.wte.weight"};
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = "transformer.h." + std::to_string(layer) + '.';
    detail::add_weight_and_bias(tensors, block + "ln_1");
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
      tensors.emplace_back(block + "attn." + name + ".weight");
    }
    detail::add_weight_and_bias(tensors, block + "mlp.fc_in");
    detail::add_weight_and_bias(tensors, block + "mlp.fc_out");
  }
  detail::add_weight_and_bias(tensors, "transformer.ln_f");
  detail::add_weight_and_bias(tensors, "lm_head");
  return tensors;
}

}  // namespace shardwise
