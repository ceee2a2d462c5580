#pragma once
// The steps in which ranks compare what they were given.

#include <cstdint>

#include "shardwise/core/compiled.hpp"
#include "shardwise/version.hpp"

namespace shardwise::detail {

/// The first step of a model and every `every` steps after it.
class ComparedSteps {
 public:
  /// 0 for no step.
  void set_every(std::uint64_t steps) { every_ = steps; }

  /// Whether step `step`, from 1 on, is one of them. Ask for each step in turn.
  bool has(std::uint64_t step);

 private:
  std::uint64_t every_ = 0;
  std::uint64_t last_ = 0;
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE bool ComparedSteps::has(std::uint64_t step) {
  if (every_ == 0) return false;
  if (last_ == 0 || step < last_ || step - last_ >= every_) last_ = step;
  return step == last_;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
