#pragma once
// The planes of images [batch, channel, ...]: all axes of space of a channel.

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/detail/convolution_checks.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise::detail {

template <class L>
inline constexpr bool is_space_split =
    std::same_as<L, Sharded<Axis::depth>> || std::same_as<L, Sharded<Axis::height>> ||
    std::same_as<L, Sharded<Axis::width>>;

/// The layout in which a maximum or an upsampling reads planes that are summands: Wanted if that
/// splits batch or channel, else Invariant.
template <class Wanted>
using summed_planes_t = std::conditional_t<std::same_as<Wanted, Sharded<Axis::batch>> ||
                                               std::same_as<Wanted, Sharded<Axis::channel>>,
                                           Wanted, Invariant>;

/// The rank's elements of plane p, `here` of each.
template <class T>
struct PlaneTerms {
  std::size_t here;
  const T* x;

  constexpr auto operator()(std::size_t p) const {
    return [plane = x + p * here](std::size_t i) { return static_cast<accumulate_t<T>>(plane[i]); };
  }
};

/// Whether x is images [batch, channel, (depth,) (height,) width].
constexpr bool is_images(const Shape& x) {
  if (x.rank() < 3 || x.rank() > 5 || x[0].axis != Axis::batch || x[1].axis != Axis::channel)
    return false;
  for (std::size_t i = 2; i < x.rank(); ++i)
    if (x[i].axis != space_axis(i - 2, x.rank() - 2)) return false;
  return true;
}

/// The elements of a plane of x.
constexpr std::size_t plane_of(const Shape& x) { return x.elements(2, x.rank()); }

/// The shape of one number for each plane of x, with the axes of x.
constexpr Shape number_of_each_plane(const Shape& x) {
  Shape y{x[0], x[1]};
  for (std::size_t i = 2; i < x.rank(); ++i) y.append({x[i].axis, 1});
  return y;
}

/// The same for the input of a layer.
/// throws   shape_error if x is not images, or has empty planes
constexpr Shape one_of_each_plane(const Shape& x) {
  if (x.rank() == 0) return x;
  bool fits = is_images(x);
  for (std::size_t i = 2; i < x.rank(); ++i) fits = fits && x[i].extent() > 0;
  if (!fits) {
    throw shape_error({"the input is a tensor ", x,
                       ", but the layer pools the planes of images [batch, channel, (depth,) "
                       "(height,) width], which must have elements"});
  }
  return number_of_each_plane(x);
}

}  // namespace shardwise::detail
