#pragma once
// The mean of a number over batches.

#include <cstddef>

#include "shardwise/version.hpp"

namespace shardwise {

/// The mean over samples of a number that is a mean in each batch, such as a loss that is no
/// sum: a batch counts with the number of its samples, so a smaller last one has a smaller weight.
///
///     RunningMean loss;
///     for (...) loss.add(train_step(model, x, labels, f, optimizer), samples);
///
/// `train_step` returns the same number on every rank, so this mean is the same too.
/// sends    nothing
class RunningMean {
 public:
  /// Adds the mean of one more batch, which has this number of samples over all ranks.
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
