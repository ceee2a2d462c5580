#pragma once
// The named axes of a tensor and their extents.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// The meaning of an axis of a tensor. Weights have `output` and `input`, activations the others;
/// the weight of a convolution also has spatial axes, those of its taps, and the weights of a
/// mixture of experts have `expert`.
enum class Axis : std::uint8_t {
  batch,
  sequence,
  feature,
  channel,
  height,
  width,
  output,
  input,
  depth,
  expert
};

/// "feature".
constexpr std::string_view name(Axis axis) {
  constexpr std::string_view names[] = {"batch", "sequence", "feature", "channel", "height",
                                        "width", "output",   "input",   "depth",   "expert"};
  return names[static_cast<std::size_t>(axis)];
}

/// A size that is given at run time: `Linear<split::output, dynamic, 512>`.
inline constexpr std::size_t dynamic = static_cast<std::size_t>(-1);

/// One axis: `units` units that a split keeps whole, each of `grain` neighbouring elements. A plain
/// feature has grain 1, a flattened channel has grain height * width. `readers` is for values of
/// which several units of another value read one, such as the key heads of an attention.
struct Dim {
  Axis axis = Axis::batch;  ///< its meaning
  std::size_t units = 0;    ///< or `dynamic`, if the size is not known yet
  std::size_t grain = 1;    ///< elements of one unit
  std::size_t readers = 1;  ///< neighbouring units of another value that read one unit

  /// Whether the size is known.
  constexpr bool known() const { return units != dynamic; }
  /// Elements: units times grain, or `dynamic`.
  constexpr std::size_t extent() const { return known() ? units * grain : dynamic; }

  friend constexpr bool operator==(const Dim&, const Dim&) = default;
};

/// The axes of a tensor, outermost first. A value, usable in constant expressions.
/// The batch of a shape that a model is bound to may be `dynamic`.
class Shape {
 public:
  static constexpr std::size_t max_rank = 6;  ///< axes that a shape can have

  constexpr Shape() = default;
  /// Outermost axis first. Throws argument_error beyond `max_rank` axes.
  constexpr Shape(std::initializer_list<Dim> dims) {
    for (const Dim& dim : dims) append(dim);
  }

  ///@{
  /// The number of axes, and each axis, outermost first. A shape without axes has no back.
  constexpr std::size_t rank() const { return rank_; }
  constexpr const Dim& operator[](std::size_t i) const { return dims_[i]; }
  constexpr Dim& operator[](std::size_t i) { return dims_[i]; }
  constexpr const Dim* begin() const { return dims_.data(); }
  constexpr const Dim* end() const { return dims_.data() + rank_; }
  constexpr const Dim& back() const { return dims_[rank_ - 1]; }
  ///@}

  /// Throws argument_error beyond `max_rank` axes.
  constexpr void append(const Dim& dim) {
    if (rank_ == max_rank) throw argument_error("a shape has at most 6 axes");
    dims_[rank_++] = dim;
  }

  /// The same axes with the innermost one replaced.
  constexpr Shape with_back(const Dim& dim) const {
    Shape result = *this;
    if (rank_ == 0) {
      result.append(dim);
    } else {
      result.dims_[rank_ - 1] = dim;
    }
    return result;
  }

  /// The same axes without the innermost one: one element for each row.
  constexpr Shape without_back() const {
    Shape result = *this;
    if (rank_ > 0) --result.rank_;
    return result;
  }

  /// The position of `axis`, or `rank()` if the tensor has no such axis.
  constexpr std::size_t find(Axis axis) const {
    for (std::size_t i = 0; i < rank_; ++i) {
      if (dims_[i].axis == axis) return i;
    }
    return rank_;
  }

  /// Whether the tensor has such an axis.
  constexpr bool has(Axis axis) const { return find(axis) != rank_; }

  /// Number of elements of the axes [first, last).
  constexpr std::size_t elements(std::size_t first, std::size_t last) const {
    std::size_t product = 1;
    // The second bound tells compilers what they cannot see: no shape has more axes.
    for (std::size_t i = first; i < last && i < max_rank; ++i) product *= dims_[i].extent();
    return product;
  }

  /// Number of elements of the tensor.
  constexpr std::size_t elements() const { return elements(0, rank_); }

  /// Whether all extents are known, and the number of elements and of their bytes does not
  /// overflow. All other code relies on this, so check it before you allocate memory for a tensor.
  [[gnu::noinline]] constexpr bool countable() const {
    constexpr std::size_t most = static_cast<std::size_t>(-1) / 16;
    std::size_t product = 1;
    for (std::size_t i = 0; i < rank_; ++i) {
      const Dim& dim = dims_[i];
      if (!dim.known() || (dim.grain != 0 && dim.units > most / dim.grain)) return false;
      const std::size_t extent = dim.extent();
      if (extent == 0) return true;
      if (product > most / extent) return false;
      product *= extent;
    }
    return true;
  }

  /// Number of rows. A row is one run along the innermost axis.
  constexpr std::size_t rows() const { return rank_ == 0 ? 1 : elements(0, rank_ - 1); }

  friend constexpr bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (std::size_t i = 0; i < a.rank_; ++i) {
      if (!(a.dims_[i] == b.dims_[i])) return false;
    }
    return true;
  }

 private:
  std::array<Dim, max_rank> dims_;
  std::size_t rank_ = 0;
};

/// "[batch 64, feature 32*49]": units, and the grain if it is not 1; "?" for `dynamic`. Readers are
/// printed if they are not 1: "[batch 64, feature 2*16 read by 4]".
[[gnu::cold]] std::string to_string(const Shape& shape);

/// A shape as a type, for tensors whose extents the compiler knows: `Extents<Dim{Axis::batch, 32},
/// Dim{Axis::feature, 608}>`. An extent may be `dynamic`; `Extents<>` leaves even the rank open.
template <Dim... Dims>
struct Extents {
  /// Whether `shape` has these axes with these sizes.
  static constexpr bool admits(const Shape& shape) {
    if constexpr (sizeof...(Dims) == 0) {
      return true;
    } else {
      const Shape wanted = pattern();
      if (wanted.rank() != shape.rank()) return false;
      for (std::size_t i = 0; i < wanted.rank(); ++i) {
        if (wanted[i].axis != shape[i].axis) return false;
        if (wanted[i].known() && !(wanted[i] == shape[i])) return false;
      }
      return true;
    }
  }

  /// The shape, with `dynamic` for open extents.
  static constexpr Shape pattern() { return Shape{Dims...}; }
  /// Whether all extents are in the type, and there is at least one.
  static constexpr bool is_static = sizeof...(Dims) > 0 && (Dims.known() && ...);
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const Dim& dim : shape) {
    detail::append(text, {text.size() > 1 ? ", " : "", name(dim.axis), " ",
                          dim.known() ? detail::sentence({dim.units}) : "?"});
    if (dim.grain != 1) detail::append(text, {"*", dim.grain});
    if (dim.readers != 1) detail::append(text, {" read by ", dim.readers});
  }
  return detail::sentence({text, "]"});
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
