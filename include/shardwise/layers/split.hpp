#pragma once
// The axis along which a layer's weight is split, and the layouts that follow from it.

#include <concepts>
#include <type_traits>

#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/split_kind.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

/// The axis along which a layer's weight is split.
namespace split {

/// Not split: every rank has the whole weight, and uses it for its part of the input.
struct none {
  static constexpr SplitKind kind = SplitKind::none;  ///< as a value
};

/// By output feature or channel (column-parallel).
struct output {
  static constexpr SplitKind kind = SplitKind::output;  ///< as a value
};

/// By input feature or channel (row-parallel).
struct input {
  static constexpr SplitKind kind = SplitKind::input;  ///< as a value
};

/// By expert, see `Experts`.
struct expert {
  static constexpr SplitKind kind = SplitKind::expert;  ///< as a value
};

}  // namespace split

/// The splits of a layer with one weight.
template <class S>
concept Split =
    std::same_as<S, split::none> || std::same_as<S, split::output> || std::same_as<S, split::input>;

namespace detail {

/// The layouts of a layer y = x W + b, by split. Summed is the axis of x over which W sums; y has
/// an axis with the same name.
template <class S, Axis Summed>
struct ProductLayouts {
  static_assert(Split<S>,
                "The layer has no axis S to be split by. Take split::output (column-parallel), "
                "split::input (row-parallel) or split::none. Only convolutions are split by group "
                "or along space.");
};

template <Axis Summed>
struct ProductLayouts<split::output, Summed> : TakesAndGives<Replicated, Sharded<Summed>> {
  using along_other_axes = ProductLayouts<split::none, Summed>;
  template <Layout In>
  using weight = ParameterUse<Sharded<Axis::output>, Sharded<Axis::output>>;
  template <Layout In>
  using bias = weight<In>;
};

template <Axis Summed>
struct ProductLayouts<split::input, Summed> : TakesAndGives<Sharded<Summed>, Partial> {
  using along_other_axes = ProductLayouts<split::none, Summed>;
  template <Layout In>
  using weight = ParameterUse<Sharded<Axis::input>, Sharded<Axis::input>>;
  template <Layout In>
  using bias = ParameterUse<Invariant, Partial>;
};

/// Any layout in which each row or image is whole.
template <Axis Summed>
struct ProductLayouts<split::none, Summed>
    : KeepsOneOf<Invariant, Sharded<Axis::batch>, Sharded<Axis::sequence>> {
  template <Layout In>
  using weight =
      ParameterUse<Invariant,
                   std::conditional_t<std::same_as<In, Invariant>, Invariant, Replicated>>;
  template <Layout In>
  using bias = weight<In>;
};

}  // namespace detail

}  // namespace shardwise
