// The texts of an error about unlike pipeline steps: the schedule, and the segments of the batches.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/pipeline/batch_segments.hpp"
#include "shardwise/pipeline/known_schedules.hpp"
#include "shardwise/pipeline/step_checks.hpp"

using namespace shardwise;

namespace {

using Lists = std::vector<std::vector<Segment>>;

/// `count` segments of one row each.
std::vector<Segment> rows(std::size_t count) {
  std::vector<Segment> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back({.row = i, .rows = 1});
  return all;
}

std::uint32_t digest_of(const Lists& lists) { return detail::digest(detail::BatchSegments(lists)); }

}  // namespace

TEST_CASE("a schedule is told rank by rank") {
  PipelineSchedule schedule(2);
  using enum PipelineSchedule::Work;
  schedule.add_rank({{forward, 0}, {forward, 1}, {backward, 0}, {backward, 1}});
  schedule.add_rank({{forward, 0}, {backward, 0}, {forward, 1}, {backward, 1}});
  CHECK(detail::schedule_text(schedule) == "F0 F1 B0 B1 | F0 B0 F1 B1");
  CHECK(detail::schedule_text(interleaved_one_f_one_b(1, 1, 2)) == "F0/0 F0/1 B0/1 B0/0");
}

TEST_CASE("segments are told batch by batch, and of more than eight their number") {
  CHECK(detail::segments_text(Lists{}) == "none");
  CHECK(detail::segments_text(Lists{{}, {}}) == "none");
  CHECK(
      detail::segments_text(Lists{{{.row = 0, .rows = 5}},
                                  {{.row = 5, .rows = 5, .position = 1}, {.row = 1, .rows = 1}}}) ==
      "batch 0 rows 0 to 4, batch 1 rows 5 to 9 from position 1, batch 1 rows 1 to 1");
  CHECK(detail::segments_text(Lists{rows(8)}).ends_with(", batch 0 rows 7 to 7"));
  CHECK(detail::segments_text(Lists{rows(9)}).starts_with("9 segments\t"));
  CHECK(detail::segments_text(Lists{rows(9)}) != detail::segments_text(Lists{{}, rows(9)}));
}

TEST_CASE("a digest of segments tells batches, rows and positions apart") {
  CHECK(digest_of(Lists{}) == 0);
  CHECK(digest_of(Lists{{}, {}}) == 0);
  const std::vector<Lists> all{{rows(1)},
                               {rows(2)},
                               {rows(1), {}},
                               {{}, rows(1)},
                               {{{.row = 1, .rows = 1}}},
                               {{{.row = 0, .rows = 2}}},
                               {{{.row = 0, .rows = 1, .position = 1}}}};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < all.size(); ++j)
      CHECK((digest_of(all[i]) == digest_of(all[j])) == (i == j));
}
