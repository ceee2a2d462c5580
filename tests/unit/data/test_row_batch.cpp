// Batches of a program's own rows: those that the sampler chose, whole and split, once each.

#include <doctest/doctest.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <vector>

#include "shardwise/data/row_batch.hpp"
#include "support/messages.hpp"

namespace sw = shardwise;
using testing::check_mentions;
using testing::message_of;

namespace {

constexpr std::size_t count = 11;
const sw::Shape row{{sw::Axis::channel, 2}, {sw::Axis::width, 3}};

/// Element (r, i) is 10 r + i.
std::vector<double> made_rows() {
  std::vector<double> rows;
  for (std::size_t r = 0; r < count; ++r)
    for (std::size_t i = 0; i < 6; ++i) rows.push_back(static_cast<double>(10 * r + i));
  return rows;
}

std::vector<std::int32_t> made_labels() {
  std::vector<std::int32_t> labels;
  for (std::size_t r = 0; r < count; ++r) labels.push_back(static_cast<std::int32_t>(100 + r));
  return labels;
}

/// Whether these are the rows that were chosen.
bool are(std::span<const double> got, std::span<const std::uint32_t> chosen) {
  std::vector<double> expected;
  for (const std::uint32_t r : chosen)
    for (int i = 0; i < 6; ++i) expected.push_back(10.0 * r + i);
  return std::ranges::equal(got, expected);
}

}  // namespace

static_assert(
    !std::constructible_from<sw::RowBatch<double>, std::vector<double>, sw::Shape, sw::Place>,
    "its rows would be gone");

TEST_CASE("a batch has the rows that were chosen, whole or the rank's block") {
  using Rows = sw::Sharded<sw::Axis::batch>;
  const auto rows = made_rows();
  const auto labels = made_labels();
  for (int size = 1; size <= 8; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      const sw::Place place{rank, size};
      sw::RowBatch<double> whole(rows, row, place);
      sw::RowBatch<double, Rows> mine(rows, row, place);
      sw::RowBatch<std::int32_t, Rows> of_mine(labels, {}, place);
      CHECK(whole.count() == count);
      sw::DistributedSampler sampler(count, place, {.batch_size = 4, .seed = sw::Seed{5}});
      for (std::size_t b = 0; b < sampler.batches(); ++b) {  // of 4, 4 and 3 rows
        const sw::SampleBatch batch = sampler.next();
        const auto all = whole.gather(batch);
        CHECK(all.global() == sw::Shape{{sw::Axis::batch, batch.whole.size()}, row[0], row[1]});
        CHECK(are(all.span(), batch.whole));
        const auto block = mine.gather(batch);
        CHECK(block.global() == all.global());
        CHECK(are(block.span(), batch.mine));
        const auto block_labels = of_mine.gather(batch);
        CHECK(block_labels.global() == sw::Shape{{sw::Axis::batch, batch.whole.size()}});
        CHECK(std::ranges::equal(block_labels.span(), batch.mine, {},
                                 [](std::int32_t label) { return label - 100; }));
      }
    }
  }
}

TEST_CASE("the batches that are left of an epoch, each once") {
  const auto rows = made_rows();
  const auto labels = made_labels();
  sw::RowBatch<double> x(rows, row, {});
  sw::RowBatch<std::int32_t> y(labels, {}, {});
  sw::DistributedSampler sampler(count, {}, {.batch_size = 4, .seed = sw::Seed{5}});
  for (const std::uint64_t epoch : {0U, 1U}) {
    std::vector<std::uint32_t> seen;
    if (epoch == 1) {
      const auto first = sampler.next().whole;
      seen.assign(first.begin(), first.end());
    }
    sw::EpochBatches batches(sampler, x, y);
    CHECK(batches.samples() == count - seen.size());
    for (const auto& [in, target] : batches) {
      for (std::size_t i = 0; i < target.size(); ++i) {
        CHECK(in[6 * i] == 10 * (target[i] - 100));
        seen.push_back(static_cast<std::uint32_t>(target[i] - 100));
      }
    }
    CHECK(seen == sw::detail::shuffled_order(count, sw::Seed{5}, epoch));
    CHECK(sampler.epoch() == epoch + 1);
  }
  const sw::DistributedSampler dropping(count, {}, {.batch_size = 4, .drops_last = true});
  CHECK(dropping.samples_left() == 8);
}

TEST_CASE("what a loop gathers together has as many rows") {
  const std::vector<double> inputs(12);
  const std::vector<std::int32_t> labels(5);
  sw::RowBatch<double> x(inputs, {{sw::Axis::feature, 2}}, {});
  sw::RowBatch<std::int32_t> y(labels, {}, {});
  sw::DistributedSampler sampler(5, {}, {.batch_size = 2});
  check_mentions(message_of<sw::argument_error>([&] { sw::EpochBatches(sampler, x, y); }),
                 {"of the 2 given behind the sampler, number 2 has 5 rows, but number 1 has 6"});
}

TEST_CASE("rows that do not fit, or are not there") {
  const auto rows = made_rows();
  const auto text = message_of<sw::shape_error>([&] {
    sw::RowBatch<double>(rows, {{sw::Axis::feature, 7}}, {});
  });
  check_mentions(text, {"66 elements", "[feature 7]"});
  CHECK_THROWS_AS(sw::RowBatch<double>(rows, {{sw::Axis::feature, 0}}, {}), sw::shape_error);
  sw::RowBatch<double> batch(rows, row, {});
  sw::DistributedSampler sampler(count + 1, {}, {.batch_size = count + 1, .shuffles = false});
  const auto said = message_of<sw::argument_error>([&] { batch.gather(sampler.next()); });
  check_mentions(said, {"row 11 was chosen, but there are 11"});
}
