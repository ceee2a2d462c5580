#pragma once
// Names that files of several families have.

#include <string>
#include <vector>

#include "shardwise/checkpoint/tensor_names.hpp"

namespace shardwise::detail {

/// Adds the weight and the bias of the layer that files call `name`.
inline void add_weight_and_bias(std::vector<FileTensor>& tensors, const std::string& name) {
  tensors.emplace_back(name + ".weight");
  tensors.emplace_back(name + ".bias");
}

}  // namespace shardwise::detail
