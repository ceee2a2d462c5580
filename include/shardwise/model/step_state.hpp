#pragma once
// The training step of a model: its number, and how far it is.

#include <cstdint>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/changing.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/model/flight.hpp"
#include "shardwise/model/gradient_state.hpp"

namespace shardwise::detail {

/// What a model knows about its current `Step` (train/step.hpp).
struct StepUnderWay {
  double loss_scale = 1;   ///< factor of its gradients
  double batch_share = 1;  ///< samples of the batch by those of the step
  GivenOptions options{};  ///< where ranks compare what they are given
};

/// The state of a step.
template <class Backend>
struct StepState {
  /// Step 1; the backend's copy of the number lies in the pool.
  StepState(Backend& backend, Pool& pool) : number_there(backend, pool, 1) {}

  std::uint64_t number = 1;  ///< selects random numbers of layers; 0 is for initial weights
  Changing<Backend, std::uint32_t> number_there;  ///< for loops on a device
  GradientState gradients = GradientState::none;  ///< how far they are
  const StepUnderWay* under_way = nullptr;        ///< null between Steps, or without any
  BatchPlace batch{};                  ///< of the batch that runs, or behind the one that ran
  std::uint64_t samples_backward = 0;  ///< that ran backward
  GivenAlike given{};                  ///< for this batch, if it is compared
  GivenAlike given_to_all{};           ///< the same without the rank's slice of it

  /// Sets the number, also for later work of the backend.
  void begin(Backend& backend, std::uint64_t step) {
    number_there.set(backend, RandomStream::step_word(step));
    number = step;
  }

  /// Goes back to the state before its first batch.
  void forget_batches() {
    gradients = GradientState::none;
    under_way = nullptr;
    batch = {};
    samples_backward = 0;
    given = given_to_all = {};
  }

  /// Whether gradients of a batch replace the old values or are added to them.
  Write write() const noexcept {
    return gradients == GradientState::none ? Write::replace : Write::add;
  }

  /// The share of the batch in the step.
  double batch_share() const { return under_way == nullptr ? 1 : under_way->batch_share; }

  /// Factor of the gradients that flow, against those of a mean over the samples of this batch.
  double loss_factor() const {
    return under_way == nullptr ? 1 : under_way->loss_scale * under_way->batch_share;
  }
};

}  // namespace shardwise::detail
