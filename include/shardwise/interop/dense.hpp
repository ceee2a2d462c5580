#pragma once
// Memory that other libraries describe by extents and strides, as a tensor: named axes, row-major,
// without gaps.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardwise/core/checked_size.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"

namespace shardwise::detail {

/// The shape with these axes, outermost first, and these extents.
/// throws   shape_error, beginning with `where`, if their numbers differ, or if the number of
///          elements cannot be counted
inline Shape named_shape(std::span<const Axis> axes, const std::vector<std::uint64_t>& extents,
                         const std::string& where) {
  if (axes.size() != extents.size()) {
    throw shape_error({where, ": has ", extents.size(), " axes, ", shape_text(extents), ", but ",
                       axes.size(), " names were given for them; give one name for each axis"});
  }
  if (axes.size() > Shape::max_rank) {
    throw shape_error({where, ": has ", axes.size(), " axes, and a tensor has at most ",
                       Shape::max_rank, "; reshape it first"});
  }
  Shape shape;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    shape.append({axes[i], static_cast<std::size_t>(extents[i])});
  }
  if (!shape.countable()) {
    throw shape_error(
        {where, ": has the shape ", shape_text(extents), ", more elements than can be counted"});
  }
  return shape;
}

/// The strides, in elements, of dense row-major memory of this shape.
inline std::vector<std::int64_t> dense_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.rank());
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    strides[i] = static_cast<std::int64_t>(shape.elements(i + 1, shape.rank()));
  }
  return strides;
}

/// An axis with one element may have any stride; so may all axes of an empty tensor.
///
/// throws   shape_error, beginning with `where`, if strides (in elements) are not those of dense
///          row-major memory
inline void require_dense(const Shape& shape, std::span<const std::int64_t> strides,
                          const std::string& where) {
  const std::vector<std::int64_t> dense = dense_strides(shape);
  for (std::size_t i = 0; i < shape.rank() && shape.elements() > 0; ++i) {
    if (shape[i].extent() == 1 || strides[i] == dense[i]) continue;
    throw shape_error({where, ": axis ", i, " of ", shape, " has the stride ", strides[i],
                       " where dense row-major memory has ", dense[i],
                       "; give a contiguous copy in C order"});
  }
}

}  // namespace shardwise::detail
