// The perceptron on the two threads that oneDNN itself has: nothing is split and nothing is sent.
//
//     peer_onednn_threads FOLDER

#include <stdexcept>

#include "peers/perceptron_by_hand.hpp"
#include "peers/turns.hpp"
#include "shardwise/backend/onednn/onednn.hpp"

int main(int argc, char** argv) {
  return peers::contend_alone([&] {
    if (argc != 2) throw std::runtime_error("usage: peer_onednn_threads FOLDER");
    const shardwise::detail::onednn::ThreadLimit two_threads(2);
    peers::Part all(0, 1, argv[1]);
    const auto run = [&](bool training) {
      all.forward(training);
      if (training) all.by_onednn.backward();
    };
    all.require_results(run, true);
    peers::take_turns(true, peers::read_turn, run);
  });
}
