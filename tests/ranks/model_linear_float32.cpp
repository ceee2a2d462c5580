// Every split and communicator of the linear layer in float32.

#include "ranks/model_linear_cases.hpp"

using shardwise::SingleRank;
using T = float;

TEST_CASE("a linear layer in float32 on one rank") { testing::check_every_split<T, SingleRank>(); }

TEST_CASE("a linear layer in float32 on thread ranks") {
  testing::check_every_split<T, testing::Ranks>();
}

TEST_CASE("a linear layer in float32 on counted ranks calls what is planned") {
  testing::check_every_split<T, testing::Counted>();
}
