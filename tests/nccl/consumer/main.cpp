#include <cstdio>
#include <vector>

#include "shardwise/comm/nccl.hpp"

namespace sw = shardwise;

struct Alone {
  static int rank() { return 0; }
  static int size() { return 1; }
  static std::vector<sw::Card> meet(const sw::Card& mine) { return {mine}; }
};

int main() try {
  Alone place;
  sw::NcclCommunicator ranks(place);
  ranks.barrier();
  std::puts("one rank on a GPU");
} catch (const sw::error& e) {
  std::puts(e.what());
}
