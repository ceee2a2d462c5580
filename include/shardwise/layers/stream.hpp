#pragma once
// The layout of a value that several parts of a model read.

#include <concepts>
#include <type_traits>

#include "shardwise/layout/layout.hpp"

namespace shardwise {

namespace detail {

/// The layout of a stream through blocks: Partial and Replicated become the preferred layout if
/// that is sharded, else Invariant; every other layout stays.
template <Layout Offered, Layout Wanted>
using stream_t =
    std::conditional_t<std::same_as<Offered, Partial>,
                       std::conditional_t<ShardedLayout<Wanted>, Wanted, Invariant>,
                       std::conditional_t<std::same_as<Offered, Replicated>, Invariant, Offered>>;

}  // namespace detail

/// The layouts of a layer or merge that works on single elements, and keeps the layout of a stream.
struct KeepsStream {
  ///@{
  /// As `Layer` says.
  static constexpr bool keeps_shape = true;

  template <Layout Wanted>
  using desired_input_layout = detail::stream_t<Wanted, Invariant>;

  template <Layout Offered, Layout Wanted>
  using input_layout = detail::stream_t<Offered, Wanted>;

  template <Layout In>
  using output_layout = In;
  ///@}
};

}  // namespace shardwise
