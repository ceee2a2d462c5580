#pragma once
// Who sums gradients into the shares that ranks store, while other layers go backward.

#include <span>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/model/parameter_layout.hpp"

namespace shardwise::detail {

/// Is given the gradients of each layer that has gone backward, where ranks store shares of them.
class GradientReducer {
 public:
  GradientReducer() = default;
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;
  virtual ~GradientReducer() = default;

  /// Begins to sum the gradients of these parameters, one behind the other, over the ranks along
  /// `data`; before that it ends the sums of the layer before.
  virtual void begin(std::span<const ParameterSlot> parameters, Buffer&& gradients,
                     Write write) = 0;
  /// Lets what is under way go on as far as it can without a wait.
  virtual void progress() = 0;
  /// Waits for what is under way, and adds the sums to the share.
  virtual void finish() = 0;
  /// Waits for what is under way, and forgets it.
  virtual void discard() noexcept = 0;
};

/// While it lives, a batch goes backward through the layers; it fails if it does not finish().
class ReducedPass {
 public:
  explicit ReducedPass(GradientReducer* reducer) : reducer_(reducer) {}
  ReducedPass(const ReducedPass&) = delete;
  ReducedPass& operator=(const ReducedPass&) = delete;
  ~ReducedPass() {
    if (reducer_ != nullptr) reducer_->discard();
  }

  /// All layers have gone backward.
  void finish() const {
    if (reducer_ != nullptr) reducer_->finish();
  }

 private:
  GradientReducer* reducer_;
};

}  // namespace shardwise::detail
