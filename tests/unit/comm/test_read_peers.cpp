// Thread ranks read each other's memory.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <span>
#include <thread>
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

TEST_CASE("small data stays while a slow rank reads, though its owner has made the next call") {
  std::atomic<bool> goes_on = false;
  run_ranks(3, [&](ThreadCommunicator& c) {
    std::vector<float> mine(4, 1), seen(3);
    const auto call = [&](auto wait) {
      c.read_peers({.operation = Operation::all_to_all, .elements = 4}, std::span(mine),
                   [&](std::span<const float* const> buffers) noexcept {
                     wait();
                     for (std::size_t r = 0; r < 3; ++r) seen[r] = buffers[r][3];
                   });
    };
    const auto wait_for_others = [&]() noexcept {
      if (c.rank() != 1) return;
      while (!goes_on) std::this_thread::yield();
      // By then they are in the next call.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    call(wait_for_others);
    CHECK(seen == std::vector<float>{1, 1, 1});
    goes_on = true;
    mine.assign(4, 2);
    call([]() noexcept {});
    CHECK(seen == std::vector<float>{2, 2, 2});
  });
}
