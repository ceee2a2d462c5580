#include <cstdio>

#include "other.hpp"
#include "shardwise/shardwise.hpp"

#ifdef WITH_ONEDNN
#include "shardwise/backend/onednn/onednn.hpp"
#endif
#ifdef WITH_CBLAS
#include "shardwise/backend/cblas/cblas.hpp"
#endif
#ifdef WITH_DATA
#include "shardwise/data/fashion_mnist.hpp"
#endif
#ifdef WITH_CHECKPOINT
#include "shardwise/checkpoint/weights.hpp"
#endif
#ifdef WITH_MPI
#include "shardwise/comm/mpi_ranks.hpp"
#endif

// Two translation units include everything: a function that is not inline would be there twice.
int main() {
  const bool agree = version_of_other() == SHARDWISE_VERSION;
  std::printf("shardwise %s\n", SHARDWISE_VERSION);
#ifdef WITH_ONEDNN
  const shardwise::OneDnn backend;
#endif
#ifdef WITH_DATA
  try {
    shardwise::read_idx("/nowhere", 1);
    return 1;
  } catch (const shardwise::data_error&) {
  }
#endif
  return agree ? 0 : 1;
}
