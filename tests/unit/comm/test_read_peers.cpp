// Thread ranks read each other's memory.

#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"

using namespace shardwise;

TEST_CASE("read_peers shows every rank's buffer") {
  for (const std::size_t n : {std::size_t{4}, std::size_t{3000}})
    run_ranks(4, [&](ThreadCommunicator& c) {
      const std::vector<float> mine(n + static_cast<std::size_t>(c.rank()),
                                    static_cast<float>(c.rank()));
      std::vector<float> last(4);
      const Call call{.operation = Operation::all_to_all, .dtype = Dtype::float32, .elements = n};
      c.read_peers(call, std::span(mine), [&](std::span<const float* const> buffers) noexcept {
        for (std::size_t r = 0; r < 4; ++r) last[r] = buffers[r][n + r - 1];
      });
      CHECK(last == std::vector<float>{0, 1, 2, 3});
    });
}
