#pragma once
// Turns of a job of processes. Whoever waits in a call of MPI spins, so a rank that waits for its
// turn sleeps and looks for a message now and then.

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

#include "peers/turns.hpp"

namespace peers {

/// The turn that the first process reads, on all processes.
inline Turn next_turn_of_job() {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  constexpr int tag = 7;
  std::array<std::int64_t, 2> message{};
  if (rank == 0) {
    const Turn turn = read_turn();
    message = {turn.training, turn.calls};
    for (int other = 1; other < size; ++other)
      MPI_Send(message.data(), 2, MPI_INT64_T, other, tag, MPI_COMM_WORLD);
    return turn;
  }
  int there = 0;
  while (there == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    MPI_Iprobe(0, tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
  }
  MPI_Recv(message.data(), 2, MPI_INT64_T, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return {message[0], message[1]};
}

/// The library's name and version, without what else it says of itself.
inline void print_mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string whole(text.data(), static_cast<std::size_t>(length));
  std::printf("version MPI %s\n", whole.substr(0, whole.find_first_of(",\n")).c_str());
}

}  // namespace peers
