#pragma once
// The row by row parts of a GPT by hand, each with the gradients of its input and of what it reads:
// the normalisation, and the cross-entropy.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/independent_loop.hpp"

namespace by_hand {

namespace loops = shardwise::detail;

/// y = (x - mean) / sqrt(variance + 1e-5) w + b for rows of n features.
class Norm {
 public:
  Norm(std::size_t rows, std::size_t n) : n_(n), means_(rows), scales_(rows) {}

  template <class T>
  void forward(const T* x, const T* w, const T* b, T* y) {
    for (std::size_t r = 0; r < means_.size(); ++r, x += n_, y += n_) {
      const float size = static_cast<float>(n_);
      const auto at = [=](std::size_t i) { return static_cast<float>(x[i]); };
      const float mean = loops::lane_sum<float>(n_, at) / size;
      const float squares = loops::lane_sum<float>(
          n_, [=](std::size_t i) { return (at(i) - mean) * (at(i) - mean); });
      const float scale = 1 / std::sqrt(squares / size + 1e-5F);
      loops::independent_loop(n_, [=](std::size_t i) {
        y[i] = static_cast<T>((at(i) - mean) * scale * static_cast<float>(w[i]) +
                              static_cast<float>(b[i]));
      });
      means_[r] = mean;
      scales_[r] = scale;
    }
  }

  /// Adds to dx; writes dw and db.
  void backward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                float* db) const {
    std::fill_n(dw, n_, 0.0F);
    std::fill_n(db, n_, 0.0F);
    for (std::size_t r = 0; r < means_.size(); ++r, x += n_, dy += n_, dx += n_) {
      const float mean = means_[r], scale = scales_[r], size = static_cast<float>(n_);
      const auto normal = [=](std::size_t i) { return (x[i] - mean) * scale; };
      const float level =
          loops::lane_sum<float>(n_, [=](std::size_t i) { return dy[i] * w[i]; }) / size;
      const float along =
          loops::lane_sum<float>(n_, [=](std::size_t i) { return dy[i] * w[i] * normal(i); }) /
          size;
      loops::independent_loop(n_, [=](std::size_t i) {
        dx[i] += scale * (dy[i] * w[i] - level - normal(i) * along);
        dw[i] += dy[i] * normal(i);
        db[i] += dy[i];
      });
    }
  }

 private:
  std::size_t n_;
  std::vector<float> means_, scales_;
};

/// The mean of the cross-entropies of rows of logits, which become its gradient.
inline double cross_entropy(const std::vector<std::int32_t>& labels, std::size_t classes,
                            float* logits) {
  const float share = 1 / static_cast<float>(labels.size());
  double loss = 0;
  for (const std::int32_t label : labels) {
    const float largest = *std::max_element(logits, logits + classes);
    const float of_label = logits[label] - largest;
    loops::independent_loop(
        classes, [=](std::size_t k) { logits[k] = loops::exponential(logits[k] - largest); });
    const float sum = loops::lane_sum<float>(classes, [=](std::size_t k) { return logits[k]; });
    loops::independent_loop(classes, [=](std::size_t k) { logits[k] *= share / sum; });
    logits[label] -= share;
    loss += static_cast<double>(std::log(sum) - of_label);
    logits += classes;
  }
  return loss / static_cast<double>(labels.size());
}

}  // namespace by_hand
