#pragma once
// Names that files of several families have.

#include <string>
#include <vector>

#include "shardwise/checkpoint/tensor_names.hpp"

namespace shardwise {

/// What files of transformers have beside the tensors of a model, for LoadOptions::others: masks,
/// positions and frequencies that old versions wrote, and copies of tied tables. A file whose head
/// is another tensor than its table is refused where the model has one for both.
inline OtherTensors transformers_others() {
  return {.without_meaning = {"*.attn.bias", "*.attn.masked_bias", "*.inv_freq", "*.position_ids"},
          .copies = {{"lm_head.weight", "model.embed_tokens.weight"},
                     {"lm_head.weight", "transformer.wte.weight"},
                     {"lm_head.weight", "transformer.word_embeddings.weight"},
                     {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                     {"cls.predictions.decoder.bias", "cls.predictions.bias"}}};
}

namespace detail {

/// Adds the weight and the bias of the layer that files call `name`.
inline void add_weight_and_bias(std::vector<FileTensor>& tensors, const std::string& name) {
  tensors.emplace_back(name + ".weight");
  tensors.emplace_back(name + ".bias");
}

}  // namespace detail

}  // namespace shardwise
