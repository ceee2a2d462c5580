#pragma once
// The public check of layers, at 1 to 8 ranks of any kind.

#include <doctest/doctest.h>

#include "shardwise/testing/layer_check.hpp"
#include "support/ranks.hpp"

namespace testing {

/// For layers whose sums are no integers, so that many ranks and one agree up to rounding alone.
inline const shardwise::LayerChecks up_to_rounding{.exact = false, .gradients = 5};
/// For layers whose sums of integers are exact.
inline const shardwise::LayerChecks bit_by_bit{.gradients = 5};

/// `check_layer` at every number of ranks.
template <shardwise::Layout Offered = shardwise::Invariant, shardwise::Layout Wanted = Offered,
          class Use = shardwise::TrainWithInputGradient, class L>
void check_on_ranks(const L& layer, const shardwise::Shape& in,
                    const shardwise::LayerChecks& checks) {
  CAPTURE(to_string(in));
  for (const int count : rank_counts({1, 2, 3, 4, 5, 6, 7, 8}))
    run_on_ranks(count, [&](Ranks& ranks) {
      const auto report = shardwise::check_layer<Offered, Wanted, Use>(ranks, layer, in, checks);
      if (ranks.rank() == 0) CHECK_MESSAGE(report.passed(), report.text());
    });
}

}  // namespace testing
