// Ours on two ranks that are threads: peer_threads mlp|output|height float|bf16 FOLDER

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "peers/ours.hpp"
#include "shardwise/backend/onednn/onednn.hpp"

int main(int argc, char** argv) {
  return peers::contend_alone([&] {
    const std::vector<std::string> arguments(argv, argv + argc);
    shardwise::run_ranks(2, [&](shardwise::ThreadCommunicator& ranks) {
      peers::contend(ranks, arguments, [&] {
        std::array<std::int64_t, 2> message{};
        if (ranks.rank() == 0) {
          const peers::Turn turn = peers::read_turn();
          message = {turn.training, turn.calls};
        }
        ranks.broadcast(std::span<std::int64_t>(message), 0);
        return peers::Turn{message[0], message[1]};
      });
    });
  });
}
