// What MPI is really asked to send, seen from below: this program defines the calls of MPI that the
// communicator uses and forwards them to MPI's second names for them. A training step's calls and
// bytes agree with the plan and with the counting communicator above.

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/detail/sum_tree.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/thread_mesh.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/pipeline/known_schedules.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/messages.hpp"
#include "support/mpi_ranks.hpp"
#include "support/pipeline_steps.hpp"
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
  for (const CollectiveList* part : {&plan.forward, &plan.loss, &plan.backward, &plan.settle})
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

/// What rank `rank` gives of element i.
template <class T>
T given(int rank, std::size_t i) {
  return static_cast<T>(static_cast<float>((i * 37 + static_cast<std::size_t>(rank) * 101) % 1009) /
                        (std::is_integral_v<T> ? 1.0F : 7.0F));
}

/// The sum of element i, along the tree of comm/detail/sum_tree.hpp written anew.
template <class T>
T sum_of_tree(int ranks, std::size_t i) {
  std::vector<accumulate_t<T>> terms;
  const int shared = ranks - static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  for (int rank = 0; rank < ranks; ++rank) {
    terms.push_back(static_cast<accumulate_t<T>>(given<T>(rank, i)));
    if (rank < 2 * shared) terms.back() += static_cast<accumulate_t<T>>(given<T>(++rank, i));
  }
  for (std::size_t half = terms.size() / 2; half > 0; half /= 2)
    for (std::size_t k = 0; k < half; ++k) terms[k] += terms[half + k];
  return static_cast<T>(terms[0]);
}

/// Sums of n elements, whole and in uneven blocks, of which some are empty.
template <class T>
void check_sums_of_tree(MpiCommunicator& ranks, std::size_t n) {
  CAPTURE(ranks.size());
  std::vector<T> data(n), expected(n), block;
  for (std::size_t i = 0; i < n; ++i) {
    data[i] = given<T>(ranks.rank(), i);
    expected[i] = sum_of_tree<T>(ranks.size(), i);
  }
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks.size()));
  for (std::size_t i = 0; i < n; ++i) ++counts[(i * i + 3) % counts.size()];
  const auto rank = static_cast<std::size_t>(ranks.rank());
  block.resize(counts[rank]);
  std::vector<T> begun = data, begun_block = block, gathered(n);
  {
    auto sum = ranks.begin_all_reduce<T>(begun, begun);
    auto scattered = ranks.begin_reduce_scatter<T>(data, begun_block, counts);
    scattered.finish();
    auto blocks = ranks.begin_all_gather<T>(begun_block, gathered, counts);
    sum.finish();
    blocks.finish();
  }
  ranks.reduce_scatter<T>(data, block, counts);
  ranks.all_reduce<T>(data, data);
  const std::size_t begin = detail::offset(counts, ranks.rank());
  const auto check_bits = [&](const std::vector<T>& sums, std::size_t first) {
    if (!sums.empty())
      CHECK(std::memcmp(sums.data(), expected.data() + first, sums.size() * sizeof(T)) == 0);
  };
  check_bits(begun, 0);
  check_bits(begun_block, begin);
  check_bits(gathered, 0);
  check_bits(data, 0);
  check_bits(block, begin);

  std::ranges::fill(data, T{});
  ranks.all_gather<T>(block, data, counts);
  check_bits(data, 0);
  if (rank != 5) std::ranges::fill(data, T{});
  ranks.broadcast(std::span(data), 5);
  check_bits(data, 0);
}

/// The largest and the smallest number of each element, whose order does not matter.
void check_extremes_of_tree(MpiCommunicator& ranks) {
  std::vector<float> largest(100), smallest(100);
  for (std::size_t i = 0; i < 100; ++i)
    largest[i] = smallest[i] = given<float>(ranks.rank(), i) - 70.0F;
  ranks.all_reduce<float>(largest, largest, Reduction::max);
  ranks.all_reduce<float>(smallest, smallest, Reduction::min);
  for (std::size_t i = 0; i < 100; ++i) {
    std::vector<float> all;
    for (int rank = 0; rank < ranks.size(); ++rank) all.push_back(given<float>(rank, i) - 70.0F);
    CHECK(largest[i] == std::ranges::max(all));
    CHECK(smallest[i] == std::ranges::min(all));
  }
}

/// Which of two equal zeros a maximum is depends on the order: it is one order for all elements.
void check_order_of_all_elements(MpiCommunicator& ranks) {
  std::vector<float> zeros(100, ranks.rank() % 3 == 0 ? 0.0F : -0.0F);
  ranks.all_reduce<float>(zeros, zeros, Reduction::max);
  CHECK(std::ranges::all_of(
      zeros, [&](float zero) { return std::signbit(zero) == std::signbit(zeros[0]); }));
}

