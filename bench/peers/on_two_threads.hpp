#pragma once
// Two ranks that are threads of one contender.

#include <array>
#include <cstdint>
#include <span>

#include "peers/turns.hpp"
#include "shardwise/comm/thread_ranks.hpp"

namespace peers {

/// Calls f(ranks, next) on both, where next() gives each the turn that the first one reads.
template <class F>
void on_two_threads(F f) {
  shardwise::run_ranks(2, [&](shardwise::ThreadCommunicator& ranks) {
    f(ranks, [&] {
      std::array<std::int64_t, 2> message{};
      if (ranks.rank() == 0) {
        const Turn turn = read_turn();
        message = {turn.training, turn.calls};
      }
      ranks.broadcast(std::span<std::int64_t>(message), 0);
      return Turn{message[0], message[1]};
    });
  });
}

}  // namespace peers
