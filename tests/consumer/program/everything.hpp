#pragma once
// What both translation units include: the umbrella and some headers beside it, unless the program
// is the small one, and one header of each part that was asked for. That all headers link from
// several units is shown by cmake/headers_alone.cmake.

#ifndef SMALL
#include "shardwise/interop/dlpack.hpp"
#include "shardwise/interop/npy.hpp"
#include "shardwise/shardwise.hpp"
#include "shardwise/testing/testing.hpp"
#ifdef WITH_CHECKPOINT
#include "shardwise/checkpoint/training.hpp"
#endif
#endif

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
#include "shardwise/checkpoint/tensor_files.hpp"
#endif
#ifdef WITH_MPI
#include "shardwise/comm/mpi_ranks.hpp"
#endif
