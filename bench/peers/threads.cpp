// Ours on two ranks that are threads: peer_threads mlp|output|height float|bf16 FOLDER

#include <string>
#include <vector>

#include "peers/on_two_threads.hpp"
#include "peers/ours.hpp"
#include "shardwise/backend/onednn/onednn.hpp"

int main(int argc, char** argv) {
  return peers::contend_alone([&] {
    const std::vector<std::string> arguments(argv, argv + argc);
    peers::on_two_threads([&](shardwise::ThreadCommunicator& ranks, const auto& next) {
      peers::contend(ranks, arguments, next);
    });
  });
}
