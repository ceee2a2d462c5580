#pragma once
// The samples, and of each the tokens or rows, that the ranks along `tensor` of a mesh compute
// together. To them they are a batch of its own: layers are run on this slice as they are without a
// mesh.

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/held_part.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/decide.hpp"

namespace shardwise::detail {

/// The mesh axes over which a batch is cut, in the order in which sums over its slices are added.
inline constexpr std::array sample_axes{MeshAxis::data, MeshAxis::replica, MeshAxis::context};
/// The axis of a tensor that ranks along one of these cut, if those along `context` cut this one.
constexpr Axis axis_cut_along(MeshAxis axis, Axis over_context) {
  return axis == MeshAxis::context ? over_context : Axis::batch;
}
/// Those along which ranks have the same share of gradients, if ranks along `data` have shares.
inline constexpr std::array share_axes{MeshAxis::replica, MeshAxis::context};

template <class L>
struct end_layout {
  using on_mesh = SamplesOverMesh<L>;
  using along_tensor = L;
};
template <MeshLayout L>
struct end_layout<L> {
  using along_tensor = along_t<L, MeshAxis::tensor>;
  using on_mesh = SamplesOverMesh<along_tensor, axis_cut_by<along_t<L, MeshAxis::context>>>;
};
template <class... Ls>
struct end_layout<Layouts<Ls...>> {
  using on_mesh = Layouts<typename end_layout<Ls>::on_mesh...>;
  using along_tensor = Layouts<typename end_layout<Ls>::along_tensor...>;
};
template <Communicator C, class L>
struct layout_at_end {
  using type = typename end_layout<L>::along_tensor;
};
template <MeshCommunicator C, class L>
struct layout_at_end<C, L> {
  using type = typename end_layout<L>::on_mesh;
};

/// The layout at an end of a model on ranks of type C, whose Ends name L.
template <Communicator C, EndLayout L>
using layout_at_end_t = typename layout_at_end<C, L>::type;

template <class E>
struct ends_along_tensor {
  using type = E;
};
template <EndLayout Offered, EndLayout Wanted>
struct ends_along_tensor<Ends<Offered, Wanted>> {
  using type =
      Ends<typename end_layout<Offered>::along_tensor, typename end_layout<Wanted>::along_tensor>;
};
/// The Ends of a model, of which ranks along `tensor` have a part.
template <class E>
using ends_along_tensor_t = typename ends_along_tensor<E>::type;

/// The axis of a tensor between layers that ranks along `context` cut: tokens, or rows of images.
/// Ranks have different samples of what has neither.
[[gnu::noinline]] constexpr Axis axis_over_context(const Shape& shape) {
  if (shape.has(Axis::sequence)) return Axis::sequence;
  return shape.has(Axis::height) ? Axis::height : Axis::batch;
}

/// The layout of which ranks along `tensor` have a part.
constexpr MeshLayoutValue samples_over_mesh(Axis over_context) {
  MeshLayoutValue layout = layout_value<SamplesOverMesh<Invariant>>;
  layout[MeshAxis::context].axis = over_context;
  return layout;
}

/// The layout without the cuts of axes that a tensor lacks.
constexpr MeshLayoutValue on_axes_of(MeshLayoutValue layout, const Shape& shape) {
  for (const MeshAxis axis : sample_axes)
    if (layout[axis].cuts() && !shape.has(layout[axis].axis)) layout[axis] = {};
  return layout;
}

/// The units of an axis that a tensor has.
constexpr std::size_t extent_of(const Shape& shape, Axis axis) {
  return shape[shape.find(axis)].units;
}

/// The axes of a tensor over all ranks that ranks with other slices cut: [batch], or [batch,
/// sequence] or [batch, height] where those along `context` cut that.
/// throws   shape_error unless the samples follow each other in memory
Shape sliced_axes(const Shape& whole, const MeshPlace& place);

/// The samples that the ranks along `context` have together, of those of a batch.
std::size_t samples_along_context(const Dim& batch, const MeshPlace& place);

/// The part of the rank's slice in a tensor that has these `sliced_axes`.
[[gnu::noinline]] inline HeldPart slice_part(const Shape& axes, const MeshPlace& place) {
  return held_part(samples_over_mesh(axis_over_context(axes)), axes, place);
}

/// The shape of the slice of a tensor.
/// throws   shape_error if it has no axis batch
[[gnu::noinline]] inline Shape slice_shape(const Shape& whole, const MeshPlace& place) {
  return local_shape(samples_over_mesh(axis_over_context(whole)), whole, place);
}

/// Throws shape_error unless the samples of a batch on a mesh follow each other in memory.
void require_batch_first(const Shape& whole);

/// throws   shape_error if ranks along `context` cut another axis of the tensor than layers do
void require_cut_over_context(const MeshLayoutValue& layout, const Shape& whole,
                              const MeshPlace& place);

///@{
/// The same for the tensors at an end of a model, as far as their shapes are known.
template <EndLayout L>
void require_cuts_over_context(const Shape& whole, const MeshPlace& place) {
  require_cut_over_context(layout_value<L>, whole, place);
}
template <EndLayout Ls, std::size_t N>
void require_cuts_over_context(const std::array<Shape, N>& whole, const MeshPlace& place) {
  [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
    (require_cut_over_context(layout_value<nth_layout_t<Ls, Ks>>, whole[Ks], place), ...);
  }
  (std::make_index_sequence<N>{});
}
///@}

///@{
/// The rank's slice of a tensor, as ranks along `tensor` see it; without a mesh the tensor itself.
/// throws   as require_cut_over_context
template <class T, PlainLayout L>
View<T, L> slice_of(const View<T, L>& view) {
  return view;
}
template <class T, MeshLayout L>
auto slice_of(const View<T, L>& view) {
  require_cut_over_context(layout_value<L>, view.global(), view.place());
  return View<T, along_t<L, MeshAxis::tensor>>(
      view.data(), slice_shape(view.global(), view.place()), view.place()[MeshAxis::tensor]);
}
template <class... Views>
auto slice_of(const std::tuple<Views...>& views) {
  return std::apply([](const auto&... one) { return std::tuple{slice_of(one)...}; }, views);
}
///@}

/// Gives the axis this extent, if the tensor has the axis.
void set_extent_of(Shape& shape, Axis axis, std::size_t extent);
/// The same tensor shape with this extent of an axis, if it has the axis.
Shape with_extent_of(Shape shape, Axis axis, std::size_t extent);

/// The shape over all ranks of a tensor that has this shape over a slice, and these `sliced_axes`.
Shape over_all_slices(Shape shape, const Shape& axes);

///@{
/// The whole tensors of slices, which have these `sliced_axes`, in the layout L of an end of a
/// model.
///
/// throws   as View: shape_error if one lacks an axis that is cut
template <EndLayout L, class T, PlainLayout Along>
View<T, L> whole_of(const View<T, Along>& view, const Shape& axes, const MeshPlace& place) {
  return {view.data(), over_all_slices(view.global(), axes), place};
}
template <EndLayout, class Nothing>
requires std::is_empty_v<Nothing> Nothing whole_of(Nothing none, const Shape&, const MeshPlace&) {
  return none;
}
template <EndLayout Ls, class... Views>
auto whole_of(const std::tuple<Views...>& views, const Shape& axes, const MeshPlace& place) {
  return [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
    return std::tuple{whole_of<nth_layout_t<Ls, Ks>>(std::get<Ks>(views), axes, place)...};
  }
  (std::index_sequence_for<Views...>{});
}
///@}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void require_batch_first(const Shape& whole) {
  if (whole.rank() > 0 && whole[0].axis == Axis::batch) return;
  throw shape_error(
      {"a tensor ", whole, " is cut by samples, so on a mesh its outermost axis must be batch"});
}

