#pragma once
// A base of layers: sizes in the type of a layer, or in the object.

#include <array>
#include <cstddef>
#include <string>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"

namespace shardwise {

namespace detail {

/// The error for another number of sizes than the type of a layer leaves open.
template <std::size_t Given, std::size_t Dynamic>
consteval void sizes_must_be_dynamic() {
  static_assert(Given == Dynamic,
                "A layer is given Given sizes at construction, but its type leaves Dynamic of its "
                "sizes open. Give those that are `dynamic` in its type, in their order, and only "
                "those: a size in the type is never given again.");
}

/// The sizes that the type of a layer leaves open, `Count` of at most two.
template <std::size_t Count>
struct GivenSizes {
  std::array<std::size_t, Count> sizes;
  constexpr explicit GivenSizes(std::size_t first = 0, std::size_t second = 0) {
    sizes.front() = first;
    sizes.back() = Count == 1 ? first : second;
  }
  constexpr std::size_t first() const { return sizes.front(); }
  constexpr std::size_t last() const { return sizes.back(); }
};
template <>
struct GivenSizes<0> {
  constexpr explicit GivenSizes(std::size_t = 0, std::size_t = 0) {}
};

}  // namespace detail

/// The sizes of a layer's input and output over all ranks, such as their features: `Sized<In,
/// Out>`, or `Sized<N>` if both are equal. Each is in the type or, if it is `dynamic` there, in the
/// object. The constructor takes the dynamic sizes in their order, and layers inherit it:
/// `Linear<split::output, dynamic, 10>(512)`.
template <std::size_t... Ns>
class Sized {
  static constexpr std::size_t by_type[sizeof...(Ns)] = {Ns...};

 public:
  static constexpr std::size_t in_features = by_type[0];                   ///< or `dynamic`
  static constexpr std::size_t out_features = by_type[sizeof...(Ns) - 1];  ///< or `dynamic`
  /// The number of sizes that the constructor takes.
  static constexpr std::size_t sizes_to_give = (0 + ... + (Ns == dynamic ? 1 : 0));

  /// If all sizes are in the type; otherwise it does not compile.
  constexpr Sized() { detail::sizes_must_be_dynamic<0, sizes_to_give>(); }

  /// If one size is `dynamic`; otherwise it does not compile.
  constexpr explicit Sized(std::size_t size) : given_(size) {
    detail::sizes_must_be_dynamic<1, sizes_to_give>();
  }

  /// If both are `dynamic`; otherwise it does not compile.
  constexpr Sized(std::size_t in, std::size_t out) : given_(in, out) {
    detail::sizes_must_be_dynamic<2, sizes_to_give>();
  }

  /// The size of the input.
  constexpr std::size_t in() const {
    if constexpr (in_features == dynamic) {
      return given_.first();
    } else {
      return in_features;
    }
  }
  /// The size of the output.
  constexpr std::size_t out() const {
    if constexpr (out_features == dynamic) {
      return given_.last();
    } else {
      return out_features;
    }
  }

 private:
  [[no_unique_address]] detail::GivenSizes<sizes_to_give> given_{};
};

namespace detail {

/// x, if its rows have `size` features; the shape of such a row, if x is not known yet. `does` is
/// what the layer does with them: "the layer normalises".
/// throws   shape_error if x has another innermost axis or extent
constexpr Shape rows_of_features(const Shape& x, std::size_t size, const char* does) {
  if (x.rank() == 0) return Shape{{Axis::feature, size}};
  const Dim& last = x.back();
  if (last.axis == Axis::feature && (!last.known() || last.extent() == size)) return x;
  throw shape_error({"the input is a tensor ", x, ", but ", does, " rows of ", size,
                     " features: the innermost axis must be feature with that extent"});
}

/// As it stands in the name of a type: "512" or "dynamic".
std::string size_name(std::size_t size);

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE std::string size_name(std::size_t size) {
  return size == dynamic ? "dynamic" : std::to_string(size);
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
