#pragma once
// The order in which a redistribution over a mesh changes the layout along each of its axes.

#include <array>
#include <cstddef>

#include "shardwise/core/mesh.hpp"
#include "shardwise/redistribute/movement.hpp"

namespace shardwise {

namespace detail {

/// Axes of a mesh, each at most once, in the order of the steps of a redistribution.
class MeshSteps {
 public:
  ///@{
  /// The axes, first step first, and their number.
  constexpr const MeshAxis* begin() const { return axes_.data(); }
  constexpr const MeshAxis* end() const { return axes_.data() + size_; }
  constexpr std::size_t size() const { return size_; }
  ///@}

  /// Adds a step along `axis`, which has none yet.
  constexpr void add(MeshAxis axis) { axes_[size_++] = axis; }
  /// Whether there is a step along `axis`.
  constexpr bool has(MeshAxis axis) const {
    for (const MeshAxis step : *this)
      if (step == axis) return true;
    return false;
  }

  friend constexpr bool operator==(const MeshSteps&, const MeshSteps&) = default;

 private:
  std::array<MeshAxis, mesh_axes.size()> axes_{};
  std::size_t size_ = 0;
};

/// A change of layout over a mesh.
struct MeshChange {
  MeshLayoutValue from, to;

  constexpr bool along(MeshAxis axis) const { return !(from[axis] == to[axis]); }

  /// Whether the step along `axis` puts on or takes off a cut of the axis that `layout` cuts.
  constexpr bool touches(MeshAxis axis, const LayoutValue& layout) const {
    return along(axis) && layout.cuts() &&
           (from[axis].cuts(layout.axis) || to[axis].cuts(layout.axis));
  }

  /// Cuts of one tensor axis are a stack, outer mesh axis first: a cut is put on or taken off only
  /// if no inner one lies on it. So the step along `axis` waits for that along `other` if that
  /// takes such an inner cut off, or if this step puts one on that `other` would have to reach
  /// under.
  constexpr bool must_wait(MeshAxis axis, MeshAxis other) const {
    return (axis < other && touches(axis, from[other])) ||
           (other < axis && touches(other, to[axis]));
  }

  /// Whether a window reads along an axis of the tensor that another mesh axis cuts too. A halo is
  /// exchanged along one mesh axis, so it would end where the blocks of the other one end.
  constexpr bool cuts_a_halo() const {
    for (const MeshAxis axis : mesh_axes)
      for (const LayoutValue* halo : {&from[axis], &to[axis]}) {
        if (!halo->has_halo()) continue;
        for (const MeshAxis other : mesh_axes)
          if (axis != other && (from[other].cuts(halo->axis) || to[other].cuts(halo->axis)))
            return true;
      }
    return false;
  }
};

/// How early a step comes. First what makes the parts smaller, last what makes them larger, so that
/// the steps between send little.
constexpr int phase_of(Movement movement) {
  switch (movement) {
    case Movement::slice:
    case Movement::reduce_scatter:
    case Movement::halo_sum:
      return 0;
    case Movement::all_gather:
    case Movement::pad:
    case Movement::halo_exchange:
    case Movement::halo_all_reduce:
      return 2;
    default:
      return 1;
  }
}

/// The next step after `done`: of those that need not wait for another one, the one of the earliest
/// phase. In phase 0 the outermost comes first, so that the inner ones cut its blocks; otherwise
/// the innermost. Null if none is left, or if each waits for another one.
constexpr const MeshAxis* next_step(const MeshChange& change, const MeshSteps& done) {
  const MeshAxis* next = nullptr;
  int earliest = 3;
  for (const MeshAxis& axis : mesh_axes) {
    if (!change.along(axis) || done.has(axis)) continue;
    bool waits = false;
    for (const MeshAxis other : mesh_axes)
      waits |= other != axis && !done.has(other) && change.must_wait(axis, other);
    const int phase = phase_of(movement_of(change.from[axis], change.to[axis]));
    if (waits || phase > earliest || (phase == earliest && phase == 0)) continue;
    earliest = phase;
    next = &axis;
  }
  return next;
}

constexpr MeshSteps steps_of(const MeshLayoutValue& from, const MeshLayoutValue& to) {
  const MeshChange change{from, to};
  MeshSteps steps;
  while (const MeshAxis* next = next_step(change, steps)) steps.add(*next);
  return steps;
}

/// Whether each step is an all-reduce, and there is one. Sizes of meshes do not matter, so that
/// every mesh allows the same.
constexpr bool only_reduces(const MeshLayoutValue& from, const MeshLayoutValue& to) {
  for (const MeshAxis axis : mesh_axes)
    if (!(from[axis] == to[axis]) && movement_of(from[axis], to[axis]) != Movement::all_reduce)
      return false;
  return !(from == to);
}

/// Whether each step is an all-reduce or moves no element, so that each may work in place,
/// whichever of them a mesh has.
constexpr bool may_work_in_place(const MeshLayoutValue& from, const MeshLayoutValue& to) {
  for (const MeshAxis axis : mesh_axes) {
    const Movement movement = movement_of(from[axis], to[axis]);
    if (movement != Movement::all_reduce && movement != Movement::none) return false;
  }
  return true;
}

/// Whether the change along each mesh axis exists.
constexpr bool exists_along_each(const MeshLayoutValue& from, const MeshLayoutValue& to) {
  for (const MeshAxis axis : mesh_axes)
    if (!exists(from[axis], to[axis])) return false;
  return true;
}

/// Whether there is an order of steps, too.
constexpr bool exists(const MeshLayoutValue& from, const MeshLayoutValue& to) {
  if (!exists_along_each(from, to) || MeshChange{from, to}.cuts_a_halo()) return from == to;
  const MeshSteps steps = steps_of(from, to);
  for (const MeshAxis axis : mesh_axes)
    if (!(from[axis] == to[axis]) && !steps.has(axis)) return false;
  return true;
}

}  // namespace detail
}  // namespace shardwise
