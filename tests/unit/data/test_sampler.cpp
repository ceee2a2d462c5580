// The order of samples: a permutation that follows from seed and epoch, cut into batches, and each
// batch over the ranks.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "shardwise/data/sampler.hpp"

namespace sw = shardwise;

TEST_CASE("a shuffled order holds every sample once") {
  for (const std::size_t count : {0U, 1U, 2U, 7U, 1000U, 60'000U}) {
    std::vector<std::uint32_t> order = sw::detail::shuffled_order(count, sw::Seed{3}, 1);
    std::sort(order.begin(), order.end());
    CHECK(order == sw::detail::stored_order(count));
  }
}

TEST_CASE("the order follows from count, seed and epoch") {
  const auto order = sw::detail::shuffled_order(1000, sw::Seed{3}, 1);
  CHECK(order == sw::detail::shuffled_order(1000, sw::Seed{3}, 1));
  CHECK(order != sw::detail::shuffled_order(1000, sw::Seed{3}, 2));
  CHECK(order != sw::detail::shuffled_order(1000, sw::Seed{4}, 1));
  CHECK(order != sw::detail::stored_order(1000));
}

TEST_CASE("all permutations of four samples come equally often") {
  constexpr int epochs = 24'000;
  std::array<int, 256> seen{};
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const auto order = sw::detail::shuffled_order(4, sw::Seed{9}, epoch);
    ++seen[order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3]];
  }
  CHECK(std::count_if(seen.begin(), seen.end(), [](int times) { return times > 0; }) == 24);
  for (const int times : seen)
    if (times > 0) CHECK(std::abs(times - 1000) < 5 * std::sqrt(1000.0 * 23 / 24));
}

TEST_CASE("batches follow the order of each epoch, the last one smaller") {
  for (const std::size_t size : {1U, 10U, 102U, 103U, 104U}) {
    sw::DistributedSampler sampler(103, {}, {.batch_size = size, .seed = sw::Seed{3}});
    CHECK(sampler.batches() == (103 + size - 1) / size);
    for (const std::uint64_t epoch : {0U, 1U, 2U}) {
      CHECK(sampler.epoch() == epoch);
      std::vector<std::uint32_t> joined;
      for (std::size_t left = sampler.batches(); left > 0; --left) {
        CHECK(sampler.batches_left() == left);
        const auto batch = sampler.next().whole;
        CHECK(batch.size() == (left > 1 ? size : 103 - joined.size()));
        joined.insert(joined.end(), batch.begin(), batch.end());
      }
      CHECK(joined == sw::detail::shuffled_order(103, sw::Seed{3}, epoch));
    }
  }
}

TEST_CASE("every sample is given once over all ranks, from batches that are the same at any") {
  for (const auto& [samples, size] : {std::pair{1U, 5U}, {5U, 5U}, {13U, 3U}, {103U, 10U}}) {
    std::vector<std::vector<std::uint32_t>> batches_of_one;
    for (const int ranks : {1, 2, 3, 4, 8}) {
      std::vector<sw::DistributedSampler> samplers;
      for (int rank = 0; rank < ranks; ++rank) {
        samplers.emplace_back(
            samples, sw::Place{rank, ranks},
            sw::DistributedSampler::Options{.batch_size = size, .seed = sw::Seed{7}});
      }
      std::vector<int> times(samples);
      std::vector<std::vector<std::uint32_t>> batches;
      while (samplers.front().epoch() == 0) {
        std::vector<std::uint32_t> joined;
        std::size_t largest = 0;
        std::size_t smallest = samples;
        for (sw::DistributedSampler& sampler : samplers) {
          const auto mine = sampler.next().mine;
          joined.insert(joined.end(), mine.begin(), mine.end());
          largest = std::max(largest, mine.size());
          smallest = std::min(smallest, mine.size());
        }
        CHECK(largest - smallest <= 1);
        for (const std::uint32_t sample : joined) ++times[sample];
        batches.push_back(joined);
      }
      CHECK(std::count(times.begin(), times.end(), 1) == static_cast<std::ptrdiff_t>(samples));
      if (ranks == 1) batches_of_one = batches;
      CHECK(batches == batches_of_one);
    }
  }
}

