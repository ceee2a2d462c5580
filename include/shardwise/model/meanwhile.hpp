#pragma once
// Who works for a model while its layers run: it gathers their parameters before, or sums their
// gradients behind them.

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

/// Is asked for whole parameters by each layer that runs, where ranks store shares of them.
class Prefetcher {
 public:
  Prefetcher() = default;
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  virtual ~Prefetcher() = default;

  ///@{
  /// A batch goes through the layers, forward or backward; and it has gone, or failed.
  virtual void begin_pass(bool goes_backward) = 0;
  virtual void end_pass() noexcept = 0;
  ///@}
  /// The parameters of layer `number`, which runs now, one behind the other. Begins to gather those
  /// of layers that run after it.
  virtual Buffer take(std::size_t number) = 0;
  /// Lets what is under way go on as far as it can without a wait.
  virtual void progress() = 0;
};

/// While it lives, a batch goes through the layers.
class PrefetchedPass {
 public:
  PrefetchedPass(Prefetcher* prefetcher, bool goes_backward) : prefetcher_(prefetcher) {
    if (prefetcher_ != nullptr) prefetcher_->begin_pass(goes_backward);
  }
  PrefetchedPass(const PrefetchedPass&) = delete;
  PrefetchedPass& operator=(const PrefetchedPass&) = delete;
  ~PrefetchedPass() {
    if (prefetcher_ != nullptr) prefetcher_->end_pass();
  }

 private:
  Prefetcher* prefetcher_;
};

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

/// The sums of gradients over the ranks of a mesh that have other samples, made while the last
/// batch of a step goes backward.
class SumsMeanwhile {
 public:
  SumsMeanwhile() = default;
  SumsMeanwhile(const SumsMeanwhile&) = delete;
  SumsMeanwhile& operator=(const SumsMeanwhile&) = delete;
  virtual ~SumsMeanwhile() = default;

  /// Before the last batch of the step: each sum begins when the backward has written its
  /// gradients. If the shares of the optimizer are cut, each rank gets the sums of its own.
  virtual void begin(bool shares_are_cut) = 0;
  /// The gradients of these parameters now contain all that the batch adds to them. Of other
  /// batches than the last one it does nothing.
  virtual void written(std::span<const ParameterSlot> parameters) = 0;
  /// After its backward: waits for all sums.
  virtual void end() = 0;
  /// In place of end(), if the step is discarded.
  virtual void discard() noexcept = 0;
};

}  // namespace shardwise::detail
