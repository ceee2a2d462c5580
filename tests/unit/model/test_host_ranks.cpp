// The ranks of a model, for a few numbers of the host.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <span>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/model/host_ranks.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;

TEST_CASE("sums go to other memory than the summands, or to the same") {
  run_ranks(3, [](ThreadCommunicator& ranks) {
    Model<Relu, Context<float, Reference, ThreadCommunicator>> model(ranks, Seed{1});
    HostRanks host(model.run());
    const std::array<std::int32_t, 2> summands{ranks.rank(), 5};
    std::array<std::int32_t, 2> sums{};
    host.all_reduce(std::span<const std::int32_t>(summands), std::span<std::int32_t>(sums),
                    Reduction::sum);
    CHECK(sums == std::array<std::int32_t, 2>{0 + 1 + 2, 3 * 5});
    CHECK(summands == std::array<std::int32_t, 2>{ranks.rank(), 5});
    host.all_reduce(std::span<const std::int32_t>(sums), std::span<std::int32_t>(sums),
                    Reduction::max);
    CHECK(sums == std::array<std::int32_t, 2>{3, 15});
  });
}
