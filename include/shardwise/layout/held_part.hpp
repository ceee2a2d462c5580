#pragma once
// The part that a rank holds of a tensor: a block of each of its axes.

#include <cstddef>
#include <cstdint>

#include "shardwise/core/mesh.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layout_value.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise::detail {

/// The part that a rank holds of a tensor.
struct HeldPart {
  Shape whole;                       ///< of the tensor
  Shape local;                       ///< of the part
  PartBegin begin{};                 ///< the first element of the part in the tensor, axis by axis
  std::uint64_t samples_before = 0;  ///< of its step, where the tensor is of one of several batches

  /// The share of the part in the elements of the tensor; 0 if that has none.
  constexpr double share() const {
    const std::size_t all = whole.elements();
    return all == 0 ? 0 : static_cast<double>(local.elements()) / static_cast<double>(all);
  }
};

/// Of a tensor of shape `whole`, on the rank at `place`.
/// throws   shape_error if the tensor lacks an axis that `layout` cuts over several ranks
constexpr HeldPart held_part(const MeshLayoutValue& layout, const Shape& whole,
                             const MeshPlace& place) {
  HeldPart part{whole, whole};
  part.begin = take_part(part.local, layout, place);
  return part;
}
/// Of the tensor of a view.
template <class T, Layout L, class E>
constexpr HeldPart held_part(const View<T, L, E>& view) {
  return {view.global(), view.local(), local_begin<L>(view.global(), view.place())};
}

}  // namespace shardwise::detail
