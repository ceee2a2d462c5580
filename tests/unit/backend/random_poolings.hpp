#pragma once
// Random poolings, for any backend.

#include <doctest/doctest.h>

#include <random>

#include "support/seed.hpp"
#include "unit/backend/pooling_problem.hpp"

namespace backend_test {

/// Maxima of `count` random poolings with B's kernels in T are exact, means within `bound`. A mean
/// is rounded after a sum of up to 343 integers, which is exact; of a gradient every one of up to
/// 343 summands is. In two-byte dtypes results are rounded once more.
template <class B, class T>
void check_random_poolings(int count, double bound) {
  const unsigned first = testing::seed();
  MESSAGE(count << " random poolings from SHARDWISE_TEST_SEED=" << first);
  std::mt19937 random(first);
  B backend;
  for (int k = 0; k < count; ++k) {
    const PoolingFormula f = random_pooling(random);
    INFO("seed " << first << ", number " << k << ": " << to_string(f));
    REQUIRE(pooling_is_right<B, T>(backend, f, random, bound));
  }
}

}  // namespace backend_test
