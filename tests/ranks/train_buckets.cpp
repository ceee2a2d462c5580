// Gradients settled in buckets: as many collectives as planned, and the same numbers.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "witness/formula.hpp"

using namespace shardwise;

namespace {

using Batch = Sharded<Axis::batch>;

struct Whole : Sequential<Linear<split::none, 9, 13>, Gelu, Linear<split::none, 13, 10>> {};
constexpr std::size_t owed = 9 * 13 + 13 + 13 * 10 + 10;  // 270

/// Numbers of this rank, made up by place in its memory.
template <class T>
void fill(std::span<T> numbers, std::int64_t number) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = detail::rounded<T>(witness::made(number, static_cast<std::int64_t>(i)));
  }
}

/// The gradients of a batch of which ranks have shares, settled in buckets of `bytes`; the calls
/// that settled them are those of the plan, of which there are `calls`.
template <class P>
std::vector<float> settled(ThreadCommunicator& inner, std::size_t bytes, std::size_t calls) {
  CountingCommunicator ranks(inner);
  Model<Whole, Context<P, Reference, decltype(ranks)>, Ends<Batch, Batch>> model(
      ranks, Seed{1}, {.bucket_bytes = bytes});
  const Shape in{{Axis::batch, 7}, {Axis::feature, 9}};
  Tensor<float, Batch> x(in, place_of(ranks));
  fill(x.view().span(), 80 + ranks.rank());
  const auto y = model.forward(x.view());
  Tensor<float, Batch> dy(y.global(), place_of(ranks));
  fill(dy.view().span(), 90 + ranks.rank());
  model.backward(dy.view());
  const CollectiveList planned = model.plan(in).settle;
  CHECK(planned.size() == calls);
  ranks.clear();
  model.settle_gradients();
  REQUIRE(ranks.log().size() == planned.size());
  for (std::size_t i = 0; i < calls; ++i) {
    CHECK(ranks.log()[i] ==
          CountedCall{planned[i].operation, planned[i].dtype, planned[i].elements});
  }
  return {model.gradients().begin(), model.gradients().end()};
}

}  // namespace

TEST_CASE("buckets of any size give the same gradients, bit by bit, by the calls of the plan") {
  for (const int size : {1, 3, 8}) {
    run_ranks(size, [](ThreadCommunicator& ranks) {
      const auto at_once = settled<float>(ranks, default_bucket_bytes, 1);
      CHECK(settled<float>(ranks, 4 * owed, 1) == at_once);
      CHECK(settled<float>(ranks, 400, 3) == at_once);
      CHECK(settled<float>(ranks, 100, 11) == at_once);
      CHECK(settled<float>(ranks, 0, owed) == at_once);
    });
  }
}

// Each rank's summand is rounded to 2^-9 of itself, and the sum once more.
TEST_CASE("gradients may travel in another dtype, in buckets of its size") {
  for (const int size : {1, 3}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      const auto wide = settled<float>(ranks, default_bucket_bytes, 1);
      const auto narrow = settled<Precision<float, float, float, bf16>>(ranks, 400, 2);
      std::size_t rounded = 0;
      for (std::size_t i = 0; i < owed; ++i) {
        CHECK(std::abs(narrow[i] - wide[i]) <= 0.01F * (1 + std::abs(wide[i])));
        CHECK(static_cast<float>(bf16(narrow[i])) == narrow[i]);
        if (narrow[i] != wide[i]) ++rounded;
      }
      CHECK(rounded > owed / 2);
    });
  }
}
