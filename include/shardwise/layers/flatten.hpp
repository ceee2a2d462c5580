#pragma once
// An axis and all behind it become features: the same memory with fewer axes.

#include <cstddef>
#include <string>

#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/detail/whole_planes.hpp"
#include "shardwise/layers/layer.hpp"

namespace shardwise {

/// [batch, ..., A, ...] -> [batch, ..., feature], with one unit for each unit of A; the grain is
/// the number of elements behind it. So shards are whole units of A, and a row-parallel layer after
/// this one needs no redistribution. PyTorch's Flatten counts axes: for images `Flatten(2)` is
/// `FlattenFrom<Axis::height>`; for [batch, sequence, feature] its default is
/// `FlattenFrom<Axis::sequence>`.
/// layout   Sharded<A> -> Sharded<feature>;   L -> L for Invariant, Replicated, Partial, and a
///          split of an axis in front of A;   a split of an axis behind A would cut features into
///          separate pieces: it becomes the preferred layout among these, or Sharded<A>
///          (all-to-all)
/// sends    nothing
/// throws   shape_error if x does not begin with batch, has no A, or has its axes in another order
///          than [batch, sequence, channel, depth, height, width, feature]
template <Axis A>
struct FlattenFrom : detail::WholeFrom<A> {
  static_assert(
      detail::is_in_front(Axis::batch, A),
      "FlattenFrom<A> flattens an axis behind batch: sequence, channel, an axis of space, "
      "or feature.");

  /// Backward needs nothing but the gradient.
  static constexpr Saves saves = Saves::nothing;
  /// Elements stay where they are in memory.
  static constexpr bool reshapes = true;

  /// The shape of the output for an input of shape x.
  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0) return x;
    check(x);
    const std::size_t at = x.find(A);
    Shape y;
    for (std::size_t i = 0; i < at; ++i) y.append(x[i]);
    for (std::size_t i = at; i < x.rank(); ++i) {
      if (x[i].known()) continue;
      y.append({Axis::feature, dynamic});
      return y;
    }
    const std::size_t plane = x[at].grain * x.elements(at + 1, x.rank());
    y.append({Axis::feature, x[at].units, plane});
    return y;
  }

 private:
  static constexpr void check(const Shape& x) {
    const std::size_t at = x.find(A);
    bool fits = x[0].axis == Axis::batch && at < x.rank();
    for (std::size_t i = 0; i < x.rank() && fits; ++i) {
      if (i != at)
        fits = i < at ? detail::is_in_front(x[i].axis, A) : detail::is_in_front(A, x[i].axis);
    }
    if (fits) return;
    const std::string wanted = A == Axis::channel
                                   ? "Flatten takes [batch, channel, ...]"
                                   : "FlattenFrom<" + std::string(name(A)) +
                                         "> takes [batch, ..., " + std::string(name(A)) + ", ...]";
    throw shape_error({"the input is a tensor ", x, ", but ", wanted});
  }
};

/// `FlattenFrom<Axis::channel>`: [batch, channel, ...] -> [batch, feature], with one unit for each
/// channel, whose grain is the size of a plane.
struct Flatten : FlattenFrom<Axis::channel> {};

/// "FlattenFrom<height>".
template <Axis A>
struct NameOf<FlattenFrom<A>> {
  static std::string name() { return "FlattenFrom<" + std::string(shardwise::name(A)) + '>'; }
};

}  // namespace shardwise
