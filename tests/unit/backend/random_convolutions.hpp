#pragma once
// Random convolutions, for any backend.

#include <doctest/doctest.h>

#include <random>

#include "support/seed.hpp"
#include "unit/backend/convolution_problem.hpp"

namespace backend_test {

/// Every product of `count` random convolutions with B's kernel in T is exact.
template <class B, class T>
void check_random_convolutions(int count) {
  const unsigned first = testing::seed();
  MESSAGE(count << " random convolutions from SHARDWISE_TEST_SEED=" << first);
  std::mt19937 random(first);
  B backend;
  for (int k = 0; k < count; ++k) {
    const ConvolutionFormula f = random_convolution(random);
    INFO("seed " << first << ", number " << k << ": " << to_string(f));
    REQUIRE(convolutions_are_exact<B, T>(backend, f, random));
  }
}

}  // namespace backend_test
