// The order of samples: a permutation that follows from seed and epoch, cut into batches.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "shardwise/data/sampler.hpp"

namespace sw = shardwise;

TEST_CASE("a shuffled order holds every sample once") {
  for (const std::size_t count : {0U, 1U, 2U, 7U, 1000U, 60'000U}) {
    std::vector<std::uint32_t> order = sw::shuffled_order(count, sw::Seed{3}, 1);
    std::sort(order.begin(), order.end());
    CHECK(order == sw::stored_order(count));
  }
}

TEST_CASE("the order follows from count, seed and epoch") {
  const auto order = sw::shuffled_order(1000, sw::Seed{3}, 1);
  CHECK(order == sw::shuffled_order(1000, sw::Seed{3}, 1));
  CHECK(order != sw::shuffled_order(1000, sw::Seed{3}, 2));
  CHECK(order != sw::shuffled_order(1000, sw::Seed{4}, 1));
  CHECK(order != sw::stored_order(1000));
}

TEST_CASE("all permutations of four samples come equally often") {
  constexpr int epochs = 24'000;
  std::array<int, 256> seen{};
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const auto order = sw::shuffled_order(4, sw::Seed{9}, epoch);
    ++seen[order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3]];
  }
  CHECK(std::count_if(seen.begin(), seen.end(), [](int times) { return times > 0; }) == 24);
  for (const int times : seen)
    if (times > 0) CHECK(std::abs(times - 1000) < 5 * std::sqrt(1000.0 * 23 / 24));
}

TEST_CASE("batches follow the order, the last one smaller") {
  const auto order = sw::shuffled_order(103, sw::Seed{3}, 0);
  for (const std::size_t size : {1U, 10U, 102U, 103U, 104U}) {
    const sw::Batches batches(order, size);
    CHECK(batches.size() == (103 + size - 1) / size);
    std::vector<std::uint32_t> joined;
    for (std::size_t b = 0; b < batches.size(); ++b) {
      CHECK(batches[b].size() == (b + 1 < batches.size() ? size : 103 - b * size));
      joined.insert(joined.end(), batches[b].begin(), batches[b].end());
    }
    CHECK(joined == order);
  }
  CHECK(sw::Batches({}, 5).size() == 0);
}

TEST_CASE("numbers out of range are refused") {
  CHECK_THROWS_AS(sw::Batches(sw::stored_order(3), 0), sw::argument_error);
  CHECK_THROWS_AS(sw::stored_order(1ULL << 32), sw::argument_error);
  CHECK_THROWS_AS(sw::shuffled_order(3, sw::Seed{}, 1ULL << 32), sw::argument_error);
}
