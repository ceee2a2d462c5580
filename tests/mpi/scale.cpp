// A job of many processes on a mesh, small enough to be simulated: it describes its mesh and trains
// two steps, or compares times with those that `predict` says.
//
//     scale MESH [times]    such as data=16,tensor=4

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/describe_mesh.hpp"
#include "shardwise/comm/mesh_sizes.hpp"
#include "shardwise/comm/mpi_mesh.hpp"
#include "shardwise/data/row_batch.hpp"
#include "shardwise/data/sampler.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/predict.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"

using namespace shardwise;

namespace {

using Ranks = MeshRanks<MpiCommunicator>;

template <std::size_t Wide>
struct Mlp : Sequential<ColumnParallelLinear<24, Wide>, Relu, RowParallelLinear<Wide, 8>> {};

/// Two steps of 64 samples, which are divided over `data`. Calls after(loss, seconds, plan) behind
/// each.
template <std::size_t Wide, class After>
void train(Ranks& ranks, After after) {
  std::vector<double> inputs(64 * 24);
  std::vector<std::int32_t> classes(64);
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<double>(i * 5 % 11) / 11;
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<std::int32_t>(i % 8);
  RowBatch<double, SamplesOverMesh<Invariant>> x(inputs, {{Axis::feature, 24}}, ranks.place());
  RowBatch<std::int32_t, SamplesOverMesh<Invariant>> labels(classes, {}, ranks.place());
  Model<Mlp<Wide>, Context<double, Reference, Ranks>> model(ranks, Seed{1});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
  DistributedSampler sampler(x.count(), ranks.place(), {.batch_size = 64});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& [in, target] : EpochBatches(sampler, x, labels)) {
      const double begin = MPI_Wtime();
      const double loss = train_step(model, in, target, CrossEntropy{}, optimizer);
      after(loss, MPI_Wtime() - begin, plan_step(model, in.global(), CrossEntropy{}));
    }
}

/// Seconds of a message of so many bytes from rank 0 to rank 1 or back.
double ping_pong(int rank, std::size_t bytes) {
  std::vector<char> data(bytes);
  const int count = static_cast<int>(bytes);
  constexpr int rounds = 4;
  const double begin = MPI_Wtime();
  for (int i = 0; i < 2 * rounds && rank < 2; ++i) {
    if (i % 2 == rank)
      MPI_Send(data.data(), count, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD);
    else
      MPI_Recv(data.data(), count, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return (MPI_Wtime() - begin) / (2 * rounds);
}

/// From two ping-pongs, of a header and of a MiB.
Link measured_link(Ranks& ranks) {
  const double small = ping_pong(ranks.rank(), 48);
  const double large = ping_pong(ranks.rank(), 1 << 20);
  Link link;
  link.bandwidth = ((1 << 20) - 48) / (large - small);
  link.latency = small - 48 / link.bandwidth;
  ranks.broadcast(std::span(&link.latency, 1), 0);
  ranks.broadcast(std::span(&link.bandwidth, 1), 0);
  return link;
}

void print_row(const Ranks& ranks, const char* what, std::size_t elements, double predicted,
               double took) {
  if (ranks.rank() == 0)
    std::printf("| %s | %s | %zu | %.1f | %.1f | %+.1f %% |\n", to_string(ranks.sizes()).c_str(),
                what, elements, predicted * 1e6, took * 1e6, 100 * (predicted / took - 1));
}

/// Along `data`, three times one after the other.
template <class F>
double seconds_of(Ranks& ranks, F call) {
  ranks.barrier();
  const double begin = MPI_Wtime();
  for (int i = 0; i < 3; ++i) call();
  return (MPI_Wtime() - begin) / 3;
}

template <std::size_t Wide>
void compare_step(Ranks& ranks, const StepCost& cost) {
  int step = 0;
  train<Wide>(ranks, [&](double, double took, const Plan& plan) {
    if (++step == 2) print_row(ranks, "step", 33 * Wide + 8, predict(plan, cost), took);
  });
}

void compare_times(Ranks& ranks) {
  const Link link = measured_link(ranks);
  const StepCost cost = StepCost::on(link);
  if (ranks.rank() == 0)
    std::printf("latency %.2f us, bandwidth %.3f GB/s\n", link.latency * 1e6,
                link.bandwidth * 1e-9);
  MpiCommunicator& group = ranks.along(MeshAxis::data);
  const auto size = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  for (const std::size_t elements : {std::size_t{4096}, std::size_t{65536}, std::size_t{1 << 20}}) {
    std::vector<float> all(elements);
    const std::vector<std::size_t> counts(size, elements / size);
    const std::span<float> mine = std::span(all).subspan(rank * (elements / size), elements / size);
    const auto seconds = [&](const Collective& entry) {
      return critical_path(entry.over(MeshAxis::data), ranks.sizes()).on(link);
    };
    print_row(ranks, "all-gather", elements, seconds(all_gather(elements)),
              seconds_of(ranks, [&] { group.all_gather<float>(mine, all, counts); }));
    print_row(ranks, "all-reduce", elements, seconds(all_reduce(elements)),
              seconds_of(ranks, [&] { group.all_reduce<float>(all, all); }));
  }
  compare_step<32>(ranks, cost);
  compare_step<512>(ranks, cost);
  compare_step<8192>(ranks, cost);
}

}  // namespace

int main(int argc, char** argv) {
  run_mpi_mesh(parse_mesh(argv[1]), [&](Ranks& ranks) {
    if (argc > 2) return compare_times(ranks);
    const std::string text = describe(ranks);
    if (ranks.rank() == 0) std::fputs(text.c_str(), stdout);
    train<32>(ranks, [&](double loss, double, const Plan&) {
      if (ranks.rank() == 0) std::printf("loss %.10f\n", loss);
    });
  });
}
