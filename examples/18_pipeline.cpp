// A perceptron whose layers are cut into stages: ranks along `pipeline` have different layers, and
// a batch goes through them in four micro-batches, so that no stage waits for a whole batch.
//
//     rank 0, 1    layers 0 to 2    micro-batch  3 → 2 →
//                                                        ↓ what layer 2 gives, ↑ its gradient
//     rank 2, 3    layers 3 to 5                   1 → 0 →
//
// The losses are the same on every mesh that it takes, to the digits that it prints.
//
// test:
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "shardwise/comm/mesh_sizes.hpp"
#include "shardwise/pipeline/cut.hpp"
#include "shardwise/pipeline/known_schedules.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/schedule_run.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/pipeline/step.hpp"
#include "shardwise/shardwise.hpp"
#include "support/launch.hpp"
#include "support/spiral.hpp"

namespace sw = shardwise;

namespace {

constexpr int world_size = 4, stages = 2, micro_batches = 4;
constexpr std::size_t rows = 75;  // of a micro-batch

// begin: model
struct Mlp : sw::Sequential<sw::ColumnParallelLinear<2, 64>, sw::Gelu,
                            sw::RowParallelLinear<64, 64>,  // what the first stage ends with
                            sw::ColumnParallelLinear<64, 64>, sw::Gelu,
                            sw::RowParallelLinear<64, example::arms>> {};

constexpr std::array cut{sw::CutPlace{3}};  // before layer 3
// Of each step, ranks wait (P-1) / (M+P-1) = 1/5.
static_assert(sw::time_of(sw::one_f_one_b(stages, micro_batches)).bubble < 0.21);

using Ranks = sw::MeshRanks<example::Ranks>;
using Context = sw::Context<double, sw::Reference, Ranks>;
// end: model

// begin: micro_batches
/// The micro-batches of a step. Each has RowBatches of its own, because a step reads all of them.
struct MicroBatches {
  using Samples = sw::SamplesOverMesh<sw::Invariant>;  // each rank reads those of its row

  MicroBatches(const example::Points& points, const sw::MeshPlace& place)
      : sampler(points.arm.size(), place, {.batch_size = rows}) {
    for (int k = 0; k < micro_batches; ++k) {
      x.emplace_back(points.at, sw::Shape{{sw::Axis::feature, 2}}, place);
      labels.emplace_back(points.arm, sw::Shape{}, place);
    }
  }

  void next() {
    inputs.clear();
    targets.clear();
    for (std::size_t k = 0; k < x.size(); ++k) {
      const sw::SampleBatch chosen = sampler.next();
      inputs.push_back(x[k].gather(chosen));
      targets.push_back(labels[k].gather(chosen));
    }
  }

  sw::DistributedSampler sampler;
  std::deque<sw::RowBatch<double, Samples>> x{};
  std::deque<sw::RowBatch<std::int32_t, Samples>> labels{};
  std::vector<sw::View<const double, Samples>> inputs{};
  std::vector<sw::View<const std::int32_t, Samples>> targets{};
};
// end: micro_batches

// begin: train
template <class Stage>
void train(Stage& stage, const example::Points& points) {
  const sw::PipelineSchedule schedule = sw::one_f_one_b(stages, micro_batches);
  MicroBatches batches(points, stage.place());
  sw::Optimizer optimizer(stage.model(), sw::AdamW{.learning_rate = 0.02});
  for (int step = 1; step <= 60; ++step) {
    batches.next();
    const double loss = train_pipeline_step(stage, schedule, batches.inputs, batches.targets,
                                            sw::CrossEntropy{}, optimizer);
    if (stage.all_ranks().rank() == 0 && step % 15 == 0)
      std::printf("step %2d   loss %.6f\n", step, loss);
  }
}
// end: train

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 2)
    throw std::invalid_argument("usage: 18_pipeline [SIZES], such as pipeline=2,data=2");
  const std::string_view option = argc == 2 ? argv[1] : "pipeline=2,tensor=2";
  const sw::mesh sizes = sw::choose_mesh(option).on_ranks(world_size);
  const example::Points points = example::spiral();
  // begin: launch
  example::launch(world_size, [&](example::Ranks& world) {
    Ranks ranks(world, sizes);
    const sw::Shape in{{sw::Axis::batch, rows}, {sw::Axis::feature, 2}};
    sw::on_pipeline_stage<Context, cut>(Mlp{}, ranks, sw::Seed{1}, in,
                                        [&](auto& stage) { train(stage, points); });
  });
  // end: launch
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "18_pipeline: %s\n", e.what());
  return 1;
}
