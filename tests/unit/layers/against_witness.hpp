#pragma once
// What a layer did, against what PyTorch computed.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "ranks/model_observe.hpp"
#include "support/largest_difference.hpp"
#include "witness/values.hpp"

namespace testing {

/// The largest difference.
struct Absolute {
  double operator()(std::span<const double> ours, std::span<const double> theirs) const {
    return largest_difference(ours, theirs);
  }
};

/// The largest difference, relative to the largest element or to 1.
struct Relative {
  double operator()(std::span<const double> ours, std::span<const double> theirs) const {
    double scale = 1;
    for (const double number : theirs) scale = std::max(scale, std::abs(number));
    return largest_difference(ours, theirs) / scale;
  }
};

/// Each tensor that was observed is one of theirs, each of theirs was observed, and they differ by
/// less than `bound`.
template <class Difference = Absolute>
void check_agrees(const Observed& ours, const witness::Values& theirs, double bound,
                  Difference difference = {}) {
  CHECK(ours.tensors.size() == theirs.tensors().size());
  for (const auto& tensor : theirs.tensors()) {
    CAPTURE(tensor.first);
    CHECK(difference(ours[tensor.first], tensor.second) < bound);
  }
}

}  // namespace testing
