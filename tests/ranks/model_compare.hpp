#pragma once
// A model at many ranks against itself on one rank, and its calls against its plan.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "ranks/model_observe.hpp"

namespace testing {

/// The largest difference between two tensors, relative to the largest element.
inline double relative_difference(const Whole& a, const Whole& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i]))
      return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return difference == 0 ? 0 : difference / scale;
}

/// All tensors of a run against those of one rank alone, each within `bound`: 0 for data whose
/// arithmetic is exact. Rounding in double reaches some 1e-15 for each of a few hundred additions
/// in another order, so 1e-12 leaves room for the layers behind.
template <class T, class E = shardwise::Ends<shardwise::Invariant, shardwise::Invariant>,
          class Use = shardwise::TrainWithInputGradient, class Architecture>
void check_model(const Architecture& architecture, const Workload& work, double bound) {
  using namespace shardwise;
  const Observed alone = observe<Architecture, T, SingleRank, E, Use>(architecture, 1, work);
  for (const int ranks : rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    const Observed many = observe<Architecture, T, Counted, E, Use>(architecture, ranks, work);
    REQUIRE(many.tensors.size() == alone.tensors.size());
    for (const auto& tensor : alone.tensors) {
      CAPTURE(tensor.first);
      CHECK(relative_difference(many[tensor.first], tensor.second) <= bound);
    }
    CHECK(many.copies_are_equal);
    CHECK(difference_from_plan(many) == "");
  }
}

}  // namespace testing
