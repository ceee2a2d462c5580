#pragma once
// The directories in which transformers, versions 4 and 5, keep a GPT-2.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/checkpoint/config_file.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/models/config_fields.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/names.hpp"

namespace shardwise {

/// Reads config.json in a directory of transformers. The rates of dropout in it are those of a
/// training, and are not read: `Gpt2Form` chooses yours.
/// throws   data_error that names the field, for a file that cannot be read, for fields of another
///          kind or name than config_fields.hpp lists, and for models that cannot be built here
inline Gpt2Config read_gpt2_config(const std::filesystem::path& directory) {
  const ConfigFile config = detail::read_fields(directory, detail::of_gpt2);
  config.require_divides("n_head", "n_embd");
  Gpt2Config made;
  made.vocabulary = config.size("vocab_size");
  made.positions = config.size("n_positions");
  made.features = config.size("n_embd");
  made.hidden = config.size("n_inner", 4 * made.features);
  made.heads = config.size("n_head");
  made.layers = config.size("n_layer");
  made.epsilon = config.number("layer_norm_epsilon");
  return made;
}

/// Where files of transformers have the parameters of a GPT-2, in the order in which the model
/// visits them, see `names_in_order`. All weights of linear layers are transposed, and those of
/// queries, keys and values are one. Names begin with `prefix`, which is empty in files of a
/// GPT2Model without a head.
inline std::vector<FileTensor> gpt2_tensors(const Gpt2Config& config,
                                            const std::string& prefix = "transformer.") {
  std::vector<FileTensor> tensors{prefix + "wte.weight", prefix + "wpe.weight"};
  const auto add_linear = [&](const std::string& name, std::size_t first_row = 0) {
    tensors.emplace_back(name + ".weight", first_row, true);
    tensors.emplace_back(name + ".bias", first_row);
  };
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = prefix + "h." + std::to_string(layer) + '.';
    detail::add_weight_and_bias(tensors, block + "ln_1");
    for (std::size_t i = 0; i < 3; ++i) add_linear(block + "attn.c_attn", i * config.features);
    add_linear(block + "attn.c_proj");
    detail::add_weight_and_bias(tensors, block + "ln_2");
    add_linear(block + "mlp.c_fc");
    add_linear(block + "mlp.c_proj");
  }
  detail::add_weight_and_bias(tensors, prefix + "ln_f");
  return tensors;
}

}  // namespace shardwise
