#pragma once
// The directories in which transformers, versions 4 and 5, keep a vision transformer.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/checkpoint/config_file.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/models/config_fields.hpp"
#include "shardwise/models/names.hpp"
#include "shardwise/models/vit.hpp"

namespace shardwise {

/// Reads config.json in a directory of transformers' ViTForImageClassification. The rates of
/// dropout in it are those of a training, and are not read: `VitForm` chooses yours.
/// throws   data_error that names the field, for a file that cannot be read, for fields of another
///          kind or name than config_fields.hpp lists, and for models that cannot be built here
inline VitConfig read_vit_config(const std::filesystem::path& directory) {
  const ConfigFile config = detail::read_fields(directory, detail::of_vit);
  config.require_divides("num_attention_heads", "hidden_size");
  VitConfig made;
  made.channels = config.size("num_channels");
  made.side = config.size("image_size");
  made.patch = config.size("patch_size");
  made.features = config.size("hidden_size");
  made.hidden = config.size("intermediate_size");
  made.heads = config.size("num_attention_heads");
  made.layers = config.size("num_hidden_layers");
  const std::size_t named = config.has("id2label") ? config.entries("id2label") : 2;
  made.classes = config.size("num_labels", named);
  if (made.classes == 0) config.refuse("id2label", "a model has at least one class");
  made.epsilon = config.number("layer_norm_eps");
  if (made.patch > made.side) config.refuse("patch_size", "it must be at most image_size");
  if (config.size("head_dim", made.features / made.heads) != made.features / made.heads) {
    config.refuse("head_dim", "it must be hidden_size / num_attention_heads");
  }
  return made;
}

/// Where files of transformers have the parameters of a vision transformer, in the order in which
/// the model visits them, see `names_in_order`.
inline std::vector<FileTensor> vit_tensors(const VitConfig& config) {
  std::vector<FileTensor> tensors;
  detail::add_weight_and_bias(tensors, "vit.embeddings.patch_embeddings.projection");
  tensors.push_back(FileTensor("vit.embeddings.cls_token").behind_ones(2));
  tensors.push_back(FileTensor("vit.embeddings.position_embeddings").behind_ones(1));
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = "vit.encoder.layer." + std::to_string(layer) + '.';
    for (const char* part :
         {"layernorm_before", "attention.attention.query", "attention.attention.key",
          "attention.attention.value", "attention.output.dense", "layernorm_after",
          "intermediate.dense", "output.dense"}) {
      detail::add_weight_and_bias(tensors, block + part);
    }
  }
  detail::add_weight_and_bias(tensors, "vit.layernorm");
  detail::add_weight_and_bias(tensors, "classifier");
  return tensors;
}

}  // namespace shardwise
