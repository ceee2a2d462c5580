// A perceptron on a mesh of 8 ranks. `--mesh` says how many ranks share its layers, and how many
// share the samples.
//
//     --mesh data=2,tensor=4    features 0-15   16-31   32-47   48-63
//
//     samples  0 to 24              rank 0 ────── 1 ────── 2 ────── 3    a sum of logits
//                                     │           │        │        │
//     samples 25 to 49              rank 4 ────── 5 ────── 6 ────── 7    a sum of logits
//                              a sum of gradients in each column
//
// The losses are the same on every mesh.
//
// test: --mesh data=2,tensor=*
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "shardwise/comm/mesh_sizes.hpp"
#include "shardwise/shardwise.hpp"
#include "support/launch.hpp"
#include "support/print_plan.hpp"
#include "support/spiral.hpp"

namespace sw = shardwise;

namespace {

constexpr int world_size = 8;
constexpr std::size_t batch = 50;

// begin: model
struct Mlp : sw::Sequential<sw::ColumnParallelLinear<2, 64>, sw::Gelu, sw::Dropout<1, 20>,
                            sw::RowParallelLinear<64, example::arms>> {};

using Ranks = sw::MeshRanks<example::Ranks>;  // the line that puts it on a mesh
using Model = sw::Model<Mlp, sw::Context<double, sw::Reference, Ranks>>;
// end: model

// begin: sent
template <sw::mesh Sizes>
constexpr std::size_t sent = sw::plan<Mlp, Sizes>(sw::batch{batch}).bytes_sent();

static_assert(sent<sw::mesh{.data = 2, .tensor = 4}> < sent<sw::mesh{.tensor = 8}>);
static_assert(sent<sw::mesh{.data = 2, .tensor = 4}> < sent<sw::mesh{.data = 8}>);
// end: sent

/// What a step sends along each axis, and what rank 0 has.
void print_costs(Model& model, sw::Keep keep) {
  const sw::Shape in{{sw::Axis::batch, batch}, {sw::Axis::feature, 2}};
  example::print_plan(plan_step(model, in, sw::CrossEntropy{}, {}, keep));
  const auto updated = [&](sw::Keep by) {
    return sw::updated_parameters_of_rank<Model::ends>(Mlp{}, model.ranks().place(), in, by);
  };
  std::printf("rank 0 holds %zu parameters, and the moments of %zu\n", updated(sw::Keep::whole),
              updated(keep));
}

// begin: train
void train(Ranks& ranks, const example::Points& points, sw::Keep keep) {
  using Samples = sw::SamplesOverMesh<sw::Invariant>;  // each rank reads those of its row
  sw::RowBatch<double, Samples> x(points.at, {{sw::Axis::feature, 2}}, ranks.place());
  sw::RowBatch<std::int32_t, Samples> labels(points.arm, {}, ranks.place());
  sw::DistributedSampler sampler(x.count(), ranks.place(), {.batch_size = batch});

  Model model(ranks, sw::Seed{1});
  sw::Optimizer optimizer(model, sw::AdamW{.learning_rate = 0.05}, keep);
  if (ranks.rank() == 0) print_costs(model, keep);
  for (int epoch = 1; epoch <= 20; ++epoch) {
    sw::RunningMean loss;
    for (const auto& [in, arm] : sw::EpochBatches(sampler, x, labels))
      loss.add(train_step(model, in, arm, sw::CrossEntropy{}, optimizer), in.global()[0].units);
    if (ranks.rank() == 0 && epoch % 5 == 0)
      std::printf("epoch %2d   loss %.6f\n", epoch, loss.value());
  }
}
// end: train

}  // namespace

int main(int argc, char** argv) try {
  std::string_view option;
  auto keep = sw::Keep::whole;
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (*word == "--state-over-data") {
      keep = sw::Keep::state_over_data;
    } else if (*word == "--mesh" && word + 1 != words.end()) {
      option = *++word;
    } else {
      throw std::invalid_argument("usage: 11_mesh [--mesh SIZES] [--state-over-data]");
    }
  }
  const example::Points points = example::spiral();
  // begin: launch
  const sw::mesh sizes = sw::choose_mesh(option).on_ranks(world_size);
  example::launch(world_size, [&](example::Ranks& world) {
    Ranks ranks(world, sizes);
    train(ranks, points, keep);
  });
  // end: launch
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "11_mesh: %s\n", e.what());
  return 1;
}
