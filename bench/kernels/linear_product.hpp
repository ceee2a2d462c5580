#pragma once
// The products of a linear layer.

#include <string>

namespace bench {

/// Forward with bias and activation, backward_weight with the gradient of the bias.
enum class LinearProduct { forward, backward_input, backward_weight };

inline std::string name(LinearProduct product) {
  constexpr const char* names[] = {"forward", "backward_input", "backward_weight"};
  return names[static_cast<int>(product)];
}

}  // namespace bench
