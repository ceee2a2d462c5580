#pragma once
// Layers of one model that use the same parameters.

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include "shardwise/core/names.hpp"
#include "shardwise/layers/layer.hpp"

namespace shardwise {

namespace detail {

/// Whether a layer owns parameters that other layers use, or borrows those of another layer.
enum class Tie : std::uint8_t { owns, borrows };

/// The layer L, whose parameters are tied under the name Tag, see `Owns` and `Borrows`.
template <Tie S, class Tag, class L>
struct Tied : L {
  static_assert(
      requires { L::saves; },
      "Owns and Borrows share the parameters of one layer: write them around the layers of a "
      "composition, not around it.");
  static constexpr Tie tie = S;  ///< whether it owns or borrows them
  using tied_tag = Tag;          ///< identifies the tied parameters

  using L::L;
  constexpr Tied() requires std::is_default_constructible_v<L>
  = default;
  /// A layer with its own initial values or sizes.
  constexpr explicit Tied(const L& layer) : L(layer) {}

  /// The same layer with its sizes in the object, if L has it.
  constexpr auto as_dynamic() const requires detail::runs_as_dynamic<L> {
    using Dynamic = detail::as_dynamic_t<L>;
    return Tied<S, Tag, Dynamic>(detail::as_dynamic<L>(*this));
  }
};

}  // namespace detail

/// L, whose parameters every later `Borrows<Tag, ...>` in the model uses too. Tag is any type:
///
///     struct Table {};
///     struct Net : Sequential<Owns<Table, Linear<split::none, 6, 6>>, Relu,
///                             Borrows<Table, Linear<split::none, 6, 6>>> {};
///
/// A model stores, saves, settles and updates them once, under the name of the owner. Their
/// gradient is the sum over all uses. In a Repeat, each block has its own owner.
template <class Tag, class L>
using Owns = detail::Tied<detail::Tie::owns, Tag, L>;

/// L with the parameters of an earlier `Owns<Tag, ...>` in the model. It must use parameters of the
/// same shapes in the same layouts, since their gradients are added: a gradient that is complete on
/// every rank cannot be added to one that is a summand.
/// throws   shape_error, when a model is made, if a shape is not that of the owner; everything else
///          is an error of the compiler
template <class Tag, class L>
using Borrows = detail::Tied<detail::Tie::borrows, Tag, L>;

namespace detail {

template <class L>
inline constexpr bool is_tied = requires {
  { L::tie } -> std::convertible_to<Tie>;
};
template <class L>
inline constexpr bool borrows_parameters = requires {
  requires L::tie == Tie::borrows;
};

}  // namespace detail

/// "Owns<Linear<none, 6, 6>>".
template <detail::Tie S, class Tag, class L>
struct NameOf<detail::Tied<S, Tag, L>> {
  static std::string name() {
    return (S == detail::Tie::owns ? "Owns<" : "Borrows<") + detail::name_of<L>() + '>';
  }
};

}  // namespace shardwise
