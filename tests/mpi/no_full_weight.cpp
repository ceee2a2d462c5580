// No rank ever holds a full sharded weight: each may take less memory than the whole of it, and
// trains all the same.
//
//     no_full_weight PERCENT    of the bytes of all weights, which a rank may take on top of what
//                               it has when MPI runs and a small model has been trained
//
// A rank that trains holds its part of the weights and their gradients, so 1/P of the weights
// twice; with plain SGD there is nothing else that grows with them.

#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/mpi_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"

using namespace shardwise;

namespace {

constexpr std::size_t narrow = 1024;

template <std::size_t Wide>
struct Mlp : Sequential<ColumnParallelLinear<narrow, Wide>, Relu, RowParallelLinear<Wide, narrow>> {
};
template <std::size_t Wide>
constexpr std::size_t weight_bytes = 2 * narrow* Wide * sizeof(float);

/// What RLIMIT_DATA counts: private memory that can be written to.
std::size_t data_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::size_t kibibytes = 0;
  while (status >> word)
    if (word == "VmData:" && status >> kibibytes) return kibibytes * 1024;
  throw data_error("/proc/self/status has no VmData");
}

/// Two steps; returns the memory that this rank has while the model is there.
template <std::size_t Wide>
std::size_t train(MpiCommunicator& ranks) {
  Model<Mlp<Wide>, Context<float, Reference, MpiCommunicator>> model(ranks, Seed{1});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
  const Shape shape{{Axis::batch, 2}, {Axis::feature, narrow}};
  Tensor<float, Invariant> x(shape, place_of(ranks));
  Tensor<float, Invariant> target(shape, place_of(ranks));
  for (std::size_t i = 0; i < shape.elements(); ++i) x[i] = static_cast<float>(i % 7) - 3;
  for (int step = 0; step < 2; ++step)
    train_step(model, x.view(), target.view(), MeanSquaredError{}, optimizer);
  return data_bytes();
}

}  // namespace

int main(int, char** argv) {
  constexpr std::size_t wide = 12288;
  const double share = std::atof(argv[1]) / 100;
  run_mpi_ranks([&](MpiCommunicator& ranks) {
    train<64>(ranks);
    ranks.barrier();
    const std::size_t baseline = data_bytes();
    const auto more = static_cast<std::size_t>(share * static_cast<double>(weight_bytes<wide>));
    const rlimit limit{baseline + more, baseline + more};
    if (setrlimit(RLIMIT_DATA, &limit) != 0) throw argument_error("setrlimit failed");
    const std::size_t taken = train<wide>(ranks) - baseline;
    constexpr double mib = 1 << 20;
    std::printf(
        "rank %d of %d: trained %.1f MiB of weights with %.1f MiB beyond the %.1f MiB it had, of "
        "%.1f MiB allowed\n",
        ranks.rank(), ranks.size(), weight_bytes<wide> / mib, static_cast<double>(taken) / mib,
        static_cast<double>(baseline) / mib, static_cast<double>(more) / mib);
  });
}
