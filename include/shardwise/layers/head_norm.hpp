#pragma once
// Normalisation of each head of a token by the root of its mean square.

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "shardwise/core/error.hpp"
#include "shardwise/layers/detail/row_exchange.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/row_norm.hpp"

namespace shardwise {

namespace detail {

/// Rows that are heads of Size features: units of the innermost axis of x.
template <std::size_t Size>
struct HeadRows : NormSized<Size> {
  using NormSized<Size>::NormSized;
  using NormSized<Size>::in;

  static constexpr std::size_t in_features = dynamic;

  template <Layout In>
  using parameter =
      ParameterUse<Invariant, std::conditional_t<std::same_as<In, Invariant>, In, Replicated>>;
  template <Layout In>
  using sum = Exchange<Redistribute<In, In>>;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0 || (x.back().axis == Axis::feature && x.back().grain == in())) return x;
    throw shape_error({"the input is a tensor ", x, ", but the layer normalises heads of ", in(),
                       " features: the innermost axis must be feature heads*", in()});
  }

 protected:
  /// As FeatureRows says.
  constexpr Dim features(const Shape&) const { return {Axis::feature, in()}; }
  static constexpr Shape one_of_each_row(const Shape& x) {
    Shape heads = x;
    if (x.rank() > 0) heads[x.rank() - 1].grain = 1;
    return heads;
  }
  template <class X>
  RowExtents here(const X& x) const {
    return {x.size() / in(), in()};
  }
};

}  // namespace detail

/// y = x / sqrt(Σ x² / Size + epsilon) w over the Size features of each head, with one w for all
/// heads: RmsNorm whose rows are heads. The grain of x's features is the size of a head, see
/// HeadLinear.
///
/// layout           L -> L, for every L but Partial
/// gradient owes    an all-reduce of w's, unless L is Invariant: ranks have other heads or tokens
/// saves    x, and a number for each head
/// sends    nothing
/// throws   shape_error if the innermost axis is not feature in units of Size
/// source   Dehghani et al. 2023, section 2; Qwen Team 2025 (Qwen3)
template <std::size_t Size>
struct HeadNorm : detail::NormOfRows<false, Affine::weight, detail::HeadRows<Size>> {
  using detail::NormOfRows<false, Affine::weight, detail::HeadRows<Size>>::NormOfRows;

  /// The same layer with its size in the object.
  constexpr auto as_dynamic() const {
    return HeadNorm<dynamic>(this->in(), Epsilon{this->epsilon_});
  }
};

}  // namespace shardwise
