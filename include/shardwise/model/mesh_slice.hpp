#pragma once
// The samples of a batch that the ranks along `tensor` of a mesh compute together. To them they are
// a batch of its own: layers are run on this slice as they are without a mesh.

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

/// The mesh axes over which a batch is cut, in the order in which sums over its samples are added.
inline constexpr std::array sample_axes{MeshAxis::data, MeshAxis::replica};

namespace detail {

template <class L>
struct over_samples;
template <PlainLayout L>
struct over_samples<L> {
  using type = SamplesOverMesh<L>;
};
template <PlainLayout... Ls>
struct over_samples<Layouts<Ls...>> {
  using type = Layouts<SamplesOverMesh<Ls>...>;
};
template <Communicator C, class L>
struct layout_at_end {
  using type = L;
};
template <MeshCommunicator C, class L>
struct layout_at_end<C, L> : over_samples<L> {};

/// The layout at an end of a model on ranks of type C, whose Ends name L.
template <Communicator C, EndLayout L>
using layout_at_end_t = typename layout_at_end<C, L>::type;

/// The rank's slice of a batch.
struct SliceOfBatch {
  std::uint64_t first = 0;  ///< samples of the batch before it
  std::size_t whole = 0;    ///< samples of the batch, over all ranks
};

/// The shape of the slice of a tensor.
/// throws   shape_error if it has no axis batch
inline Shape slice_shape(const Shape& whole, const MeshPlace& place) {
  return local_shape<SamplesOverMesh<Invariant>>(whole, place);
}

/// Throws shape_error unless the samples of a batch on a mesh follow each other in memory.
inline void require_batch_first(const Shape& whole) {
  if (whole.rank() > 0 && whole[0].axis == Axis::batch) return;
  throw shape_error(
      {"a tensor ", whole, " is cut by samples, so on a mesh its outermost axis must be batch"});
}

/// The rank's slice of a batch whose first input has this shape.
/// throws   as require_batch_first
inline SliceOfBatch slice_of_batch(const Shape& whole, const MeshPlace& place) {
  require_batch_first(whole);
  return {local_begin<SamplesOverMesh<Invariant>>(whole, place)[0], whole[0].extent()};
}

///@{
/// The rank's slice of a tensor, as ranks along `tensor` see it; without a mesh the tensor itself.
template <class T, PlainLayout L>
View<T, L> slice_of(const View<T, L>& view) {
  return view;
}
template <class T, MeshLayout L>
auto slice_of(const View<T, L>& view) {
  return View<T, along_t<L, MeshAxis::tensor>>(
      view.data(), slice_shape(view.global(), view.place()), view.place()[MeshAxis::tensor]);
}
template <class... Views>
auto slice_of(const std::tuple<Views...>& views) {
  return std::apply([](const auto&... one) { return std::tuple{slice_of(one)...}; }, views);
}
///@}

/// The shape of a tensor with so many samples.
inline Shape with_samples(Shape shape, std::size_t samples) {
  const std::size_t axis = shape.find(Axis::batch);
  if (axis < shape.rank()) shape[axis].units = samples;
  return shape;
}

///@{
/// The whole tensors of slices, in the layout L of an end of a model, of a batch of `samples`.
/// throws   as View: shape_error if one has no axis batch
template <EndLayout L, class T, PlainLayout Along>
View<T, L> whole_of(const View<T, Along>& slice, std::size_t samples, const MeshPlace& place) {
  return {slice.data(), with_samples(slice.global(), samples), place};
}
template <EndLayout, class Nothing>
requires std::is_empty_v<Nothing> Nothing whole_of(Nothing none, std::size_t, const MeshPlace&) {
  return none;
}
template <EndLayout Ls, class... Views>
auto whole_of(const std::tuple<Views...>& slices, std::size_t samples, const MeshPlace& place) {
  return [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
    return std::tuple{whole_of<nth_layout_t<Ls, Ks>>(std::get<Ks>(slices), samples, place)...};
  }
  (std::index_sequence_for<Views...>{});
}
///@}

}  // namespace detail

}  // namespace shardwise