[[gnu::noinline]] SHARDWISE_INLINE Shape sliced_axes(const Shape& whole, const MeshPlace& place) {
  require_batch_first(whole);
  const Axis cut = axis_over_context(whole);
  Shape axes{whole[0]};
  if (cut != Axis::batch && place[MeshAxis::context].size > 1)
    axes.append({cut, extent_of(whole, cut)});
  return axes;
}

SHARDWISE_INLINE std::size_t samples_along_context(const Dim& batch, const MeshPlace& place) {
  MeshLayoutValue layout = samples_over_mesh(Axis::batch);
  layout[MeshAxis::context] = {};
  return local_shape(layout, {batch}, place)[0].units;
}

[[gnu::noinline]] SHARDWISE_INLINE void require_cut_over_context(const MeshLayoutValue& layout,
                                                                 const Shape& whole,
                                                                 const MeshPlace& place) {
  const Axis cut = axis_over_context(whole);
  if (place[MeshAxis::context].size == 1 || layout[MeshAxis::context].cuts(cut) || !whole.has(cut))
    return;
  throw shape_error({"a tensor ", whole, " is ", layout, ", but layers take it cut by ", name(cut),
                     " over context, so name SamplesOverMesh<L, Axis::", name(cut),
                     "> in the Ends of the Model"});
}

SHARDWISE_INLINE void set_extent_of(Shape& shape, Axis axis, std::size_t extent) {
  const std::size_t position = shape.find(axis);
  if (position < shape.rank()) shape[position].units = extent;
}

[[gnu::noinline]] SHARDWISE_INLINE Shape with_extent_of(Shape shape, Axis axis,
                                                        std::size_t extent) {
  set_extent_of(shape, axis, extent);
  return shape;
}

[[gnu::noinline]] SHARDWISE_INLINE Shape over_all_slices(Shape shape, const Shape& axes) {
  for (const Dim& dim : axes) set_extent_of(shape, dim.axis, dim.units);
  return shape;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
