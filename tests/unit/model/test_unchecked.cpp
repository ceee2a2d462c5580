// Ranks without local checks: the same numbers, the same groups, and calls compared as before.

#include <doctest/doctest.h>

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;

namespace {

using Off = Unchecked<ThreadCommunicator>;
using Grouped = decltype(std::declval<Off&>().split(0, 0));

static_assert(ReadsPeers<Off> && std::same_as<Grouped, Off>);
static_assert(detail::AloneByType<Unchecked<SingleRank>>);
static_assert(!detail::checks_locally<Off>() && detail::checks_locally<ThreadCommunicator>());
static_assert(check_level_of<CountingCommunicator<Off>>() == CheckLevel::off);
static_assert(check_level_of<CountingCommunicator<ThreadCommunicator>>() == CheckLevel::local);

struct Mlp : Sequential<ColumnParallelLinear<6, 5>, Relu, RowParallelLinear<5, 3>> {};

const Shape in{{Axis::batch, 4}, {Axis::feature, 6}};

/// The output of a step on three ranks of type C, and the gradients of the first.
template <class C>
std::vector<float> results() {
  std::vector<float> found;
  run_ranks(3, [&](ThreadCommunicator& given) {
    C ranks(given);
    Model<Mlp, Context<float, Reference, C>> model(ranks, Seed{1});
    Tensor<float, Invariant> x(in, place_of(ranks));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    const auto y = model.forward(x.view());
    const std::vector<float> output(y.data(), y.data() + y.size());
    model.backward(y);
    if (ranks.rank() != 0) return;
    found = output;
    found.insert(found.end(), model.gradients().begin(), model.gradients().end());
  });
  return found;
}

}  // namespace

TEST_CASE("unchecked ranks compute the same bits") {
  const std::vector<float> checked = results<ThreadCommunicator>();
  CHECK(checked.size() > 12);
  CHECK(results<Off>() == checked);
}

TEST_CASE("what a rank can see alone is refused on ranks that check it") {
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    Model<Mlp, Context<float, Reference, ThreadCommunicator>> model(ranks, Seed{1});
    const Tensor<float, Invariant> of_one_rank(in);
    CHECK_THROWS_AS(model.forward(of_one_rank.view()), argument_error);
  });
}

TEST_CASE("thread ranks compare their calls at every level") {
  run_ranks(2, [](ThreadCommunicator& given) {
    Off ranks(given);
    const std::vector<float> mine(static_cast<std::size_t>(ranks.rank()) + 1);
    std::vector<float> sum(mine.size());
    CHECK_THROWS_AS(ranks.all_reduce(std::span<const float>(mine), std::span(sum)),
                    collective_error);
  });
}
