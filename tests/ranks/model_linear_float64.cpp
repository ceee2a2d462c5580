// Every split and communicator of the linear layer in float64.

#include "ranks/model_linear_cases.hpp"

using shardwise::SingleRank;
using T = double;

TEST_CASE("a linear layer in float64 on one rank") { testing::check_every_split<T, SingleRank>(); }

TEST_CASE("a linear layer in float64 on thread ranks") {
  testing::check_every_split<T, testing::Ranks>();
}

TEST_CASE("a linear layer in float64 on counted ranks calls what is planned") {
  testing::check_every_split<T, testing::Counted>();
}
