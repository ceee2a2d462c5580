#pragma once
// The number types of a model.

#include "shardwise/core/dtype.hpp"

namespace shardwise {

/// The dtypes of a model that uses several:
///
///     Context<Precision<bf16, float>, OneDnn, ThreadCommunicator>
///
///     Compute    inputs, outputs and saved values of layers, and their copies of parameters
///     Parameter  parameters themselves, and their initial values; optimizers compute and store
///                moments in accumulate_t of it
///     Gradient   the sums of parameters' gradients, over the batches of a step
///     Reduce     gradients in the collectives that settle them
///
/// Copies are rounded again when parameters have changed. A layer computes the gradients of one
/// batch in Compute, from sums in accumulate_t of it; these rounded gradients are added in
/// Gradient, as in PyTorch's autocast. Between layers, ranks exchange values in Compute; each sum
/// over ranks is computed in accumulate_t and rounded once.
///
/// A rank's memory has its parameters and gradients in their own dtypes, and a copy of each in
/// Compute if Compute differs.
///
/// A plain dtype T is short for Precision<T>: all four are the same, nothing is copied or rounded.
template <Real Compute, Real Parameter = Compute, Real Gradient = Parameter, Real Reduce = Gradient>
struct Precision {
  ///@{
  /// The dtypes above.
  using compute = Compute;
  using parameter = Parameter;
  using gradient = Gradient;
  using reduce = Reduce;
  ///@}
};

namespace detail {

template <class P>
struct precision_of;
template <Real T>
struct precision_of<T> {
  using type = Precision<T>;
};
template <Real C, Real P, Real G, Real R>
struct precision_of<Precision<C, P, G, R>> {
  using type = Precision<C, P, G, R>;
};

/// `value` in another number type.
template <Real To, Real From>
constexpr To rounded(From value) {
  return static_cast<To>(static_cast<accumulate_t<To>>(static_cast<accumulate_t<From>>(value)));
}

/// to[i] = from[i] in another number type.
template <Real To, Real From>
struct RoundTo {
  const From* from;
  To* to;
  constexpr void operator()(std::size_t i) const { to[i] = rounded<To>(from[i]); }
};

/// A dtype that layers compute with, or a Precision.
/// valid: `float`, `Precision<bf16, float>`      invalid: `int`
template <class P>
concept PrecisionChoice = requires {
  typename detail::precision_of<P>::type;
};

}  // namespace detail

}  // namespace shardwise