TEST_CASE("a last batch that is not full is dropped on request, and only that") {
  for (const int ranks : {1, 3}) {
    std::vector<std::uint32_t> given;
    for (int rank = 0; rank < ranks; ++rank) {
      sw::DistributedSampler sampler(14, {rank, ranks},
                                     {.batch_size = 4, .seed = sw::Seed{7}, .drops_last = true});
      CHECK(sampler.batches() == 3);
      while (sampler.epoch() == 0) {
        const auto batch = sampler.next();
        CHECK(batch.whole.size() == 4);
        given.insert(given.end(), batch.mine.begin(), batch.mine.end());
      }
    }
    auto expected = sw::detail::shuffled_order(14, sw::Seed{7}, 0);
    expected.resize(12);
    std::sort(given.begin(), given.end());
    std::sort(expected.begin(), expected.end());
    CHECK(given == expected);
  }
  sw::DistributedSampler full(12, {}, {.batch_size = 4, .drops_last = true});
  CHECK(full.batches() == 3);
}

TEST_CASE("samples come as they are stored on request, in every epoch") {
  sw::DistributedSampler sampler(5, {1, 2}, {.batch_size = 3, .shuffles = false});
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto first = sampler.next();
    CHECK(std::vector(first.whole.begin(), first.whole.end()) ==
          std::vector<std::uint32_t>{0, 1, 2});
    CHECK(std::vector(first.mine.begin(), first.mine.end()) == std::vector<std::uint32_t>{2});
    const auto second = sampler.next();
    CHECK(std::vector(second.mine.begin(), second.mine.end()) == std::vector<std::uint32_t>{4});
  }
}

TEST_CASE("a sampler goes on from any state, at another rank count and batch size too") {
  const sw::DistributedSampler::Options options{.batch_size = 4, .seed = sw::Seed{7}};
  sw::DistributedSampler sampler(10, {}, options);
  CHECK(sampler.state() == sw::DistributedSampler::State{7, 0, 0});
  for (int batch = 0; batch < 7; ++batch) {
    const sw::DistributedSampler::State state = sampler.state();
    sw::DistributedSampler resumed(10, {2, 3}, {.batch_size = 4, .seed = sw::Seed{99}});
    resumed.next();
    resumed.set_state(state);
    CHECK(resumed.state() == state);
    CHECK(resumed.batches_left() == sampler.batches_left());
    const auto expected = sampler.next().whole;
    const auto given = resumed.next().whole;
    CHECK(std::equal(given.begin(), given.end(), expected.begin(), expected.end()));
  }
  CHECK(sampler.state() == sw::DistributedSampler::State{7, 2, 4});

  const auto order = sw::detail::shuffled_order(10, sw::Seed{7}, 2);
  sw::DistributedSampler wider(10, {}, {.batch_size = 6, .drops_last = true});
  wider.set_state({7, 2, 4});
  const auto rest = wider.next().whole;
  CHECK(std::equal(rest.begin(), rest.end(), order.begin() + 4, order.end()));
  CHECK(wider.state() == sw::DistributedSampler::State{7, 3, 0});
  for (const std::uint64_t position : {5U, 10U}) {  // what is left there is dropped, or nothing is
    wider.set_state({7, 2, position});
    CHECK(wider.state() == sw::DistributedSampler::State{7, 3, 0});
  }
}

TEST_CASE("numbers out of range are refused") {
  const auto make = [](std::size_t samples, const sw::DistributedSampler::Options& options) {
    return sw::DistributedSampler(samples, {}, options);
  };
  CHECK_THROWS_AS(make(0, {}), sw::argument_error);
  CHECK_THROWS_AS(make(3, {.batch_size = 0}), sw::argument_error);
  CHECK_THROWS_AS(make(3, {.batch_size = 4, .drops_last = true}), sw::argument_error);
  CHECK_THROWS_AS(make(1ULL << 32, {}), sw::argument_error);
  CHECK_THROWS_AS(sw::detail::stored_order(1ULL << 32), sw::argument_error);
  CHECK_THROWS_AS(sw::detail::shuffled_order(3, sw::Seed{}, 1ULL << 32), sw::argument_error);

  sw::DistributedSampler sampler = make(3, {.seed = sw::Seed{7}});
  sampler.next();
  CHECK_THROWS_WITH_AS(sampler.set_state({8, 0, 4}),
                       doctest::Contains("position 4 in epoch 0 of 3"), sw::argument_error);
  CHECK_THROWS_AS(sampler.set_state({8, 1ULL << 32, 0}), sw::argument_error);
  CHECK(sampler.state() == sw::DistributedSampler::State{7, 0, 1});
}
