// What a collective must move at least: the factors by which all bus bandwidths are worked out.

#include "collectives/bandwidth.hpp"

#include <map>
#include <string>

#include "doctest/doctest.h"

using enum shardwise::Operation;

TEST_CASE("the busiest of 4 ranks must move these parts of 1000 bytes") {
  const auto least = [](shardwise::Operation operation) {
    return bench::least_bytes(operation, 4, 1000);
  };
  CHECK(least(all_reduce) == 1500);  // three blocks of summands out, and three of sums
  CHECK(least(reduce_scatter) == 750);
  CHECK(least(all_gather) == 750);
  CHECK(least(all_to_all) == 750);
  CHECK(least(gather) == 750);
  CHECK(least(scatter) == 750);
  CHECK(least(broadcast) == 1000);
  CHECK(least(send) == 1000);
  CHECK(least(barrier) == 0);
}

TEST_CASE("bandwidths are bytes over seconds") {
  const auto all = bench::described({.bytes = 4e9, .least = 6e9, .planned = 0}, 2);
  const std::map<std::string, double> named(all.begin(), all.end());
  CHECK(named.at("algorithm GB/s") == 2);
  CHECK(named.at("bus GB/s") == 3);
  CHECK(named.count("planned bytes") == 0);
  CHECK(bench::described({}, 2).empty());
}
