#pragma once
// The samples, and of each the tokens, that the ranks along `tensor` of a mesh compute together. To
// them they are a batch of its own: layers are run on this slice as they are without a mesh.

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

/// The mesh axes over which a batch is cut, in the order in which sums over its slices are added.
inline constexpr std::array sample_axes{MeshAxis::data, MeshAxis::replica, MeshAxis::context};
/// Those along which ranks have the same share of gradients, if ranks along `data` have shares.
inline constexpr std::array share_axes{MeshAxis::replica, MeshAxis::context};

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

/// The axis of a batch that ranks along one of `sample_axes` cut.
constexpr Axis axis_cut_over(MeshAxis axis) {
  return axis == MeshAxis::context ? Axis::sequence : Axis::batch;
}

/// The rank's slice of a batch.
struct SliceOfBatch {
  std::uint64_t first = 0;  ///< samples of the batch before it
  std::size_t whole = 0;    ///< samples of the batch, over all ranks
  std::size_t tokens = 0;   ///< of each whole sample, if they are cut
  Place context{};          ///< of the rank along `context`
  double share = 1;         ///< its elements by those of the batch

  /// Whether ranks have different tokens of a sample.
  constexpr bool cuts_tokens() const { return context.size > 1; }
  /// The tokens of each sample that the rank has, if they lie over `context` as L says.
  template <PlainLayout L = Sharded<Axis::sequence>>
  constexpr Interval held() const {
    return local_block<L>({{Axis::sequence, tokens}}, context);
  }
};

/// The shape of the slice of a tensor.
/// throws   shape_error if it has no axis batch, or no axis sequence where tokens are cut
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
  const std::size_t all = whole.elements(), here = slice_shape(whole, place).elements();
  SliceOfBatch slice{local_begin<SamplesOverMesh<Invariant>>(whole, place)[0], whole[0].extent()};
  slice.share = all == 0 ? 0 : static_cast<double>(here) / static_cast<double>(all);
  slice.context = place[MeshAxis::context];
  if (slice.cuts_tokens()) slice.tokens = whole[sequence_position(whole)].extent();
  return slice;
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

/// The same tensor shape with this extent of an axis, if it has the axis.
inline Shape with_extent_of(Shape shape, Axis axis, std::size_t extent) {
  const std::size_t position = shape.find(axis);
  if (position < shape.rank()) shape[position].units = extent;
  return shape;
}

/// The shape, over the whole batch, of a tensor that has this shape over the slice.
inline Shape over_whole_batch(const Shape& shape, const SliceOfBatch& slice) {
  const Shape samples = with_extent_of(shape, Axis::batch, slice.whole);
  return slice.cuts_tokens() ? with_extent_of(samples, Axis::sequence, slice.tokens) : samples;
}

/// The same rows, numbered in the whole batch in place of the slice. L is how the tokens of the
/// tensor lie over `context`.
template <PlainLayout L>
TokenRows over_whole_batch(TokenRows rows, const SliceOfBatch& slice) {
  rows.first_sample += static_cast<std::size_t>(slice.first);
  if (slice.cuts_tokens()) {
    rows.first_row += slice.held<L>().offset;
    rows.length = slice.tokens;
  }
  return rows;
}

///@{
/// The whole tensors of slices, in the layout L of an end of a model.
/// throws   as View: shape_error if one lacks an axis that is cut
template <EndLayout L, class T, PlainLayout Along>
View<T, L> whole_of(const View<T, Along>& view, const SliceOfBatch& slice, const MeshPlace& place) {
  return {view.data(), over_whole_batch(view.global(), slice), place};
}
template <EndLayout, class Nothing>
requires std::is_empty_v<Nothing> Nothing whole_of(Nothing none, const SliceOfBatch&,
                                                   const MeshPlace&) {
  return none;
}
template <EndLayout Ls, class... Views>
auto whole_of(const std::tuple<Views...>& views, const SliceOfBatch& slice,
              const MeshPlace& place) {
  return [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
    return std::tuple{whole_of<nth_layout_t<Ls, Ks>>(std::get<Ks>(views), slice, place)...};
  }
  (std::index_sequence_for<Views...>{});
}
///@}

}  // namespace detail

}  // namespace shardwise
