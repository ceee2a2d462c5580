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

  using precision = typename detail::precision_of<P>::type;
  using dtype = typename precision::compute;  ///< of what goes from layer to layer
  using backend = B;
  using communicator = C;
};

/// What a model is used for. A model that only goes forward has no gradients and saves nothing;
/// the gradient of the model's own input, and what it sends, is computed only on request.
struct Train {
  static constexpr bool trains = true;
  static constexpr bool input_gradient = false;
};
struct TrainWithInputGradient {
  static constexpr bool trains = true;
  static constexpr bool input_gradient = true;
};
struct ForwardOnly {
  static constexpr bool trains = false;
  static constexpr bool input_gradient = false;
};

template <class U>
concept ModelUse = std::same_as<U, Train> || std::same_as<U, TrainWithInputGradient> ||
    std::same_as<U, ForwardOnly>;

}  // namespace shardwise