/// Messages of this rank in an all_reduce of at least as many elements as ranks: those of the tree,
/// and of the gather of the sums, where a message is two if blocks of the last and first rank meet.
std::size_t messages_of_sum(int rank, int ranks) {
  const detail::SumTree tree(ranks);
  const int halvings = std::countr_zero(static_cast<unsigned>(tree.places()));
  int messages = tree.is_second(rank) ? 1 : halvings + (tree.shares_place(rank) ? 1 : 0);
  for (int skip = 1; skip < ranks; skip *= 2)
    messages += rank + std::min(skip, ranks - skip) > ranks ? 2 : 1;
  return static_cast<std::size_t>(messages);
}

TEST_CASE("more than 16 ranks add along a tree, and compare calls, in log2 P messages") {
  MpiCommunicator world(MPI_COMM_WORLD);
  for (const int size : {17, 19, 20}) {
    if (testing::World::get().lacks(size)) return;
    MpiCommunicator ranks = world.split(world.rank() < size ? 0 : 1, 0);
    if (world.rank() >= size) continue;
    for (const std::size_t n : {std::size_t{5}, std::size_t{100}, std::size_t{5001}}) {
      check_sums_of_tree<float>(ranks, n);
      check_sums_of_tree<bf16>(ranks, n);
      check_sums_of_tree<std::int64_t>(ranks, n);
    }
    check_extremes_of_tree(ranks);
    check_order_of_all_elements(ranks);
    std::vector<double> data(64, 1.0);
    seen.clear();
    is_watching = true;
    ranks.all_reduce<double>(data, data);
    is_watching = false;
    CHECK(data[63] == size);
    const auto headers = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size - 1)));
    CHECK(seen.size() == headers + messages_of_sum(ranks.rank(), size));
    seen.clear();
    is_watching = true;
    { const MpiCommunicator ended = std::move(ranks); }
    is_watching = false;
    CHECK(seen.size() == 2 * headers);  // for those that wait in a collective, and for a message
  }
}

TEST_CASE("a sum of more than 16 ranks is under way while they do other things") {
  MpiCommunicator world(MPI_COMM_WORLD, {.timeout = std::chrono::seconds(30)});
  if (testing::World::get().lacks(17)) return;
  const int last = world.size() - 1;
  for (const CheckLevel checks : {CheckLevel::local, CheckLevel::communicating}) {
    MpiCommunicator ranks(MPI_COMM_WORLD, {.checks = checks, .timeout = std::chrono::seconds(30)});
    std::vector<double> data(1 << 16, 1.0), token(1);
    if (world.rank() == last) world.receive(std::span(token), 0);
    auto sum = ranks.begin_all_reduce<double>(data, data);
    if (world.rank() == 0) world.send(std::span<const double>(token), last);
    world.barrier();
    sum.finish();
    CHECK(data.front() == ranks.size());
    CHECK(data.back() == ranks.size());
  }
}

TEST_CASE("of sums of more than 16 ranks that are under way each is compared with its own") {
  MpiCommunicator ranks(MPI_COMM_WORLD, {.timeout = std::chrono::seconds(30)});
  if (testing::World::get().lacks(17)) return;
  using Sum = decltype(ranks.begin_all_reduce<double>({}, {}));
  std::vector<std::vector<double>> data;
  for (std::size_t n = 1; n <= 50; ++n) data.emplace_back(n, 1.0);  // another call each
  std::vector<Sum> sums;
  for (std::vector<double>& some : data) {
    sums.push_back(ranks.begin_all_reduce<double>(some, some));
    for (std::size_t i = sums.size(); i > 0; --i) sums[i - 1].progress();  // the newest first
  }
  CHECK(testing::message_of<collective_error>([&] {
          for (Sum& sum : sums) sum.finish();
        }) == "");
  for (const std::vector<double>& some : data) CHECK(some.back() == ranks.size());
}

TEST_CASE("of more than 16 ranks one does not come") {
  MpiCommunicator world(MPI_COMM_WORLD);
  if (testing::World::get().lacks(17)) return;
  MpiCommunicator ranks(MPI_COMM_WORLD, {.timeout = std::chrono::milliseconds(300)});
  if (ranks.rank() != 7)
    CHECK_THROWS_WITH_AS(ranks.barrier(), doctest::Contains(", which may itself wait for another;"),
                         peer_error);
  world.barrier();
}

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

