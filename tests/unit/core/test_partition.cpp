// The one function that cuts axes, held against what its comment promises.

#include <doctest/doctest.h>

#include <algorithm>

#include "shardwise/core/partition.hpp"
#include "support/oracle.hpp"

using namespace shardwise;

TEST_CASE("blocks are contiguous, whole, balanced, and the first ones are longer") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (std::size_t units = 0; units <= 40; ++units) {
      for (const std::size_t grain : {std::size_t{1}, std::size_t{3}, std::size_t{49}}) {
        CAPTURE(ranks);
        CAPTURE(units);
        CAPTURE(grain);
        const Dim dim{Axis::feature, units, grain};
        std::size_t end = 0;
        std::size_t previous = dim.extent();
        std::size_t longest = 0;
        std::size_t shortest = dim.extent();
        for (int rank = 0; rank < ranks; ++rank) {
          const Interval block = block_of(dim, {rank, ranks});
          CHECK(block.offset == end);
          CHECK(block.offset % grain == 0);
          CHECK(block.size % grain == 0);
          CHECK(block.size <= previous);
          CHECK(detail::local_dim(dim, {rank, ranks}) ==
                Dim{Axis::feature, block.size / grain, grain});
          end = block.end();
          previous = block.size;
          longest = std::max(longest, block.size);
          shortest = std::min(shortest, block.size);
        }
        CHECK(end == dim.extent());
        CHECK(longest - shortest <= grain);
      }
    }
  }
}

TEST_CASE("every unit is where dealing them out one by one puts it") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (std::size_t units = 0; units <= 40; ++units) {
      const std::vector<std::size_t> owners = testing::owners_of_units(units, ranks);
      for (std::size_t unit = 0; unit < units; ++unit) {
        const Interval block =
            block_of({Axis::batch, units}, {static_cast<int>(owners[unit]), ranks});
        CHECK((block.offset <= unit && unit < block.end()));
      }
    }
  }
}

TEST_CASE("fewer units than ranks leave the last ranks empty") {
  for (int rank = 0; rank < 8; ++rank) {
    const Interval block = block_of({Axis::channel, 3, 4}, {rank, 8});
    CHECK(block.size == (rank < 3 ? 4 : 0));
    CHECK(block.end() <= 12);
  }
}

TEST_CASE("what two intervals have in common") {
  CHECK(detail::overlap({2, 5}, {4, 9}) == Interval{4, 3});
  CHECK(detail::overlap({4, 9}, {2, 5}) == Interval{4, 3});
  CHECK(detail::overlap({2, 5}, {3, 1}) == Interval{3, 1});
  CHECK(detail::overlap({2, 5}, {7, 1}).size == 0);  // side by side
  CHECK(detail::overlap({2, 5}, {9, 1}).size == 0);
  CHECK(detail::overlap({9, 1}, {2, 5}).size == 0);
}

TEST_CASE("a grain of zero makes blocks of nothing") {
  CHECK(block_of({Axis::feature, 5, 0}, {1, 2}) == Interval{0, 0});
  CHECK(detail::local_dim({Axis::feature, 5, 0}, {1, 2}).extent() == 0);
}

static_assert(block_of({Axis::feature, 10}, {2, 4}) == Interval{6, 2});
static_assert(block_of({Axis::feature, 10, 3}, {1, 4}) == Interval{9, 9});
static_assert(Interval{3, 4}.end() == 7);
static_assert(Place{} == Place{0, 1});
static_assert(Place{1, 2} == Place{1, 2} && !(Place{1, 2} == Place{1, 3}));
