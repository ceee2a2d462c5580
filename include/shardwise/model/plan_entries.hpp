#pragma once
// The entries of a plan for redistributions, and for the exchanges of layers and losses.

#include <array>
#include <cstddef>
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
    if (sizes[axis] > 1 && shape.has(axis == MeshAxis::context ? cut : Axis::batch))
      entry = entry.split_over(axis);
  return entry;
}

/// The collective of R on a tensor of shape `shape`, if R communicates.
template <class R>
constexpr void add_redistribution(CollectiveList& list, const Shape& shape, Dtype dtype,
                                  const mesh& sizes, Axis cut) {
  if (const auto entry = collective_of<R>(shape, dtype))
    list.add(split_by_samples(*entry, shape, sizes, cut));
}

/// The collectives of R in the exchange One of a layer or loss whose input is cut by `cut` over
/// `context`.
template <class One, class R>
constexpr void add_exchange(CollectiveList& list, const Shape& shape, Dtype dtype,
                            const mesh& sizes, Axis cut) {
  const bool is_of_all_rows = is_over_rows<One> && cut == Axis::height;
  mesh splitting = sizes;  // each rank along `context` has all of these numbers
  if (is_of_all_rows) splitting.context = 1;
  add_redistribution<R>(list, shape, One::dtype(dtype), splitting, cut);
  if constexpr (is_over_rows<One>) {
    Collective entry = all_reduce(shape.elements(), One::dtype(dtype)).over(MeshAxis::context);
    for (const MeshAxis axis : {MeshAxis::data, MeshAxis::replica})
      if (sizes[axis] > 1) entry = entry.split_over(axis);
    if (SplitLayout<typename R::to> && sizes.tensor > 1) entry = entry.split_over(MeshAxis::tensor);
    if (sizes.context > 1 && is_of_all_rows) list.add(entry);
  }
  if constexpr (adds_samples<One>) {
    const Collective entry = all_reduce(shape.elements(), One::dtype(dtype));
    const bool is_split = SplitLayout<typename R::to> && sizes.tensor > 1;
    add_over_samples(list, is_split ? entry.split_over(MeshAxis::tensor) : entry, sizes);
  }
}

template <class Exchanges, std::size_t N, std::size_t... Is>
constexpr void add_exchanges(CollectiveList& list, const std::array<Shape, N>& shapes, Dtype dtype,
                             const mesh& sizes, Axis cut, std::index_sequence<Is...>) {
  const auto add = [&]<class One>(std::type_identity<One>, const Shape& shape) {
    add_exchange<One, typename One::redistribution>(list, shape, dtype, sizes, cut);
  };
  (add(std::type_identity<std::tuple_element_t<Is, Exchanges>>{}, shapes[Is]), ...);
}

/// From the last to the first: lists of adjoints are read backwards.
template <class Exchanges, std::size_t N, std::size_t... Is>
constexpr void add_adjoint_exchanges(CollectiveList& list, const std::array<Shape, N>& shapes,
                                     Dtype dtype, const mesh& sizes, Axis cut,
                                     std::index_sequence<Is...>) {
  const auto add = [&]<class One>(std::type_identity<One>, const Shape& shape) {
    if constexpr (has_adjoint<One>) {
      CollectiveList forward;
      add_exchange<One, adjoint_t<typename One::redistribution>>(forward, shape, dtype, sizes, cut);
      for (std::size_t i = forward.size(); i-- > 0;) list.add(forward[i]);
    }
  };
  (add(std::type_identity<std::tuple_element_t<Is, Exchanges>>{}, shapes[Is]), ...);
}

}  // namespace shardwise::detail
