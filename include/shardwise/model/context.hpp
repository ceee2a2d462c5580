#pragma once
// What a model is compiled for: named once, for all of its layers.

#include <concepts>
#include <type_traits>

#include "shardwise/backend/backend.hpp"
#include "shardwise/comm/communicator_checks.hpp"
#include "shardwise/model/observer.hpp"
#include "shardwise/model/precision.hpp"

namespace shardwise {

/// Dtype or Precision, backend and communicator of a model, and who looks on while it runs.
///     Context<float, Reference, ThreadCommunicator>
///     Context<float, Reference, ThreadCommunicator, Tracer>
template <class P, class B, class C, class O = Unobserved>
struct Context {
  static_assert(PrecisionChoice<P>,
                "P is no number type that layers compute in. Context<P, Backend, Communicator> "
                "takes float, double, bf16, fp16 or a Precision of those first.");
  static_assert(detail::must_be_communicator<C>());
  static_assert(Observer<O>,
                "O is no observer. Context<P, Backend, Communicator, O> takes Unobserved, Tracer "
                "or a type that can be made without arguments and has begin(const Work&) and a "
                "noexcept end().");

  /// The Precision that P is, or is short for.
  using precision = typename detail::precision_of<P>::type;
  using dtype = typename precision::compute;  ///< of what goes from layer to layer
  using backend = B;                          ///< who computes
  using communicator = C;                     ///< who talks
  using observer = O;                         ///< who looks on
};

/// The use of a model that is trained: parameters have gradients, the model's input has none.
struct Train {
  static constexpr bool trains = true;           ///< whether there are gradients
  static constexpr bool input_gradient = false;  ///< whether the model's input has one
};
/// The use of a model that is trained and gives the gradient of its input, which costs what is sent
/// and computed for it.
struct TrainWithInputGradient {
  static constexpr bool trains = true;          ///< whether there are gradients
  static constexpr bool input_gradient = true;  ///< whether the model's input has one
};
/// The use of a model that only goes forward: it has no gradients and saves nothing.
struct ForwardOnly {
  static constexpr bool trains = false;          ///< whether there are gradients
  static constexpr bool input_gradient = false;  ///< whether the model's input has one
};

/// The use with these properties.
template <bool Trains, bool InputGradient>
using use_of = std::conditional_t<!Trains, ForwardOnly,
                                  std::conditional_t<InputGradient, TrainWithInputGradient, Train>>;

/// What a model is used for: `Train`, `TrainWithInputGradient` or `ForwardOnly`.
template <class U>
concept ModelUse = std::same_as<U, Train> || std::same_as<U, TrainWithInputGradient> ||
    std::same_as<U, ForwardOnly>;

}  // namespace shardwise
