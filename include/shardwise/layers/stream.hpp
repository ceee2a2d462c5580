#pragma once
// The layout of a value that several parts of a model read.

#include <concepts>
#include <type_traits>

#include "shardwise/layout/layout.hpp"

namespace shardwise {

/// The layout of a stream that passes through blocks: a Partial becomes what is wanted if that is
/// sharded, else Invariant, as does a Replicated; anything else stays as it is.
template <Layout Offered, Layout Wanted>
using stream_t =
    std::conditional_t<std::same_as<Offered, Partial>,
                       std::conditional_t<ShardedLayout<Wanted>, Wanted, Invariant>,
                       std::conditional_t<std::same_as<Offered, Replicated>, Invariant, Offered>>;

/// Layouts of a layer or operation that works on every element alone, and leaves a stream as it is.
struct KeepsStream {
  ///@{
  /// As `Layer` says.
  static constexpr bool keeps_shape = true;

  template <Layout Wanted>
  using desired_input_layout = stream_t<Wanted, Invariant>;

  template <Layout Offered, Layout Wanted>
  using input_layout = stream_t<Offered, Wanted>;

  template <Layout In>
  using output_layout = In;
  ///@}
};

}  // namespace shardwise
