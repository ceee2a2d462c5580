#pragma once
// Who gathers parameters before the layers that use them run.

#include <cstddef>

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

}  // namespace shardwise::detail
