// A job of many processes on a mesh, small enough to be simulated: it describes its mesh and trains
// two steps.
//
//     scale MESH    such as data=16,tensor=4

#include <cstddef>
#include <cstdint>
#include <cstdio>
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
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"

using namespace shardwise;

namespace {

using Ranks = MeshRanks<MpiCommunicator>;

struct Mlp : Sequential<ColumnParallelLinear<24, 32>, Relu, RowParallelLinear<32, 8>> {};

/// Two steps of 64 samples, which are divided over `data`.
void train(Ranks& ranks) {
  std::vector<double> inputs(64 * 24);
  std::vector<std::int32_t> classes(64);
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<double>(i * 5 % 11) / 11;
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<std::int32_t>(i % 8);
  RowBatch<double, SamplesOverMesh<Invariant>> x(inputs, {{Axis::feature, 24}}, ranks.place());
  RowBatch<std::int32_t, SamplesOverMesh<Invariant>> labels(classes, {}, ranks.place());
  Model<Mlp, Context<double, Reference, Ranks>> model(ranks, Seed{1});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
  DistributedSampler sampler(x.count(), ranks.place(), {.batch_size = 64});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& [in, target] : EpochBatches(sampler, x, labels)) {
      const double loss = train_step(model, in, target, CrossEntropy{}, optimizer);
      if (ranks.rank() == 0) std::printf("loss %.10f\n", loss);
    }
}

}  // namespace

int main(int, char** argv) {
  run_mpi_mesh(parse_mesh(argv[1]), [](Ranks& ranks) {
    const std::string text = describe(ranks);
    if (ranks.rank() == 0) std::fputs(text.c_str(), stdout);
    train(ranks);
  });
}
