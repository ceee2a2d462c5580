#pragma once
// The directories in which transformers, versions 4 and 5, keep a BERT.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/checkpoint/config_file.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/models/bert.hpp"
#include "shardwise/models/config_fields.hpp"
#include "shardwise/models/names.hpp"

namespace shardwise {

/// Reads config.json in a directory of transformers. The rates of dropout in it are those of a
/// training, and are not read: `BertForm` chooses yours.
/// throws   data_error that names the field, for a file that cannot be read, for fields of another
///          kind or name than config_fields.hpp lists, and for models that cannot be built here
inline BertConfig read_bert_config(const std::filesystem::path& directory) {
  const ConfigFile config = detail::read_fields(directory, detail::of_bert);
  config.require_divides("num_attention_heads", "hidden_size");
  BertConfig made;
  made.vocabulary = config.size("vocab_size");
  made.positions = config.size("max_position_embeddings");
  made.types = config.size("type_vocab_size");
  made.features = config.size("hidden_size");
  made.hidden = config.size("intermediate_size");
  made.heads = config.size("num_attention_heads");
  made.layers = config.size("num_hidden_layers");
  made.epsilon = config.number("layer_norm_eps");
  return made;
}

/// Where files of transformers have the parameters of a BertForMaskedLM, in the order in which the
/// model visits them, see `names_in_order`.
inline std::vector<FileTensor> bert_tensors(const BertConfig& config) {
  const std::string embeddings = "bert.embeddings.", head = "cls.predictions.";
  std::vector<FileTensor> tensors{embeddings + "token_type_embeddings.weight",
                                  embeddings + "word_embeddings.weight",
                                  embeddings + "position_embeddings.weight"};
  detail::add_weight_and_bias(tensors, embeddings + "LayerNorm");
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = "bert.encoder.layer." + std::to_string(layer) + '.';
    for (const char* name : {"attention.self.query", "attention.self.key", "attention.self.value",
                             "attention.output.dense", "attention.output.LayerNorm",
                             "intermediate.dense", "output.dense", "output.LayerNorm"}) {
      detail::add_weight_and_bias(tensors, block + name);
    }
  }
  detail::add_weight_and_bias(tensors, head + "transform.dense");
  detail::add_weight_and_bias(tensors, head + "transform.LayerNorm");
  tensors.emplace_back(head + "bias");
  return tensors;
}

}  // namespace shardwise
