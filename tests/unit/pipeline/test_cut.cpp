// The cut by cost against all cuts of random costs, and the cost of layers.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/pipeline/cut_by_cost.hpp"

using namespace shardwise;
using detail::UncutList;

namespace {

/// The cost of the most expensive stage if layers from `begin` on are cut in the best way.
std::uint64_t best(const UncutList& list, std::size_t begin, std::size_t stages) {
  std::uint64_t first = 0, least = UINT64_MAX;
  for (std::size_t end = begin; end + stages <= list.size(); ++end) {
    first += list[end].cost;
    if (stages > 1) least = std::min(least, std::max(first, best(list, end + 1, stages - 1)));
  }
  return stages == 1 ? first : least;
}

/// The cost of the most expensive stage of these places; 0 if a stage has no layer.
std::uint64_t cost_of(const UncutList& list, const detail::GrowingList<CutPlace>& places) {
  std::uint64_t stage = 0, most = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (next < places.size() && list[i].begin == places[next]) {
      if (i == 0 || (next > 0 && places[next] == places[next - 1])) return 0;
      ++next;
      stage = 0;
    }
    stage += list[i].cost;
    most = std::max(most, stage);
  }
  return next == places.size() ? most : 0;
}

// Four rows: 28 outputs, 6 x 7 weights and 7 biases for each row; and 28 values of a function.
constexpr auto costs =
    detail::part_counts<Ends<Invariant, Invariant>>(Sequential<Linear<split::none, 6, 7>, Gelu>{},
                                                    Shape{{Axis::batch, 4}, {Axis::feature, 6}})
        .cost;
static_assert(costs == std::array<std::uint64_t, 2>{28 + 4 * (6 * 7 + 7), 28});

}  // namespace

TEST_CASE("no cut has a cheaper most expensive stage than the cut by cost") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    UncutList list;
    const std::size_t layers = 1 + random() % 8;
    for (std::size_t i = 0; i < layers; ++i) list.add({{i, 0}, random() % 20 + 1});
    for (std::size_t stages = 1; stages <= layers; ++stages) {
      const auto places = detail::balanced(list, stages);
      CHECK(places.size() + 1 == stages);
      CHECK(cost_of(list, places) == best(list, 0, stages));
    }
  }
}
