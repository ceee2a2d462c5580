#pragma once
// What a model is compiled for: named once, for all of its layers.

#include "shardwise/backend/backend.hpp"
#include "shardwise/comm/communicator_checks.hpp"
#include "shardwise/model/precision.hpp"

namespace shardwise {

/// Dtype or Precision, backend and communicator of a model.
///     Context<float, Reference, ThreadCommunicator>
template <class P, class B, class C>
struct Context {
  static_assert(PrecisionChoice<P>,
                "P is no number type that layers compute in. Context<P, Backend, Communicator> "
                "takes float, double, bf16, fp16 or a Precision of those first.");
  static_assert(detail::must_be_communicator<C>());

  /// The Precision that P is, or is short for.
  using precision = typename detail::precision_of<P>::type;
  using dtype = typename precision::compute;  ///< of what goes from layer to layer
  using backend = B;                          ///< who computes
  using communicator = C;                     ///< who talks
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

/// What a model is used for: `Train`, `TrainWithInputGradient` or `ForwardOnly`.
template <class U>
concept ModelUse = std::same_as<U, Train> || std::same_as<U, TrainWithInputGradient> ||
    std::same_as<U, ForwardOnly>;

}  // namespace shardwise
