#pragma once
// A loss of a program's own that adds a term for each element of the prediction.

#include <cstddef>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/train/element_loss.hpp"
#include "shardwise/train/loss.hpp"

namespace shardwise {

namespace detail {

/// Whether f(prediction, target) gives two numbers.
template <class F, class A>
concept GivesTerm = requires(const F& f, A number) {
  static_cast<A>(f(number, number).first);
  static_cast<A>(f(number, number).second);
};

/// The term and the slope of a program's own function.
template <class F>
struct OwnTerm {
  F f;

  template <class A>
  constexpr Term<A> operator()(std::size_t, A prediction, A target) const {
    static_assert(GivesTerm<F, A>,
                  "A LossOfElements calls f(prediction, target) with two numbers of type A, and "
                  "takes from it a std::pair: the term, and its derivative by the prediction.");
    if constexpr (GivesTerm<F, A>) {
      const auto both = f(prediction, target);
      return {static_cast<A>(both.first), static_cast<A>(both.second)};
    } else {
      return {};
    }
  }
};

}  // namespace detail

/// loss = Σ term(prediction, target) / n,   gradient = slope(prediction, target) / n,
/// n the number of elements of the whole prediction, or 1 for a sum. f(prediction, target) returns
/// a std::pair of the term of one element and its derivative by the prediction, and is given
/// numbers in accumulate_t of the dtype:
///
///     LossOfElements log_cosh{[](auto prediction, auto target) {
///       const auto d = prediction - target;
///       return std::pair{std::log(std::cosh(d)), std::tanh(d)};
///     }};
///
/// For a backend of a device f is a type with a name, as `DeviceBackend` says of loops. A step does
/// not compare the derivative with the term; `check_loss` of `testing/` does, in a test of yours.
/// layout   prediction L, gradient L, for Invariant and every Sharded; target Invariant or L
/// sends    nothing for Invariant, an all-reduce of one double for Sharded
/// throws   shape_error if prediction and target differ in shape, argument_error for an empty batch
template <class F>
struct LossOfElements {
  static constexpr const char* name = "loss of elements";  ///< in errors

  F f;                                            ///< as above
  LossReduction reduction = LossReduction::mean;  ///< n above, or 1

  /// Calls visit(name, value) for each option.
  template <class Visit>
  constexpr void visit_options(Visit&& visit) const {
    visit("reduction", detail::word(reduction));
  }

  ///@{
  /// As `Loss` says.
  template <Layout L>
  using exchanges = SumOfTerms<L>;

  void require_target(const Shape& prediction, const Shape& target) const {
    detail::require_equal_shapes(name, prediction, target);
  }

  template <class Frame, Real T, Layout L, class Target>
  auto operator()(Frame& frame, View<const T, L> prediction, const Target& target,
                  View<accumulate_t<T>, dual_t<L>> gradient) const {
    return detail::element_loss(*this, frame, prediction, target, gradient, detail::OwnTerm<F>{f});
  }
  ///@}
};
/// Deduces the type of the function in `LossOfElements{f}`.
template <class F>
LossOfElements(F, LossReduction = LossReduction::mean) -> LossOfElements<F>;

}  // namespace shardwise
