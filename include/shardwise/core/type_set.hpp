#pragma once
// Sets of types, and a value that identifies a type at run time.

#include <concepts>
#include <type_traits>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// Types without duplicates, in the order of their first occurrence.
template <class... Ts>
struct TypeSet {
  /// A template with these arguments.
  template <template <class...> class To>
  using as = To<Ts...>;
};

///@{
/// The types of both, for `decltype`.
template <class... Ts>
auto operator|(TypeSet<Ts...>, TypeSet<>) -> TypeSet<Ts...>;
template <class... Ts, class One, class... Others>
auto operator|(TypeSet<Ts...>, TypeSet<One, Others...>) {
  using WithOne =
      std::conditional_t<(std::same_as<Ts, One> || ...), TypeSet<Ts...>, TypeSet<Ts..., One>>;
  return decltype(WithOne{} | TypeSet<Others...>{}){};
}
///@}

/// An object of each type, whose address is unique.
template <class T>
inline constexpr char identity_of = 0;

}  // namespace shardwise::detail
