#pragma once
// In what form a model sends.

#include <cstddef>

#include "shardwise/core/dtype.hpp"

namespace shardwise {

/// Gradients are settled in collectives of at most so many bytes, unless a model is told otherwise.
inline constexpr std::size_t default_bucket_bytes = std::size_t{32} << 20;

/// The dtypes in which a model sends, and how much of its gradients at a time.
struct Sending {
  Dtype values = Dtype::float32;                    ///< of what goes from layer to layer
  Dtype gradients = Dtype::float32;                 ///< of parameters, when they are settled
  std::size_t bucket_bytes = default_bucket_bytes;  ///< the most in one collective

  constexpr Sending() = default;
  ///@{
  /// One dtype for all, or one for values and one for gradients.
  constexpr Sending(Dtype all) : values(all), gradients(all) {}
  constexpr Sending(Dtype of_values, Dtype of_gradients, std::size_t bytes = default_bucket_bytes)
      : values(of_values), gradients(of_gradients), bucket_bytes(bytes) {}
  ///@}

  /// Of what layers and losses exchange inside: accumulate_t of the values' dtype.
  constexpr Dtype exchanges() const {
    return values == Dtype::bfloat16 || values == Dtype::float16 ? Dtype::float32 : values;
  }
};

}  // namespace shardwise
