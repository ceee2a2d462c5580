#pragma once
// What goes on between ranks while layers compute, as layers and steps see it.

#include <cstddef>
#include <span>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/model/parameter_layout.hpp"

namespace shardwise::detail {

/// The parameters that one layer uses. (Not as a std::span, which costs compilers 170 classes.)
struct ParametersOfLayer {
  const ParameterSlot* slots = nullptr;  ///< the places of each
  std::size_t count = 0;                 ///< of parameters
  std::size_t recomputed = 0;  ///< identifies the innermost Recompute around it; 0 for none
};

/// The traffic of one model beside its layers: parameters that are gathered before a layer runs,
/// and gradients that are summed behind it, as the ModelOptions say. A model whose layers wait for
/// each other's data has none.
class Traffic {
 public:
  Traffic() = default;
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;
  virtual ~Traffic() = default;

  ///@{
  /// A batch goes through the layers, forward or backward; all layers have run, which waits for the
  /// sums of shares; and it has gone or failed, which waits for what is left, and forgets it.
  virtual void begin_pass(bool goes_backward) = 0;
  virtual void finish_pass() = 0;
  virtual void end_pass() noexcept = 0;
  ///@}

  ///@{
  /// What a layer that runs calls: first this, which lets all that is under way go on as far as it
  /// can without a wait.
  virtual void progress() = 0;
  /// With `layers_ahead`: the parameters of this layer, whose number this is, one behind the other.
  /// Begins to gather those of layers that run after it.
  virtual Buffer take(std::size_t number) = 0;
  /// With `sums_meanwhile`, where the rank stores a share of the gradients: begins to sum those of
  /// these parameters, one behind the other; ends the sums of the layer before.
  virtual void sum_shares(std::span<const ParameterSlot> parameters, Buffer&& gradients,
                          Write write) = 0;
  /// Where it stores all gradients: those of these parameters now contain all that the batch adds
  /// to them. Begins their sums in the last batch of a step.
  virtual void written(std::span<const ParameterSlot> parameters) = 0;
  ///@}

  ///@{
  /// The last batch of a step goes backward next: gradients of which the rank stores all are then
  /// summed over the ranks that have other samples, and each rank gets the sums of its own share if
  /// these are cut. After it: waits for all these sums; does nothing after other batches.
  virtual void begin_last_batch(bool shares_are_cut) = 0;
  virtual void end_last_batch() = 0;
  ///@}
  /// The step is discarded: waits for its sums, and forgets them.
  virtual void discard_step() noexcept = 0;
};

/// While it lives, a batch goes through the layers. A backward that does not finish() has failed.
class TrafficPass {
 public:
  TrafficPass(Traffic* traffic, bool goes_backward) : traffic_(traffic) {
    if (traffic_ != nullptr) traffic_->begin_pass(goes_backward);
  }
  TrafficPass(const TrafficPass&) = delete;
  TrafficPass& operator=(const TrafficPass&) = delete;
  ~TrafficPass() {
    if (traffic_ != nullptr) traffic_->end_pass();
  }

  /// All layers have run.
  void finish() const {
    if (traffic_ != nullptr) traffic_->finish_pass();
  }

 private:
  Traffic* traffic_;
};

}  // namespace shardwise::detail
