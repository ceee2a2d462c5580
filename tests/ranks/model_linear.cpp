// Every split of the linear layer: in double on each communicator, and in each dtype with calls
// counted.

#include "ranks/model_linear_cases.hpp"

using namespace shardwise;
using testing::check_every_split;

TEST_CASE("a linear layer on one rank") { check_every_split<double, SingleRank>(); }

TEST_CASE("a linear layer on thread ranks") { check_every_split<double, testing::Ranks>(); }

TEST_CASE_TEMPLATE("a linear layer calls what is planned", T, double, float, bf16, fp16) {
  check_every_split<T, testing::Counted>();
}
