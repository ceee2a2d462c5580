// Rows of tokens: the sequence and position of each, and which rows of a batch a rank holds.

#include <doctest/doctest.h>

#include <vector>

#include "shardwise/core/sequences.hpp"

using namespace shardwise;

namespace {

bool is_at(const Sequences::Row& place, std::size_t begin, std::size_t end, std::size_t position) {
  return place.begin == begin && place.end == end && place.position == position;
}

}  // namespace

TEST_CASE("each sample is a sequence, unless rows are given places") {
  const Sequences samples(5);
  CHECK(samples.are_samples());
  CHECK(is_at(samples[0], 0, 5, 0));
  CHECK(is_at(samples[4], 0, 5, 4));
  CHECK(is_at(samples[13], 10, 15, 3));
  CHECK_FALSE(samples[13].is_padding());
  CHECK(is_at(Sequences()[3], 3, 4, 0));

  const std::vector<Sequences::Row> places{{0, 2, 7}, {0, 2, 8}, {}};
  const Sequences given(3, places.data());
  CHECK_FALSE(given.are_samples());
  CHECK(is_at(given[1], 0, 2, 8));
  CHECK(given[2].is_padding());
}

TEST_CASE("a rank's rows have numbers in the whole batch") {
  // of samples of 10 rows the samples 3 and 4, of each the rows 6, 7 and 8
  const TokenRows rows{.samples = 2, .here = 3, .length = 10, .first_sample = 3, .first_row = 6};
  CHECK(rows.count() == 6);
  CHECK(TokenRows{.here = 4}.count() == 4);
  const std::size_t numbers[] = {36, 37, 38, 46, 47, 48};
  for (std::size_t row = 0; row < 6; ++row) CHECK(rows.global(row) == numbers[row]);

  CHECK(rows.local(0, 30, 40) == Interval{0, 3});
  CHECK(rows.local(0, 37, 38) == Interval{1, 1});
  CHECK(rows.local(1, 47, 50) == Interval{4, 2});
  CHECK(rows.local(1, 40, 47) == Interval{3, 1});
  CHECK(rows.local(1, 40, 46) == Interval{3, 0});
  CHECK(rows.local(1, 47, 47).size == 0);
  CHECK(rows.local(1, 49, 47).size == 0);
}

TEST_CASE("rows are those of the axis sequence, first or behind batch") {
  const auto position = [](const Shape& shape) { return detail::sequence_position(shape); };
  CHECK(position({{Axis::sequence, 4}}) == 0);
  CHECK(position({{Axis::sequence, 4}, {Axis::feature, 2}}) == 0);
  CHECK(position({{Axis::batch, 3}, {Axis::sequence, 4}, {Axis::feature, 2}}) == 1);
  for (const Shape& wrong :
       {Shape{}, Shape{{Axis::batch, 3}}, Shape{{Axis::feature, 2}, {Axis::sequence, 4}},
        Shape{{Axis::batch, 3}, {Axis::feature, 2}, {Axis::sequence, 4}}})
    CHECK_THROWS_WITH_AS(position(wrong), doctest::Contains("has no rows of tokens"), shape_error);
}
