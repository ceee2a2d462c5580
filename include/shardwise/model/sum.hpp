#pragma once
// Sums of several values.

#include <array>
#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/merge.hpp"
#include "shardwise/layers/stream.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

namespace detail {

/// sum = terms[0] + terms[1] + ..., rounded once. `sum` may be one of the terms.
template <class T, std::size_t N>
struct Summed {
  std::array<const T*, N> terms;
  T* sum;

  constexpr void operator()(std::size_t i) const {
    auto total = static_cast<accumulate_t<T>>(terms[0][i]);
    for (std::size_t n = 1; n < N; ++n) total += static_cast<accumulate_t<T>>(terms[n][i]);
    sum[i] = static_cast<T>(total);
  }
};

}  // namespace detail

/// y = a + b + ..., element by element. The gradient of each term is that of y.
/// layout   L -> L, for every L but Partial and Replicated; all terms are converted to the layout
///          of the first one
/// sends    nothing
/// throws   shape_error if the shapes are not equal
struct Sum : KeepsStream {
  ///@{
  /// As `Merge` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool in_place = true;
  static constexpr bool passes_gradient = true;

  template <std::size_t N>
  constexpr Shape output_shape(const std::array<Shape, N>& terms) const {
    Shape known = terms[0];
    for (const Shape& term : terms) {
      if (known.rank() == 0) known = term;
      if (term.rank() > 0 && !(term == known)) {
        throw shape_error({"a Sum is given tensors ", known, " and ", term,
                           ": all that it adds must have the same shape"});
      }
    }
    return known;
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& terms, const Y& y) const {
    using Summed = detail::Summed<typename Frame::dtype, std::tuple_size_v<X>>;
    frame.backend().for_each(y.size(), std::apply(
                                           [&](const auto&... term) {
                                             return Summed{{term.data()...}, y.data()};
                                           },
                                           terms));
  }
  ///@}
};

/// The Sum of values that may be summands themselves. It leaves them so, and ranks sum the total
/// once instead of each term:
///
///     Join<PartialSum, Attention, Perceptron>     both end with a RowParallelLinear
///
/// layout   L -> L, for every L but Replicated; all terms are converted to the layout of the first
///          one, and if that is Partial none of them may be Replicated
/// sends, throws    as Sum
struct PartialSum : Sum {
  /// As `Merge` says.
  template <Layout Offered, Layout Wanted>
  using input_layout = std::conditional_t<std::same_as<Offered, Partial>, Partial,
                                          Sum::input_layout<Offered, Wanted>>;
};

}  // namespace shardwise
