// What MPI is really asked to send, seen from below: this program defines the calls of MPI that the
// communicator uses and forwards them to MPI's second names for them. A training step's calls and
// bytes agree with the plan and with the counting communicator above.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/mpi_ranks.hpp"
#include "support/steps_on_mesh.hpp"

namespace {

/// One call of MPI that moves data, with the bytes that the calling rank puts into it.
struct Sent {
  std::string call;
  std::size_t bytes;

  friend bool operator==(const Sent&, const Sent&) = default;
};

std::vector<Sent> seen;
bool is_watching = false;

void watch(const char* call, int count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  if (is_watching)
    seen.push_back({call, static_cast<std::size_t>(count) * static_cast<unsigned>(size)});
}

}  // namespace

extern "C" {

int MPI_Allgather(const void* in, int count, MPI_Datatype type, void* out, int received,
                  MPI_Datatype received_type, MPI_Comm comm) {
  watch("Allgather", count, type);
  return PMPI_Allgather(in, count, type, out, received, received_type, comm);
}
int MPI_Allgatherv(const void* in, int count, MPI_Datatype type, void* out, const int* counts,
                   const int* offsets, MPI_Datatype received_type, MPI_Comm comm) {
  watch("Allgatherv", count, type);
  return PMPI_Allgatherv(in, count, type, out, counts, offsets, received_type, comm);
}
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  watch("Isend", count, type);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  watch("Bcast", count, type);
  return PMPI_Bcast(data, count, type, root, comm);
}
int MPI_Gatherv(const void* in, int count, MPI_Datatype type, void* out, const int* counts,
                const int* offsets, MPI_Datatype received_type, int root, MPI_Comm comm) {
  watch("Gatherv", count, type);
  return PMPI_Gatherv(in, count, type, out, counts, offsets, received_type, root, comm);
}
int MPI_Scatterv(const void* in, const int* counts, const int* offsets, MPI_Datatype type,
                 void* out, int received, MPI_Datatype received_type, int root, MPI_Comm comm) {
  watch("Scatterv", received, received_type);
  return PMPI_Scatterv(in, counts, offsets, type, out, received, received_type, root, comm);
}
int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  watch("Allreduce", count, type);
  return PMPI_Allreduce(in, out, count, type, op, comm);
}
int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  watch("Send", count, type);
  return PMPI_Send(data, count, type, to, tag, comm);
}
int MPI_Barrier(MPI_Comm comm) {
  watch("Barrier", 0, MPI_BYTE);
  return PMPI_Barrier(comm);
}

}  // extern "C"

using namespace shardwise;

namespace {

/// The calls of MPI that a rank makes for one planned collective, by the rules of comm/mpi.hpp said
/// again: it sends to each other rank; blocks are rows of a tensor of `rows` rows:
///
///   all_reduce, n bytes   to 4096: all n
///                         beyond: the other's share of the elements, then the own share
///   all_gather            the own block
///   reduce_scatter        the other's block
std::vector<Sent> calls_of(const Collective& planned, std::size_t rows, Place place) {
  const auto ranks = static_cast<std::size_t>(place.size);
  const std::size_t bytes = planned.elements * size_of(planned.dtype);
  const std::size_t units = planned.operation == Operation::all_reduce ? planned.elements : rows;
  const std::size_t unit = planned.elements / units * size_of(planned.dtype);
  const auto block = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank % place.size);
    return (units / ranks + (r < units % ranks ? 1 : 0)) * unit;
  };
  std::vector<Sent> calls;
  const auto send = [&](std::size_t size) {
    if (size > 0) calls.push_back({"Isend", size});
  };
  const bool is_small = planned.operation == Operation::all_reduce && bytes <= 4096;
  if (!is_small && planned.operation != Operation::all_gather)
    for (int step = 1; step < place.size; ++step) send(block(place.rank + step));
  if (planned.operation != Operation::reduce_scatter)
    for (int step = 1; step < place.size; ++step) send(is_small ? bytes : block(place.rank));
  return calls;
}

/// Bytes that leave a rank.
std::size_t bytes_on_wire(const std::vector<Sent>& calls) {
  std::size_t sum = 0;
  for (const Sent& sent : calls) sum += sent.bytes;
  return sum;
}

/// A whole step of `Architecture` against its plan, which has no headers ahead of collectives.
template <class Architecture, class E, class Label>
void check_step(std::size_t rows, bool has_only_large_sums) {
  using Counted = CountingCommunicator<MpiCommunicator>;
  Counted ranks(MpiCommunicator(MPI_COMM_WORLD, {.checks = CheckLevel::local}));
  const Place place = place_of(ranks);
  Model<Architecture, Context<float, Reference, Counted>, E> model(ranks, Seed{1});
  const Shape in{{Axis::batch, rows}, {Axis::feature, 24}};
  const Tensor<float, typename E::offered> x(in, place);
  const Tensor<std::int32_t, Label> labels({{Axis::batch, rows}}, place);
  const CrossEntropy loss;
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
  const Plan plan = plan_step(model, in, loss);

  std::vector<Collective> planned;
  for (const collectives* part : {&plan.forward, &plan.loss, &plan.backward, &plan.settle})
    planned.insert(planned.end(), part->begin(), part->end());
  std::vector<Sent> expected;
  for (const Collective& entry : planned)
    for (const Sent& call : calls_of(entry, rows, place)) expected.push_back(call);
  REQUIRE(!planned.empty());

  ranks.clear();
  seen.clear();
  is_watching = true;
  train_step(model, x.view(), labels.view(), loss, optimizer);
  is_watching = false;

  CHECK(seen == expected);
  REQUIRE(ranks.log().size() == planned.size());
  for (std::size_t i = 0; i < planned.size(); ++i)
    CHECK(ranks.log()[i].operation == planned[i].operation);
  std::size_t on_wire = 0;
  testing::tell(place, std::vector{bytes_on_wire(seen)},
                [&](int, const std::vector<std::size_t>& bytes) { on_wire += bytes[0]; });
  if (has_only_large_sums) CHECK(on_wire == plan.bytes_sent());
}

using Batch = Sharded<Axis::batch>;

struct Mlp : Sequential<ColumnParallelLinear<24, 90>, Relu, RowParallelLinear<90, 70>> {};

}  // namespace

TEST_CASE("a sum in one call") { check_step<Mlp, Ends<Invariant, Invariant>, Invariant>(3, false); }

TEST_CASE("a sum in shares") { check_step<Mlp, Ends<Invariant, Invariant>, Invariant>(61, true); }

TEST_CASE("a batch over ranks, in uneven blocks: gathers, scattered sums, settled gradients") {
  check_step<Mlp, Ends<Batch, Batch>, Batch>(61, false);
}

TEST_CASE("ranks that keep a share of the moments come to the bits of those that keep all") {
  if (testing::World::get().lacks(4)) return;
  MeshRanks<MpiCommunicator> ranks(MpiCommunicator(MPI_COMM_WORLD), {.data = 2, .tensor = 2});
  Reference backend;
  CHECK(testing::steps_on_mesh(backend, ranks, Keep::state_over_data) ==
        testing::steps_on_mesh(backend, ranks, Keep::whole));
}
