// Functions that cannot be called on ranks that are processes.

#include "shardwise/comm/mpi_ranks.hpp"

#include "shardwise/comm/mpi_mesh.hpp"
#include "shardwise/comm/thread_communicator.hpp"

using namespace shardwise;

#if CASE == 1  // expect: each rank calls f\(C&\), and F is no function that takes one
inline void start() {
  run_mpi_ranks([](ThreadCommunicator&) {});
}
#elif CASE == 2  // expect: each rank calls f\(C&\), and F is no function that takes one
inline void start() {
  run_mpi_ranks(2, [] {});
}
#else
inline void start() {
  run_mpi_ranks([](MpiCommunicator&) {});
  run_mpi_ranks(2, [](auto&) {});
  run_mpi_mesh({.data = 2}, [](MeshRanks<MpiCommunicator>&) {});
}
#endif
