#pragma once
// The part of a global tensor that one rank holds.

#include <array>
#include <cstddef>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/over.hpp"

namespace shardwise {

namespace detail {

[[noreturn, gnu::cold]] void refuse_axis(const LayoutValue& layout, const Shape& global);
[[noreturn, gnu::cold]] void refuse_axis(const MeshLayoutValue& layout, MeshAxis along,
                                         const Shape& global);

/// The position of the axis that `layout` cuts. Always inlined, so that a view of a known layout
/// costs as much as without values.
[[gnu::always_inline]] constexpr std::size_t split_position(const LayoutValue& layout,
                                                            const Shape& global) {
  const std::size_t position = global.find(layout.axis);
  if (position == global.rank()) refuse_axis(layout, global);
  return position;
}

/// Throws shape_error if the tensor lacks an axis that `layout` cuts over several ranks.
constexpr void require_split_axes(const MeshLayoutValue& layout, const Shape& global,
                                  const MeshPlace& place) {
  for (const MeshAxis along : mesh_axes)
    if (place[along].size > 1 && layout[along].cuts() && !global.has(layout[along].axis))
      refuse_axis(layout, along, global);
}

[[gnu::always_inline]] constexpr Interval held_interval(const LayoutValue& layout, const Dim& dim,
                                                        Place place) {
  if (!layout.has_halo()) return block_of(dim, place);
  const Interval units = layout.window.on(dim).held_by(place, dim.units);
  return {units.offset * dim.grain, units.size * dim.grain};
}

[[gnu::always_inline]] constexpr Shape local_shape(const LayoutValue& layout, const Shape& global,
                                                   Place place) {
  Shape local = global;
  if (layout.cuts()) {
    Dim& split = local[split_position(layout, global)];
    if (split.known()) split = with_extent(split, held_interval(layout, split, place).size);
  }
  return local;
}

/// The first element of a part of a tensor, axis by axis.
using PartBegin = std::array<std::size_t, Shape::max_rank>;

constexpr PartBegin local_begin(const LayoutValue& layout, const Shape& global, Place place) {
  PartBegin begin{};
  if (layout.cuts()) {
    const std::size_t position = split_position(layout, global);
    begin[position] = held_interval(layout, global[position], place).offset;
  }
  return begin;
}

/// Turns the shape of a whole tensor into that of the rank's part, and returns where it begins. The
/// outer axis of the mesh cuts first. One rank along an axis holds all.
[[gnu::noinline]] constexpr PartBegin take_part(Shape& held, const MeshLayoutValue& layout,
                                                const MeshPlace& place) {
  require_split_axes(layout, held, place);
  PartBegin begin{};
  for (const MeshAxis axis : mesh_axes) {
    if (place[axis].size == 1 || !layout[axis].cuts()) continue;
    const std::size_t position = held.find(layout[axis].axis);
    Dim& split = held[position];
    if (!split.known()) continue;
    const Interval part = held_interval(layout[axis], split, place[axis]);
    begin[position] += part.offset;
    split = with_extent(split, part.size);
  }
  return begin;
}

constexpr Shape local_shape(const MeshLayoutValue& layout, const Shape& global,
                            const MeshPlace& place) {
  Shape local = global;
  take_part(local, layout, place);
  return local;
}

constexpr PartBegin local_begin(const MeshLayoutValue& layout, const Shape& global,
                                const MeshPlace& place) {
  Shape held = global;
  return take_part(held, layout, place);
}

/// The number in the whole tensor of a part's element `number`; the part begins at `begin`.
constexpr std::size_t number_in_whole(const Shape& global, const Shape& local,
                                      const PartBegin& begin, std::size_t number) {
  std::size_t in_whole = 0, stride = 1;
  for (std::size_t i = global.rank(); i-- > 0;) {
    in_whole += (begin[i] + number % local[i].extent()) * stride;
    number /= local[i].extent();
    stride *= global[i].extent();
  }
  return in_whole;
}

/// Position of the axis that L splits. Throws shape_error if the tensor has no such axis.
template <SplitLayout L>
constexpr std::size_t split_position(const Shape& global) {
  return detail::split_position(detail::layout_value<L>, global);
}

/// The part that the rank at `place` holds of an axis that L splits.
template <SplitLayout L>
constexpr Interval held_interval(const Dim& dim, Place place) {
  return detail::held_interval(detail::layout_value<L>, dim, place);
}

}  // namespace detail

/// The shape of the part that the rank at `place` holds of a tensor of shape `global`. The whole
/// shape for layouts that do not split. Of two mesh axes that cut one axis, the inner one cuts what
/// the outer one left: 10 rows over 2 x 2 ranks are 3, 2, 3 and 2.
template <Layout L>
constexpr Shape local_shape(const Shape& global, const place_t<L>& place) {
  return detail::local_shape(detail::layout_value<L>, global, place);
}

namespace detail {

/// Where that part begins in the tensor, axis by axis.
template <Layout L>
constexpr std::array<std::size_t, Shape::max_rank> local_begin(const Shape& global,
                                                               const place_t<L>& place) {
  return detail::local_begin(detail::layout_value<L>, global, place);
}

}  // namespace detail

/// The part of the split axis that the rank holds; an empty one at 0 if L does not split.
template <PlainLayout L>
constexpr Interval local_block(const Shape& global, Place place) {
  if constexpr (detail::SplitLayout<L>) {
    return detail::held_interval<L>(global[detail::split_position<L>(global)], place);
  } else {
    return {};
  }
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void refuse_axis(const LayoutValue& layout, const Shape& global) {
  throw shape_error({"a tensor ", global, " cannot be laid out as ", layout, ": it has no axis ",
                     name(layout.axis), ". Name one of its axes in the layout"});
}

SHARDWISE_INLINE void refuse_axis(const MeshLayoutValue& layout, MeshAxis along,
                                  const Shape& global) {
  throw shape_error({"a tensor ", global, " cannot be laid out as ", layout, ": it has no axis ",
                     name(layout[along].axis), ", of which ranks along ", name(along),
                     " would have parts. Name one of its axes in the layout, or take a mesh with "
                     "one rank along ",
                     name(along)});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
