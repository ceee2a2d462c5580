// The measure of the tests themselves: what it must not lose.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/largest_difference.hpp"

using testing::largest_difference;
using Numbers = std::vector<double>;

TEST_CASE("the largest difference is found wherever it stands") {
  CHECK(largest_difference(Numbers{1, 5, 2}, Numbers{1, 2, 2}) == 3);
  CHECK(largest_difference(Numbers{1, 2, 5}, Numbers{1, 2, 2}) == 3);
  CHECK(largest_difference(Numbers{}, Numbers{}) == 0);
}

TEST_CASE("a NaN stays, first, last and in between, and on either side") {
  const double nan = std::nan("");
  CHECK(std::isnan(largest_difference(Numbers{nan, 2, 3}, Numbers{1, 5, 3})));
  CHECK(std::isnan(largest_difference(Numbers{1, nan, 3}, Numbers{1, 2, 9})));
  CHECK(std::isnan(largest_difference(Numbers{1, 2, 3}, Numbers{7, 2, nan})));
}

TEST_CASE("numbers that are missing are infinitely far") {
  CHECK(largest_difference(Numbers{1, 2}, Numbers{1}) == std::numeric_limits<double>::infinity());
}
