#pragma once
// What the parts of a Sequential or a Graph count and cost, for pipelines.

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/input_element.hpp"
#include "shardwise/model/walk.hpp"

namespace shardwise::detail {

/// Numbers of each part of a Sequential or a Graph.
template <std::size_t Parts>
struct PartCounts {
  std::array<std::uint64_t, Parts> ordinals{};  ///< layers with parameters or random numbers
  std::array<std::uint64_t, Parts> cost{};      ///< an estimate of multiplications and additions
};

/// Positions of a tensor: its elements but for features and channels.
constexpr std::uint64_t positions(const Shape& shape) {
  std::uint64_t count = 1;
  for (const Dim& dim : shape)
    if (dim.axis != Axis::feature && dim.axis != Axis::channel) count *= dim.extent();
  return count;
}

template <std::size_t Parts>
struct PartCounter : WalkVisitor {
  PartCounts<Parts> counts{};
  std::size_t depth = 0;
  std::size_t part = 0;

  constexpr void enter(std::size_t number) {
    if (depth++ == 0) part = number;
  }
  constexpr void leave() { --depth; }
  template <class R, bool, class X>
  constexpr void redistribution(const Shape&) {}

  template <class L, Layout In, bool>
  constexpr void layer(const L& layer, const Shape& in, const Shape& out) {
    constexpr bool has_parameters = std::tuple_size_v < parameters_t < L, In >>> 0;
    counts.cost[part] += out.elements();
    if constexpr (has_parameters && std::is_void_v<input_element_t<L, void>>)  // no table of rows
      for (const ParameterSpec& spec : layer.parameter_specs(in))
        counts.cost[part] += spec.shape.elements() * positions(out);
    if constexpr ((has_parameters && !borrows_parameters<L>) || draws_random<L>)
      ++counts.ordinals[part];
  }
  template <class Op, Layout In, bool, std::size_t N>
  constexpr void merge(const std::array<Nothing, N>&, const std::array<Shape, N>&,
                       const Shape& out) {
    counts.cost[part] += out.elements();
    if constexpr (draws_random<Op>) ++counts.ordinals[part];
  }
};

/// The numbers of the parts of a Sequential or a Graph, for inputs of these shapes.
template <class E, class L>
constexpr PartCounts<L::size> part_counts(const L& whole, const shapes_t<typename E::offered>& in) {
  PartCounter<L::size> counter;
  walk<E, Train>(whole, in, counter);
  return counter.counts;
}

}  // namespace shardwise::detail