TEST_CASE("what is under way while layers run gives the bits of what is waited for") {
  for (const mesh& sizes :
       {mesh{.data = 2, .tensor = 2}, mesh{.replica = 2, .data = 2}, mesh{.data = 3},
        mesh{.data = 4}}) {  // of 3 samples the last rank has none
    if (testing::World::get().size() != sizes.size()) continue;
    MeshRanks<MpiCommunicator> ranks(MpiCommunicator(MPI_COMM_WORLD), sizes);
    Reference backend;
    const std::vector<double> plain = testing::steps_on_mesh(backend, ranks, Keep::whole);
    for (const Keep keep : {Keep::whole, Keep::state_over_data})
      CHECK(testing::steps_on_mesh<true>(backend, ranks, keep) == plain);
    for (const Keep keep : {Keep::gradients_over_data, Keep::all_over_data})
      CHECK(testing::steps_on_mesh<true>(backend, ranks, keep) ==
            testing::steps_on_mesh(backend, ranks, keep));
  }
}

TEST_CASE("sums in backward that differ between ranks are told on each") {
  if (testing::World::get().lacks(2)) return;
  using Ranks = MeshRanks<MpiCommunicator>;
  using M = Model<testing::InThreeGroups, Context<float, Reference, Ranks>>;
  Ranks ranks(MpiCommunicator(MPI_COMM_WORLD, {.timeout = std::chrono::seconds(30)}),
              {.data = mesh::rest});
  M model(ranks, Seed{5}, {.bucket_bytes = ranks.rank() == 0 ? 20U : 24U, .sums_meanwhile = true});
  Optimizer optimizer(model, AdamW{});
  const Tensor<float, M::input_layout> x({{Axis::batch, 4}, {Axis::feature, 6}}, ranks.place());
  const Tensor<std::int32_t, M::input_layout> labels({{Axis::batch, 4}}, ranks.place());
  const std::string message = testing::message_of<collective_error>(
      [&] { train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer); });
  testing::check_mentions(message, {"rank 0 called begin_all_reduce(sum, float32, 5 elements)",
                                    " called begin_all_reduce(sum, float32, 6 elements)"});
}

TEST_CASE("a pipeline of processes trains as one of threads, on 2 stages of 2 ranks") {
  if (testing::World::get().lacks(4)) return;
  MeshRanks<MpiCommunicator> ranks(MpiCommunicator(MPI_COMM_WORLD), {.pipeline = 2, .tensor = 2});
  Reference backend;
  const std::vector<double> here = testing::pipeline_steps(backend, ranks, zero_bubble_h1(2, 3));
  std::vector<std::vector<double>> of_threads(4);
  run_mesh({.pipeline = 2, .tensor = 2}, [&](MeshRanks<ThreadCommunicator>& threads) {
    Reference own;
    of_threads[static_cast<std::size_t>(threads.rank())] =
        testing::pipeline_steps(own, threads, zero_bubble_h1(2, 3));
  });
  const std::vector<double>& there = of_threads[static_cast<std::size_t>(ranks.rank())];
  REQUIRE(here.size() == there.size());
  for (std::size_t i = 0; i < here.size(); ++i) CHECK(std::abs(here[i] - there[i]) < 1e-13);
}

TEST_CASE("stages that gather and sum beside their layers have the bits of those that wait") {
  if (testing::World::get().lacks(4)) return;
  MeshRanks<MpiCommunicator> ranks(MpiCommunicator(MPI_COMM_WORLD), {.pipeline = 2, .data = 2});
  Reference backend;
  const auto steps = [&](bool beside_layers) {
    return testing::pipeline_steps(backend, ranks, zero_bubble_h1(2, 3),
                                   {.keep = Keep::all_over_data,
                                    .gathers_ahead = beside_layers,
                                    .sums_in_backward = beside_layers});
  };
  CHECK(steps(true) == steps(false));
}

TEST_CASE("stages that sum gradients in backward have the bits of those that sum them after it") {
  if (testing::World::get().lacks(4)) return;
  MeshRanks<MpiCommunicator> ranks(MpiCommunicator(MPI_COMM_WORLD), {.pipeline = 2, .data = 2});
  Reference backend;
  const auto steps = [&](Keep keep, bool sums_in_backward) {
    return testing::pipeline_steps<testing::in_four_stages, 2>(
        backend, ranks, interleaved_one_f_one_b(2, 4, 2),
        {.keep = keep, .sums_in_backward = sums_in_backward});
  };
  for (const Keep keep : {Keep::whole, Keep::gradients_over_data})
    CHECK(steps(keep, true) == steps(keep, false));
}
