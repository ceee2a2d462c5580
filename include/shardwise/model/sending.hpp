#pragma once
// The dtypes and bucket size of a model's messages.

#include <cstddef>

#include "shardwise/core/dtype.hpp"

namespace shardwise {

/// Gradients are settled in collectives of at most this many bytes, unless ModelOptions say another
/// number.
inline constexpr std::size_t default_bucket_bytes = std::size_t{32} << 20;

/// The dtypes in which a model sends, and the largest bucket of gradients.
struct Sending {
  Dtype values = Dtype::float32;     ///< of the values between layers
  Dtype gradients = Dtype::float32;  ///< of parameters' gradients, when they are settled
  std::size_t bucket_bytes = default_bucket_bytes;  ///< the largest bucket of gradients
  Dtype parameters = Dtype::float32;  ///< of parameters that ranks update for each other
  /// Whether gradients are summed over several axes of a mesh in shares, see ModelOptions.
  bool sums_in_shares = false;
  /// Whether gradients are summed over samples while backward goes on, see ModelOptions.
  bool sums_in_backward = false;

  constexpr Sending() = default;
  ///@{
  /// One dtype for all, or one for values, one for gradients, and one for parameters, which is that
  /// of gradients if it is left out.
  constexpr Sending(Dtype all) : Sending(all, all) {}
  constexpr Sending(Dtype of_values, Dtype of_gradients, std::size_t bytes = default_bucket_bytes)
      : Sending(of_values, of_gradients, bytes, of_gradients) {}
  constexpr Sending(Dtype of_values, Dtype of_gradients, std::size_t bytes, Dtype of_parameters)
      : values(of_values),
        gradients(of_gradients),
        bucket_bytes(bytes),
        parameters(of_parameters) {}
  ///@}

  /// Of the exchanges inside layers and losses: accumulate_t of the values' dtype.
  constexpr Dtype exchanges() const { return detail::accumulated(values); }
};

}  // namespace shardwise
