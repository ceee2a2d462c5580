#include <doctest/doctest.h>

#include <cstddef>
#include <utility>

#include "shardwise/core/growing_list.hpp"

using shardwise::detail::GrowingList;

namespace {

/// 0, 1, 4, ... below size².
constexpr GrowingList<std::size_t> squares(std::size_t size) {
  GrowingList<std::size_t> list;
  for (std::size_t i = 0; i < size; ++i) list.add(i * i);
  return list;
}

constexpr std::size_t sum(const GrowingList<std::size_t>& list) {
  std::size_t all = 0;
  for (const std::size_t entry : list) all += entry;
  return all;
}

static_assert(GrowingList<int>{}.empty());
static_assert(sum(squares(20)) == 2470 && squares(20).size() == 20 && squares(20)[19] == 361);
static_assert(GrowingList<int>::of_size(3).size() == 3 && GrowingList<int>::of_size(3)[2] == 0);

}  // namespace

TEST_CASE("copies of a growing list are apart, and a moved one gives its entries away") {
  GrowingList<std::size_t> list = squares(5);
  const GrowingList<std::size_t> copy = list;
  list[0] = 7;
  list.add(list[0]);
  CHECK(sum(list) == 44);
  CHECK(sum(copy) == 30);
  GrowingList<std::size_t> other{1, 2};
  other = std::move(list);
  CHECK(sum(other) == 44);
  other = copy;
  CHECK(sum(other) == 30);
  other = squares(0);
  CHECK(other.empty());
  CHECK(other.begin() == other.end());
}
