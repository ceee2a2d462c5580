// What ranks tell of groups that they leave is received: MPI keeps a message that nobody receives,
// and compares each later one with it. Counts the control messages that MPI is given, and asks no
// clock.

#include <doctest/doctest.h>
#include <mpi.h>

#include <cstddef>
#include <deque>
#include <span>

#include "shardwise/comm/mpi.hpp"
#include "support/mpi_ranks.hpp"

using namespace shardwise;
using testing::World;

namespace {

/// Sent and not received, by this rank; negative where it has received what others sent.
long outstanding = 0;

bool is_control_message(int count, MPI_Datatype type) {
  return type == MPI_BYTE && count == detail::mpi::ControlMessage::bytes;
}

}  // namespace

extern "C" {

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (is_control_message(count, type)) ++outstanding;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (is_control_message(count, type)) --outstanding;
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

int MPI_Recv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
             MPI_Status* status) {
  if (is_control_message(count, type)) --outstanding;
  return PMPI_Recv(data, count, type, from, tag, comm, status);
}

}  // extern "C"

namespace {

/// Of all ranks.
long all_outstanding() {
  long sum = 0;
  PMPI_Barrier(MPI_COMM_WORLD);
  PMPI_Allreduce(&outstanding, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

void sum(MpiCommunicator& ranks) {
  float one = 1;
  ranks.all_reduce(std::span<const float>(&one, 1), std::span(&one, 1));
  REQUIRE(one == static_cast<float>(ranks.size()));
}

/// Makes groups and drops them; returns how many messages of each group and rank are not received
/// at the end. What the last few tell may still be on its way.
template <class F>
double unreceived(MpiCommunicator& world, F make_and_drop) {
  const int groups = 200;
  make_and_drop();
  const long before = all_outstanding();
  for (int i = 0; i < groups; ++i) make_and_drop();
  sum(world);
  return static_cast<double>(all_outstanding() - before) / groups / world.size();
}

constexpr double few = 0.3;

}  // namespace

TEST_CASE("partings of groups that end are received") {
  const auto test = [](MpiCommunicator& ranks) {
    CHECK_MESSAGE(unreceived(ranks,
                             [&] {
                               MpiCommunicator part = ranks.split(0, ranks.rank());
                               sum(part);
                             }) < few,
                  "of all ranks");
    std::deque<MpiCommunicator> kept;
    CHECK_MESSAGE(unreceived(ranks,
                             [&] {
                               kept.push_back(ranks.split(ranks.rank() % 2, -ranks.rank()));
                               sum(kept.back());
                               const std::size_t most = ranks.rank() % 3 == 0 ? 1 : 4;
                               while (kept.size() > most) kept.pop_front();
                             }) < few,
                  "of halves, of which ranks keep some longer than others");
    CHECK_MESSAGE(unreceived(ranks,
                             [&] {
                               MpiCommunicator part = ranks.split(0, ranks.rank());
                               float number = 5;
                               if (part.rank() == 0 && part.size() > 1)
                                 part.send(std::span<const float>(&number, 1), 1);
                               if (part.rank() == 1) part.receive(std::span(&number, 1), 0);
                               sum(part);
                             }) < few,
                  "in which ranks sent messages");
  };
  World::get().run(World::get().size(), test);
}
