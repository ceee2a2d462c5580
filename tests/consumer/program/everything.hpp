#pragma once
// What both translation units include: the umbrella, and one header of each part that was asked
// for.

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
#include "shardwise/checkpoint/training.hpp"
#endif
#ifdef WITH_MPI
#include "shardwise/comm/mpi_ranks.hpp"
#endif
