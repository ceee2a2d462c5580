#pragma once
// The mean of a number that each batch has.

#include <cstddef>

#include "shardwise/version.hpp"

namespace shardwise {

/// The mean over samples of what batches report as their own mean, such as the loss: a batch counts
/// as often as it has samples, so that a smaller last batch does not weigh more than it should.
///
///     RunningMean loss;
///     for (...) loss.add(train_step(model, x, labels, f, optimizer), samples);
///
/// What `train_step` returns is the same on every rank, and so is this.
/// sends    nothing
class RunningMean {
 public:
  /// The mean of one more batch, which has so many samples over all ranks.
  void add(double mean_of_batch, std::size_t samples) {
    sum_ += mean_of_batch * static_cast<double>(samples);
    samples_ += samples;
  }

  /// Samples of all batches so far.
  std::size_t samples() const { return samples_; }

  /// 0 before the first sample.
  double value() const { return samples_ == 0 ? 0 : sum_ / static_cast<double>(samples_); }

 private:
  double sum_ = 0;
  std::size_t samples_ = 0;
};

}  // namespace shardwise
