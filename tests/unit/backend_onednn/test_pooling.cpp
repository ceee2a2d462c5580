// oneDNN's means over windows, and what is left to loops, against windows read one tap at a time.

#include <doctest/doctest.h>

#include "shardwise/backend/onednn/onednn.hpp"
#include "support/onednn_dtypes.hpp"
#include "unit/backend/pooling_problem.hpp"

using namespace shardwise;

static_assert(PoolingBackend<OneDnn, float> && PoolingBackend<OneDnn, bf16>);

TEST_CASE("random poolings in float") {
  backend_test::check_random_poolings<OneDnn, float>(1500, 1e-5);
}
TEST_CASE("random poolings in bfloat16") {
  if (!testing::onednn_computes<bf16>()) return;
  backend_test::check_random_poolings<OneDnn, bf16>(500, 0x1p-8);
}
