#pragma once
// A base of layers: sizes that the type of a layer may or may not know.

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>

#include "shardwise/core/shape.hpp"

namespace shardwise {

/// The sizes of a layer over all ranks, such as its features, of which the first is that of the
/// input and the last that of the output. Each stands in the type or, where that says `dynamic`, in
/// the object, whose constructor is given those in their order.
/// A layer inherits its constructors too: `Linear<split::output, dynamic, 10>(512)`.
template <std::size_t... Ns>
class Sized {
  static constexpr std::array<std::size_t, sizeof...(Ns)> by_type{Ns...};

 public:
  static constexpr std::size_t in_features = by_type.front();  ///< of the input, or `dynamic`
  static constexpr std::size_t out_features = by_type.back();  ///< of the output, or `dynamic`
  /// How many sizes the constructor is to be given.
  static constexpr std::size_t sizes_to_give = (0 + ... + (Ns == dynamic ? 1 : 0));

  /// All are in the type; else this is an error.
  constexpr Sized() { sizes_must_be_dynamic<Sized, 0, sizes_to_give>(); }

  /// Those that are `dynamic`, in their order; another number of them is an error.
  template <std::integral... Given>
  requires(sizeof...(Given) > 0) constexpr explicit Sized(Given... given) : given_(of(given...)) {
    sizes_must_be_dynamic<Sized, sizeof...(Given), sizes_to_give>();
  }

  /// The size of the input.
  constexpr std::size_t in() const { return size(0); }
  /// The size of the output.
  constexpr std::size_t out() const { return size(sizeof...(Ns) - 1); }

 private:
  template <class Sizes, std::size_t Given, std::size_t Dynamic>
  static consteval void sizes_must_be_dynamic() {
    static_assert(Given == Dynamic,
                  "A layer is given Given sizes at construction, but its type leaves Dynamic of "
                  "its Sizes open. Give those that are `dynamic` in its type, in their order, and "
                  "only those: a size in the type is never given again.");
  }

  struct None {};
  using GivenSizes =
      std::conditional_t<sizes_to_give == 0, None, std::array<std::size_t, sizes_to_give>>;

  template <class... Given>
  static constexpr GivenSizes of([[maybe_unused]] Given... given) {
    if constexpr (sizeof...(Given) == sizes_to_give) return {static_cast<std::size_t>(given)...};
    return {};
  }

  constexpr std::size_t size(std::size_t which) const {
    if constexpr (sizes_to_give > 0) {
      std::size_t before = 0;
      for (std::size_t i = 0; i < which; ++i) before += by_type[i] == dynamic ? 1 : 0;
      if (by_type[which] == dynamic) return given_[before];
    }
    return by_type[which];
  }

  [[no_unique_address]] GivenSizes given_{};
};

namespace detail {

/// As it stands in the name of a type: "512" or "dynamic".
inline std::string size_name(std::size_t size) {
  return size == dynamic ? "dynamic" : std::to_string(size);
}

}  // namespace detail

}  // namespace shardwise
