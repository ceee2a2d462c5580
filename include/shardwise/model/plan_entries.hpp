#pragma once
// The entries of a plan for redistributions, and for the exchanges of layers and losses.

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/model/collective_list.hpp"
#include "shardwise/model/collective_of.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/other_axes.hpp"
#include "shardwise/redistribute/redistribute.hpp"

namespace shardwise::detail {

/// Adds an all-reduce along each axis that cuts the samples of a batch over several ranks.
constexpr void add_over_samples(CollectiveList& list, const Collective& entry, const mesh& sizes) {
  for (const MeshAxis axis : sample_axes)
    if (sizes[axis] > 1) list.add(entry.over(axis));
}

/// What is sent of a tensor of shape `shape`: on a mesh a tensor with samples is split by them, and
/// over `context` by its axis `cut`.
constexpr Collective split_by_samples(Collective entry, const Shape& shape, const mesh& sizes,
                                      Axis cut) {
  for (const MeshAxis axis : sample_axes)
    if (sizes[axis] > 1 && shape.has(axis_cut_along(axis, cut))) entry = entry.split_over(axis);
  return entry;
}

/// The collective of R on a tensor of shape `shape`, if R communicates.
template <class R>
constexpr void add_redistribution(CollectiveList& list, const Shape& shape, Dtype dtype,
                                  const mesh& sizes, Axis cut) {
  if (const auto entry = collective_of<R>(shape, dtype))
    list.add(split_by_samples(*entry, shape, sizes, cut));
}

/// The collectives of exchange Index of a layer or loss whose input is cut by `cut` over `context`;
/// with Back, of its adjoint.
template <class Exchanges, std::size_t Index, bool Back>
constexpr CollectiveList calls_of_exchange(const Shape& shape, Dtype dtype, const mesh& sizes,
                                           Axis cut) {
  using One = std::tuple_element_t<Index, exchanges_along_tensor_t<Exchanges>>;
  using R = std::conditional_t<Back, adjoint_t<typename One::redistribution>,
                               typename One::redistribution>;
  constexpr CombinedOver combined = combined_over<Exchanges, Index, Back>;
  const auto is_combined = [&](MeshAxis axis) {
    return sizes[axis] > 1 && combined.has(axis_cut_along(axis, cut));
  };
  mesh splitting = sizes;  // ranks that combine numbers have all of them
  for (const MeshAxis axis : sample_axes)
    if (is_combined(axis)) splitting[axis] = 1;
  CollectiveList list;
  add_redistribution<R>(list, shape, One::dtype(dtype), splitting, cut);
  Collective along =
      split_by_samples(all_reduce(shape.elements(), One::dtype(dtype)), shape, splitting, cut);
  if (SplitLayout<typename R::to> && sizes.tensor > 1) along = along.split_over(MeshAxis::tensor);
  for (const MeshAxis axis : sample_axes)
    if (is_combined(axis)) list.add(along.over(axis));
  return list;
}

template <class Exchanges, std::size_t N, std::size_t... Is>
constexpr void add_exchanges(CollectiveList& list, const std::array<Shape, N>& shapes, Dtype dtype,
                             const mesh& sizes, Axis cut, std::index_sequence<Is...>) {
  const auto add = [&](const CollectiveList& calls) {
    for (const Collective& entry : calls) list.add(entry);
  };
  (add(calls_of_exchange<Exchanges, Is, false>(shapes[Is], dtype, sizes, cut)), ...);
}

/// From the last to the first: lists of adjoints are read backwards.
template <class Exchanges, std::size_t N, std::size_t... Is>
constexpr void add_adjoint_exchanges(CollectiveList& list, const std::array<Shape, N>& shapes,
                                     Dtype dtype, const mesh& sizes, Axis cut,
                                     std::index_sequence<Is...>) {
  const auto add = [&]<std::size_t Index>(std::integral_constant<std::size_t, Index>) {
    if constexpr (has_adjoint<std::tuple_element_t<Index, exchanges_along_tensor_t<Exchanges>>>) {
      const CollectiveList calls =
          calls_of_exchange<Exchanges, Index, true>(shapes[Index], dtype, sizes, cut);
      for (std::size_t i = calls.size(); i-- > 0;) list.add(calls[i]);
    }
  };
  (add(std::integral_constant<std::size_t, Is>{}), ...);
}

}  // namespace shardwise::detail
