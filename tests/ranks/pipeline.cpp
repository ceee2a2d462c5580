// Training on a pipeline gives the parameters and losses of one rank: stages of several cuts, on
// meshes with and without other axes, with few, many and uneven micro-batches, in every order that
// schedules give.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ranks/pipeline_batches.hpp"
#include "shardwise/checkpoint/checkpoint_folder.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/layers/stream.hpp"
#include "shardwise/pipeline/cut_by_cost.hpp"
#include "shardwise/pipeline/message_plan.hpp"
#include "shardwise/pipeline/stage_sums.hpp"
#include "support/count_allocations.hpp"
#include "support/error_of.hpp"
#include "support/file_tensors.hpp"
#include "support/late_ranks.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;
using namespace testing::on_meshes;
using testing::alike;
using testing::check_near;
using testing::contains;
using testing::error_of;
using testing::gradients_of;
using testing::LateRanks;
using testing::merge;
using testing::on_each_rank;
using testing::on_late_mesh;
using testing::parameters_of;
using testing::ThreadMesh;
using testing::trained;
using testing::TrainingResult;

namespace {

struct Block : Residual<Sequential<LayerNorm<8>, ColumnParallelLinear<8, 7>, Gelu, Dropout<1, 4>,
                                   RowParallelLinear<7, 8>>> {};
struct Net : Sequential<ColumnParallelLinear<6, 7>, Gelu, Dropout<1, 4>, RowParallelLinear<7, 8>,
                        Repeat<3, Block>, LayerNorm<8>, Linear<split::output, 8, 5>> {};

using Ctx = OnThreadMesh<double>;
using Parameters = testing::NamedNumbers;

constexpr int steps = 3;
constexpr Sgd rule{.learning_rate = 0.1, .momentum = 0.9};

/// `norm` is the largest that gradients may have.
template <class Layers = Net>
TrainingResult on_one_rank(std::size_t samples, std::optional<double> norm = {}) {
  return on_each_rank(mesh{}, [&](ThreadMesh& ranks) {
    Model<Layers, Ctx> model(ranks, Seed{5});
    Optimizer optimizer(model, rule);
    const MicroBatches batch({samples}, ranks.place());
    return trained(model, steps, [&] {
      return train_step(model, batch.inputs[0], batch.targets[0], CrossEntropy{}, optimizer,
                        {.clip_norm = norm});
    });
  })[0];
}

/// How often steps begin and end sums in backward, and whether gradients were sums after each end.
struct SeenSums {
  int begun = 0, ended = 0;
  bool are_summed = true;
};

/// The traffic of a model, and what is seen of its sums.
template <class M>
struct WatchedTraffic final : detail::Traffic {
  WatchedTraffic(M& of, SeenSums& noted) : model(of), traffic(*of.run().traffic), seen(noted) {
    model.run().traffic = this;
  }
  ~WatchedTraffic() override { model.run().traffic = &traffic; }

  void begin_pass(bool goes_backward) override { traffic.begin_pass(goes_backward); }
  void finish_pass() override { traffic.finish_pass(); }
  void end_pass() noexcept override { traffic.end_pass(); }
  void progress() override { traffic.progress(); }
  Buffer take(std::size_t number) override { return traffic.take(number); }
  void sum_shares(std::span<const detail::ParameterSlot> parameters, Buffer&& gradients,
                  Write write) override {
    traffic.sum_shares(parameters, std::move(gradients), write);
  }
  void written(std::span<const detail::ParameterSlot> parameters) override {
    traffic.written(parameters);
  }
  void begin_last_batch(bool shares_are_cut) override {
    ++seen.begun;
    traffic.begin_last_batch(shares_are_cut);
  }
  void end_last_batch() override {
    ++seen.ended;
    traffic.end_last_batch();
    seen.are_summed = seen.are_summed && model.run().step.gradients != GradientState::summands;
  }
  void discard_step() noexcept override { traffic.discard_step(); }

  M& model;
  detail::Traffic& traffic;
  SeenSums& seen;
};

/// What this rank learns in steps whose sums begin in backward, or do not.
template <auto Cut, class Layers, std::size_t Chunks = 1>
Parameters train_summing(MeshRanks<LateRanks>& ranks, const PipelineSchedule& schedule,
                         const std::vector<std::size_t>& sizes, Keep keep, bool in_backward) {
  Parameters result;
  const auto train = [&](auto& stages, auto& optimizer) {
    SeenSums seen;
    std::vector<std::unique_ptr<detail::Traffic>> watched;
    stages.for_each([&]<class Stage>(Stage& stage) {
      using Watched = WatchedTraffic<typename Stage::model_type>;
      if (in_backward) watched.push_back(std::make_unique<Watched>(stage.model(), seen));
      stage.model().run().sending.bucket_bytes = 100;
    });
    const MicroBatches batches(sizes, stages.place());
    result = trained(stages, steps, [&] {
               return step_of(stages, optimizer, schedule, batches, {.clip_norm = 0.25});
             }).parameters;
    CHECK(seen.begun == (in_backward ? steps * static_cast<int>(Chunks) : 0));
    CHECK(seen.ended == seen.begun);
    CHECK(seen.are_summed);
  };
  using OnLate = Context<double, Reference, MeshRanks<LateRanks>>;
  with_stages<Cut, Chunks, Ends<Invariant, Invariant>, OnLate>(
      Layers{}, ranks, shape_of(1), rule, train, keep, Seed{5}, {.sums_meanwhile = in_backward});
  return result;
}

/// Each stage has as many micro-batches in flight as the schedule says.
template <class Stages>
void check_flights(Stages& stages, std::span<const PipelineSchedule::Action> actions) {
  int chunk = 0;
  stages.for_each([&](auto& stage) {
    int in_flight = 0, most = 0;
    for (const PipelineSchedule::Action& action : actions) {
      if (action.chunk != chunk) continue;
      if (action.work == PipelineSchedule::Work::forward) most = std::max(most, ++in_flight);
      if (action.work == PipelineSchedule::Work::backward ||
          action.work == PipelineSchedule::Work::backward_parameters)
        --in_flight;
    }
    CHECK(stage.model().flights() == static_cast<std::size_t>(most));
    ++chunk;
  });
}

/// The memory of a stage is what the queries say, also where it shares parameters with others.
template <class Stage, class O>
void check_memory(Stage& stage, const O& optimizer) {
  using M = typename Stage::model_type;
  const StateMemory memory = state_of_rank<typename M::ends, typename M::precision>(
      stage.model().layers(), stage.place(), stage.input_shape(shape_of(7)),
      optimizer.rule().moments(), optimizer.keep());
  CHECK(memory.parameters == sizeof(double) * stage.model().values().size());
  CHECK(memory.moments == sizeof(double) * optimizer.moments().size());
}

/// What this rank learns with `Chunks` stages.
template <auto Cut, class Layers = Net, std::size_t Chunks = 1>
TrainingResult train(ThreadMesh& ranks, const PipelineSchedule& schedule,
                     const std::vector<std::size_t>& sizes, std::optional<double> norm,
                     Keep keep = Keep::state_over_data) {
  TrainingResult result;
  const auto use = [&](auto& stages, auto& optimizer) {
    const MicroBatches batches(sizes, stages.place());
    result = trained(stages, steps, [&] {
      return step_of(stages, optimizer, schedule, batches, {.clip_norm = norm});
    });
    check_flights(stages, schedule.of(ranks.place()[MeshAxis::pipeline].rank));
    if constexpr (Chunks > 1)
      stages.for_each([&]<class Stage>(Stage& stage) {
        check_memory(stage, optimizer.template stage<Stage>());
        CHECK(contains(error_of([&] { optimizer.template stage<Stage>().end_step(); }),
                       "step 4 without gradients: no backward ran"));
      });
  };
  with_stages<Cut, Chunks>(Layers{}, ranks, shape_of(1), rule, use, keep);
  return result;
}

/// The losses, which all ranks have alike, and the parameters of all stages.
template <auto Cut, class Layers = Net, std::size_t Chunks = 1>
TrainingResult on_pipeline(const mesh& sizes, const PipelineSchedule& schedule,
                           const std::vector<std::size_t>& micro_batches,
                           std::optional<double> norm = {}, Keep keep = Keep::state_over_data) {
  return all_of(on_each_rank(sizes, [&](ThreadMesh& ranks) {
    return train<Cut, Layers, Chunks>(ranks, schedule, micro_batches, norm, keep);
  }));
}

/// The same losses and parameters, up to rounding.
void check_same(const TrainingResult& all, const TrainingResult& one) {
  CHECK(all.parameters.size() == one.parameters.size());
  check_near(all, one, 1e-13);
}

/// Trains by GPipe, 1F1B and ZB-H1.
template <auto Cut, class Layers = Net>
void check_as_one_rank(const mesh& sizes, const std::vector<std::size_t>& micro_batches,
                       std::optional<double> norm = {}) {
  CAPTURE(to_string(sizes));
  CAPTURE(micro_batches.size());
  const int count = static_cast<int>(micro_batches.size());
  const TrainingResult one = on_one_rank<Layers>(
      std::accumulate(micro_batches.begin(), micro_batches.end(), std::size_t{}), norm);
  Parameters parameters_before;
  for (const PipelineSchedule& schedule :
       {gpipe(sizes.pipeline, count), one_f_one_b(sizes.pipeline, count),
        zero_bubble_h1(sizes.pipeline, count)}) {
    const TrainingResult all = on_pipeline<Cut, Layers>(sizes, schedule, micro_batches, norm);
    check_same(all, one);
    if (parameters_before.empty()) parameters_before = all.parameters;
    CHECK(all.parameters == parameters_before);  // the same bits
  }
}

constexpr std::array in_blocks{CutPlace{4, 1}};
/// Split features go from the first stage to the second.
constexpr std::array four{CutPlace{3}, CutPlace{4, 1}, CutPlace{4, 2}};
static_assert(cut_by_cost<3, Net>(shape_of(1)) == std::array{CutPlace{4, 1}, CutPlace{4, 2}});

const std::vector<std::vector<std::size_t>> micro_batches{
    {7}, {3, 1, 4}, {2, 2, 2, 1}, {1, 2, 1, 1, 3, 1, 1, 2}};

/// Passes what it is given.
struct Passes : KeepsStream {
  static constexpr Saves saves = Saves::nothing;

  constexpr Shape output_shape(const Shape& x) const { return x; }
  template <class Frame, class X, class Y>
  void forward(Frame&, X x, Y y) const {
    std::copy_n(x.data(), x.size(), y.data());
  }
  template <class Frame, class DY, class DX>
  void backward(Frame&, Nothing, DY dy, DX dx) const {
    if constexpr (Frame::input_gradient) std::copy_n(dy.data(), dy.size(), dx.data());
  }
};

/// Keeps a number from step to step.
struct Remembers : Passes {
  struct State {
    Tensor<double, Invariant> number;

    template <class F>
    void visit_buffers(F&& f) {
      f("number", number.view());
    }
  };
  template <class Frame>
  State make_state(Frame& frame) const {
    return {Tensor<double, Invariant>(Shape{{Axis::feature, 1}}, frame.place())};
  }
};

/// Parameters of each kind, which the first and the last layers use.
struct Table;
struct Scale;
using Tables = Linear<split::output, 6, 6>;
/// Would begin with other numbers than its owner.
struct FromZero : Tables {
  constexpr auto parameter_specs(const Shape& in) const {
    auto specs = Tables::parameter_specs(in);
    for (ParameterSpec& spec : specs) spec.begins = init::zeros;
    return specs;
  }
};
struct Tied
    : Sequential<Owns<Table, Tables>, To<Sharded<Axis::batch>>, Owns<Scale, LayerNorm<6>>,
                 To<Invariant>, Remembers, ColumnParallelLinear<6, 7>, Relu,
                 RowParallelLinear<7, 6>, To<Sharded<Axis::batch>>, Borrows<Scale, LayerNorm<6>>,
                 To<Invariant>, Remembers, Borrows<Table, FromZero>, Linear<split::none, 6, 5>> {};
constexpr std::array in_tied{CutPlace{5}, CutPlace{7}, CutPlace{9}};

/// A model of token ids, with a block that runs forward again.
struct Text
    : Sequential<Embedding<11, 8>,
                 Repeat<2, Recompute<Residual<Sequential<LayerNorm<8>, ColumnParallelLinear<8, 12>,
                                                         Relu, RowParallelLinear<12, 8>>>>>,
                 FirstRows, Linear<split::output, 8, 5>> {};
constexpr std::array in_text{CutPlace{1, 1}, CutPlace{3}};
/// Rows of padding in front of the first rows that are taken.
const std::vector<std::vector<Segment>> segments_of_text{{{1, 2}, {3, 3}, {8, 1}}, {}, {{2, 1}}};

/// Norms, pools and masks, of which each micro-batch leaves something for its backward.
struct Images : Sequential<BatchNorm<2>, MaxPool2d<2>, BatchNorm<2>, Flatten, Dropout<1, 4>,
                           RmsNorm<8>, Linear<split::none, 8, 5>> {};
constexpr std::array in_images{CutPlace{2}};

/// The same bits as a Step with the same batches on one rank, running statistics too. They are
/// input(samples, place), and `segments` theirs.
template <class Layers, auto Cut, class T, class Rule, class Input>
void check_bits_of_steps(const Rule& update, const Input& input,
                         std::span<const std::vector<Segment>> segments) {
  constexpr int stages = static_cast<int>(Cut.size()) + 1;
  using Of = OnThreadMesh<T>;
  const auto batches_on = [&](const MeshPlace& place) {
    return Batches(
        {3, 1, 2}, [&](std::size_t, std::size_t count) { return input(count, place); },
        [&](std::size_t, std::size_t count) { return labels(count, 0, place); });
  };
  const TrainingResult one = on_each_rank(mesh{}, [&](ThreadMesh& ranks) {
    const auto all = batches_on(ranks.place());
    Model<Layers, Of> model(Layers{}, ranks, Seed{3}, all.x[0].global());
    Optimizer optimizer(model, update);
    return trained(model, steps, [&] {
      Step step(optimizer, 6);
      double loss = 0;
      for (std::size_t k = 0; k < all.x.size(); ++k)
        loss += step.add(all.inputs[k], all.targets[k], CrossEntropy{},
                         detail::segments_of(segments, k));
      step.finish();
      return loss;
    });
  })[0];
  for (const PipelineSchedule& schedule : {one_f_one_b(stages, 3), zero_bubble_h1(stages, 3)}) {
    const TrainingResult many = all_of(on_each_rank({.pipeline = stages}, [&](ThreadMesh& ranks) {
      TrainingResult mine;
      const auto train = [&](auto& stage, auto& optimizer) {
        const auto all = batches_on(stage.place());
        mine = trained(stage, steps, [&] {
          return train_pipeline_step(stage, schedule, all.inputs, all.targets, CrossEntropy{},
                                     optimizer, {}, segments);
        });
      };
      with_stages<Cut, 1, Ends<Invariant, Invariant>, Of>(
          Layers{}, ranks, input(1, ranks.place()).global(), update, train, Keep::whole, Seed{3});
      return mine;
    }));
    CHECK(one.losses == many.losses);
    CHECK(one.parameters == many.parameters);
  }
}

}  // namespace

TEST_CASE("2 and 4 stages train as one rank") {
  for (const auto& sizes : micro_batches) {
    check_as_one_rank<in_blocks>({.pipeline = 2}, sizes);
    check_as_one_rank<four>({.pipeline = 4}, sizes);
  }
}

TEST_CASE("stages on a mesh train as one rank") {
  check_as_one_rank<in_blocks>({.pipeline = 2, .data = 2, .tensor = 2}, micro_batches[3]);
  check_as_one_rank<in_blocks>({.pipeline = 2, .data = 3, .tensor = 2}, micro_batches[1]);
  check_as_one_rank<four>({.pipeline = 4, .tensor = 2}, micro_batches[2]);
  check_as_one_rank<four>({.pipeline = 4, .tensor = 3}, micro_batches[1]);
}

namespace {

/// All forwards, and then all backwards, in two parts; chunk after chunk.
PipelineSchedule chunk_after_chunk(int ranks, int count, int chunks) {
  PipelineSchedule schedule(count, chunks);
  std::vector<PipelineSchedule::Action> actions;
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (int k = 0; k < count; ++k) actions.push_back({PipelineSchedule::Work::forward, k, chunk});
  for (int chunk = chunks; chunk-- > 0;) {
    for (int k = 0; k < count; ++k)
      actions.push_back({PipelineSchedule::Work::backward_input, k, chunk});
    for (int k = 0; k < count; ++k)
      actions.push_back({PipelineSchedule::Work::backward_parameters, k, chunk});
  }
  for (int rank = 0; rank < ranks; ++rank) schedule.add_rank(actions);
  return schedule;
}

/// Trains with clipped gradients by two stages on each rank, and by one.
template <auto Cut, class Layers>
void check_two_on_each_rank(const mesh& on, const std::vector<std::size_t>& sizes) {
  constexpr double norm = 0.25;
  const int count = static_cast<int>(sizes.size());
  const TrainingResult one =
      on_one_rank<Layers>(std::accumulate(sizes.begin(), sizes.end(), std::size_t{}), norm);
  mesh apart = on;
  apart.pipeline = 4;
  const TrainingResult each = on_pipeline<Cut, Layers>(apart, one_f_one_b(4, count), sizes, norm);
  check_same(each, one);
  std::vector schedules{chunk_after_chunk(2, count, 2)};
  if (count % 2 == 0) schedules.push_back(interleaved_one_f_one_b(2, count, 2));
  for (const PipelineSchedule& schedule : schedules) {
    const TrainingResult all = on_pipeline<Cut, Layers, 2>(on, schedule, sizes, norm);
    check_same(all, one);
    CHECK(all.parameters == each.parameters);
  }
  if (on.data == 1) return;
  const TrainingResult all =
      on_pipeline<Cut, Layers, 2>(on, schedules[0], sizes, norm, Keep::all_over_data);
  check_same(all, one);
  for (const Keep keep : {Keep::gradients_over_data, Keep::all_over_data})
    for (const PipelineSchedule& schedule : schedules)
      CHECK(on_pipeline<Cut, Layers, 2>(on, schedule, sizes, norm, keep).parameters ==
            all.parameters);
}

}  // namespace

TEST_CASE("two stages on each rank train as one rank, and with the bits of one on each") {
  for (const auto& sizes : micro_batches) check_two_on_each_rank<four, Net>({.pipeline = 2}, sizes);
  check_two_on_each_rank<four, Net>({.pipeline = 2, .data = 2, .tensor = 2}, micro_batches[2]);
}

TEST_CASE("stages that share parameters train as one rank, with clipped gradients") {
  check_as_one_rank<in_tied, Tied>({.pipeline = 4, .tensor = 2}, micro_batches[0], 0.25);
  check_two_on_each_rank<in_tied, Tied>({.pipeline = 2}, micro_batches[1]);
  check_two_on_each_rank<in_tied, Tied>({.pipeline = 2, .data = 2, .tensor = 2}, micro_batches[2]);
}

namespace {

// begin: evaluate
template <class Models>
std::pair<double, std::size_t> evaluate(Models& models, const MicroBatches& batches) {
  return {evaluate_loss(models, batches.inputs, batches.targets, CrossEntropy{}),
          count_correct(models, batches.inputs, batches.targets)};
}
// end: evaluate

/// What one rank gives for 20 samples, and whether stages give it, too.
struct Evaluated {
  std::vector<double> outputs{};
  double loss = 0;
  std::size_t correct = 0;

  /// On each rank of a mesh of a pipeline, or of 2 x 2 ranks along `data` and `tensor`.
  template <class Models>
  void check(Models& models, MeshPlace place) const {
    const Place here = std::exchange(place[MeshAxis::pipeline], Place{});
    const bool gives_less = here.rank == 0 && place[MeshAxis::data].rank == 0;
    MicroBatches batches({9, 1, 10}, place);
    std::size_t first = 0, called = 0;
    for_each_output(models, batches.inputs, [&](std::size_t batch, const auto& y) {
      CHECK(batch == called++);
      for_each_global_run(y, [&](std::size_t global, std::size_t local, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
          CHECK(std::abs(y.data()[local + i] - outputs[first + global + i]) < 1e-13);
      });
      first += y.global().elements();
    });
    CHECK(called == (here.rank + 1 == here.size ? 3 : 0));
    const auto [mine, of_all] = evaluate(models, batches);
    CHECK(std::abs(mine - loss) < 1e-13);
    CHECK(of_all == correct);
    detail::for_each_model(models, [](auto& model) { CHECK(model.step() == 1); });
    if (gives_less) batches.targets.pop_back();
    CHECK(contains(error_of([&] { count_correct(models, batches.inputs, batches.targets); }),
                   "3 inputs and 2 targets were given"));
    if (gives_less) batches.inputs.pop_back();
    CHECK(contains(error_of([&] { for_each_output(models, batches.inputs, [](auto...) {}); }),
                   "ranks disagree on what they evaluate"));
  }
};

}  // namespace

TEST_CASE("a mesh and stages evaluate batches as one rank") {
  Evaluated one;
  run_mesh({}, [&](ThreadMesh& ranks) {
    Model<Net, Ctx> model(ranks, Seed{5});
    const MicroBatches batch({20}, ranks.place());
    const auto y = model.evaluate(batch.inputs[0]);
    one.outputs.assign(y.data(), y.data() + y.size());
    one.loss = evaluate_loss(model, batch.inputs[0], batch.targets[0], CrossEntropy{});
    one.correct = count_correct(model, batch.inputs[0], batch.targets[0]);
  });
  REQUIRE((one.correct > 0 && one.correct < 20));
  run_mesh({.data = 2, .tensor = 2}, [&](ThreadMesh& ranks) {
    Model<Net, Ctx> model(ranks, Seed{5});
    one.check(model, ranks.place());
  });
  struct Ended : Sequential<Linear<split::none, 6, 5>, Identity> {};
  constexpr std::array before_identity{CutPlace{1}};  // its output is its input's memory
  run_mesh({.pipeline = 2}, [&](ThreadMesh& ranks) {
    on_pipeline_stage<Ctx, before_identity>(Ended{}, ranks, Seed{5}, shape_of(1), [&](auto& stage) {
      const MicroBatches batches({3}, stage.place());
      for_each_output(stage, batches.inputs, [&](std::size_t, const auto& y) {
        const std::vector<double> before(y.span().begin(), y.span().end());
        const Buffer other = stage.model().run().pool.take(y.size() * sizeof(double));
        std::fill_n(static_cast<double*>(other.data()), y.size(), 7.0);
        CHECK(std::equal(before.begin(), before.end(), y.span().begin()));
      });
    });
  });
  run_mesh({.pipeline = 2, .data = 2, .tensor = 2}, [&](ThreadMesh& ranks) {
    on_pipeline_stage<Ctx, in_blocks>(Net{}, ranks, Seed{5}, shape_of(1),
                                      [&](auto& stage) { one.check(stage, ranks.place()); });
    with_stages<four, 2>(Net{}, ranks, shape_of(1), rule,
                         [&](auto& chunks, auto&) { one.check(chunks, ranks.place()); });
  });
}

namespace {

/// Counts the batches that it was given.
struct Counts : Passes {
  static inline std::atomic<std::size_t> begun{0};

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    ++begun;
    Passes::forward(frame, x, y);
  }
};

}  // namespace

TEST_CASE("the first stage evaluates few batches more than the last one") {
  struct Few : Sequential<Counts, Linear<split::none, 6, 5>> {};
  constexpr std::array behind_count{CutPlace{1}};
  constexpr std::size_t batches = 9;
  Counts::begun = 0;
  on_mesh({.pipeline = 2}, [&](testing::on_meshes::Ranks& ranks) {
    using Counted = Context<double, Reference, testing::on_meshes::Ranks>;
    on_pipeline_stage<Counted, behind_count>(Few{}, ranks, Seed{5}, shape_of(1), [&](auto& stage) {
      const MicroBatches few(std::vector<std::size_t>(batches, 1), stage.place());
      auto& line = stage.of_rank().gradient_line();
      line.clear();
      std::size_t called = 0;
      for_each_output(stage, few.inputs, [&](std::size_t batch, const auto&) {
        if (batch == 0)
          while (Counts::begun < 4) std::this_thread::yield();
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();
        CHECK(Counts::begun <= std::min(batches, 2 * (batch / 2 + 2)));
        ++called;
      });
      CHECK(called == (stage.is_last ? batches : 0));
      const auto& log = line.log();
      const auto bytes = std::count_if(log.begin(), log.end(), [](const CountedCall& call) {
        return call.operation == Operation::send && call.dtype == Dtype::uint8;
      });
      CHECK(bytes == (stage.is_last ? 3 : 0));  // of 5 turns, but for the last two
    });
  });
}

TEST_CASE("stages that sum in their last backward train with the bits of others") {
  for (const PipelineSchedule& schedule : {one_f_one_b(4, 3), zero_bubble_h1(4, 3)})
    for (const Keep keep : {Keep::whole, Keep::state_over_data})
      on_late_mesh<LateRanks>({.pipeline = 4, .data = 2, .tensor = 2}, [&](auto& ranks) {
        const auto train_so = [&](bool in_backward) {
          return train_summing<in_tied, Tied>(ranks, schedule, {3, 1, 4}, keep, in_backward);
        };
        CHECK(train_so(true) == train_so(false));
      });
  for (const PipelineSchedule& schedule :
       {interleaved_one_f_one_b(2, 4, 2), chunk_after_chunk(2, 4, 2)})
    for (const Keep keep : {Keep::whole, Keep::state_over_data})
      on_late_mesh<LateRanks>({.pipeline = 2, .data = 2, .tensor = 2}, [&](auto& ranks) {
        const auto train_so = [&](bool in_backward) {
          return train_summing<in_tied, Tied, 2>(ranks, schedule, {3, 1, 4, 2}, keep, in_backward);
        };
        CHECK(train_so(true) == train_so(false));
      });
}

TEST_CASE("a pipeline has the bits of a Step with the same batches and segments, in bf16") {
  check_bits_of_steps<Text, in_text, bf16>(
      rule,
      [](std::size_t count, const MeshPlace& place) {
        return filled<std::int32_t, Whole>(
            {{Axis::batch, count}, {Axis::sequence, 3}}, place,
            [&](std::size_t i) { return static_cast<std::int32_t>((7 * i + count) % 11); });
      },
      segments_of_text);
}

TEST_CASE("stages with norms, pools and masks have the bits of a Step with the same batches") {
  check_bits_of_steps<Images, in_images, float>(
      AdamW{},
      [](std::size_t count, const MeshPlace& place) {
        return made<Whole, float>(
            static_cast<std::int64_t>(count),
            {{Axis::batch, count}, {Axis::channel, 2}, {Axis::height, 4}, {Axis::width, 4}}, place);
      },
      {});
}

TEST_CASE("backward in two parts leaves the gradients of linear layers to the second one") {
  run_mesh({}, [](ThreadMesh& ranks) {
    Model<Net, Ctx> model(ranks, Seed{5});
    const Tensor<double, Whole> x = rows_of(0, 3, ranks.place());
    const Tensor<double, Whole> dy = filled<double, Whole>(
        {{Axis::batch, 3}, {Axis::feature, 5}}, ranks.place(),
        [](std::size_t i) { return witness::made(3, static_cast<std::int64_t>(i)); });
    const auto gradients = [&] {
      const auto all = model.gradients();
      return std::vector<double>(all.begin(), all.end());
    };
    model.forward(x.view());
    model.backward(dy.view());
    const auto whole = gradients();
    model.discard_step();
    CHECK(contains(error_of([&] { model.backward_parameters(Flight{}); }),
                   "backward_parameters in flight 0 without a backward_input before it"));
    model.forward(x.view());
    model.backward_input(dy.view());
    const auto of_norms = gradients();
    CHECK(std::count_if(of_norms.begin(), of_norms.end(), [](double g) { return g != 0; }) ==
          4 * 2 * 8);
    CHECK(contains(error_of([&] { model.forward(x.view()); }),
                   "flight 0 awaits backward_parameters, and a forward would discard"));
    model.backward_parameters(Flight{});
    CHECK(gradients() == whole);
    model.discard_step();
    model.forward(x.view());
    model.backward_input(dy.view());
    model.settle_gradients();
    CHECK(contains(error_of([&] { model.backward_parameters(Flight{}); }),
                   "after settle_gradients: its summands would be added"));
  });
}

TEST_CASE("backward in two parts adds the gradients of two batches in bf16, and to shares") {
  using Mixed = Context<Precision<bf16, float>, Reference, ThreadMesh>;
  struct Linears : Sequential<ColumnParallelLinear<6, 7>, RowParallelLinear<7, 5>> {};
  const auto check = [](ThreadMesh& ranks, Keep keep) {
    Model<Linears, Mixed> model(ranks, Seed{5}, {.keep = keep});
    const auto x = filled<bf16, Whole>(shape_of(3), ranks.place(),
                                       [](std::size_t i) { return bf16(0.25F * float(i % 7)); });
    const auto dy = filled<bf16, Whole>({{Axis::batch, 3}, {Axis::feature, 5}}, ranks.place(),
                                        [](std::size_t i) { return bf16(0.5F - float(i % 3)); });
    const auto gradients = [&](bool in_parts) {
      for (int batch = 0; batch < 2; ++batch) {
        model.forward(x.view());
        if (in_parts) {
          model.backward_input(dy.view());
          model.backward_parameters(Flight{});
        } else {
          model.backward(dy.view());
        }
      }
      const auto all = model.gradients();
      std::vector<float> copy(all.begin(), all.end());
      model.discard_step();
      return copy;
    };
    const auto whole = gradients(false);
    CHECK(gradients(true) == whole);
  };
  for (const Keep keep : {Keep::whole, Keep::gradients_over_data, Keep::all_over_data})
    run_mesh({.data = 2}, [&](ThreadMesh& ranks) { check(ranks, keep); });
}

TEST_CASE("after the second step of a pipeline nothing is allocated") {
  const auto check = [](ThreadMesh& ranks, Keep keep) {
    const auto train_stage = [](auto& stage) {
      Optimizer optimizer(stage.model(), rule);
      const MicroBatches batches({2, 2, 2, 2}, stage.place());
      const std::array<double, 5> weights{1, 2, 1, 1, 1};
      const MaskedCrossEntropy weighted{
          .counted = 8, .class_weights{weights.data(), Shape{{Axis::feature, 5}}, Place{}}};
      for (const PipelineSchedule& schedule : {one_f_one_b(2, 4), zero_bubble_h1(2, 4)})
        CHECK(testing::allocated_after_second([&] {
                train_pipeline_step(stage, schedule, batches.inputs, batches.targets, weighted,
                                    optimizer);
              }) == 0);
    };
    on_pipeline_stage<Ctx, in_blocks>(Net{}, ranks, Seed{5}, shape_of(1), train_stage,
                                      {.keep = keep});
  };
  for (const Keep keep : {Keep::state_over_data, Keep::gradients_over_data})
    run_mesh({.pipeline = 2, .data = 2}, [&](ThreadMesh& ranks) { check(ranks, keep); });
}

TEST_CASE("steps that do not fit the pipeline are refused on all ranks") {
  const std::vector<std::size_t> three{2, 2, 2};
  const auto error_with = [&](const PipelineSchedule& schedule) {
    return error_of([&] { on_pipeline<in_blocks>({.pipeline = 2}, schedule, three); });
  };
  CHECK(contains(error_with(one_f_one_b(4, 3)),
                 "pipeline: the schedule is for 4 ranks with 1 stage each, but "
                 "there are 2 ranks with 1 stage each"));
  CHECK(contains(
      error_with(gpipe(2, 4)),
      "pipeline: the schedule is for 4 micro-batches, but 3 inputs and 3 targets were given"));
  using enum PipelineSchedule::Work;
  PipelineSchedule other_order(2);
  for (int rank = 0; rank < 2; ++rank)
    other_order.add_rank({{forward, 1}, {forward, 0}, {backward, 0}, {backward, 1}});
  CHECK(contains(error_of([&] {
                   on_pipeline<in_blocks>({.pipeline = 2}, other_order, {1, 1});
                 }),
                 "rank 0 goes forward with micro-batch 1 before 0; random numbers follow"));
  CHECK(contains(error_with(PipelineSchedule(0)), "pipeline schedule: there are 0 ranks"));
  CHECK(contains(error_of([&] { on_pipeline<four>({.pipeline = 2}, gpipe(2, 3), three); }),
                 "pipeline: the cut makes 4 stages, but the mesh pipeline=2 has 2 ranks along "
                 "pipeline; give it one for each stage"));
}

TEST_CASE("ranks of a pipeline that are given different steps are all told") {
  const auto told_alike = [](auto f) {
    return alike(on_each_rank({.pipeline = 2}, [&](ThreadMesh& ranks) {
      return error_of([&] { f(ranks, ranks.rank() == 1); });
    }));
  };
  const std::string of_sizes = told_alike([](ThreadMesh& ranks, bool is_1) {
    const int count = is_1 ? 2 : 1;
    train<in_blocks>(ranks, gpipe(2, count), std::vector<std::size_t>(is_1 ? 2 : 1, 2), {});
  });
  CHECK(
      contains(of_sizes,
               "collective_error: ranks disagree on the step of the pipeline: micro-batches is 1 x "
               "[batch 2, feature 6] on rank 0, and 2 x [batch 2, feature 6] on rank 1; schedule "
               "is F0 B0 | F0 B0 on rank 0, and F0 F1 B0 B1 | F0 F1 B0 B1 on rank 1; give all "
               "ranks the same"));
  const std::string of_norm = told_alike([](ThreadMesh& ranks, bool is_1) {
    train<in_blocks>(ranks, gpipe(2, 1), {2}, is_1 ? std::optional(0.5) : std::nullopt);
  });
  CHECK(contains(of_norm, "clip_norm is not given on rank 0, and 0.5 on rank 1"));
  const std::string of_rate = told_alike([](ThreadMesh& ranks, bool is_1) {
    with_stages<in_blocks>(Net{}, ranks, shape_of(1), rule, [&](auto& stage, auto& optimizer) {
      if (is_1) optimizer.set_learning_rate(0.25);
      step_of(stage, optimizer, gpipe(2, 1), MicroBatches({2}, stage.place()));
    });
  });
  CHECK(contains(of_rate, "learning_rate is 0.1 on rank 0, and 0.25 on rank 1; give all"));
  const auto message_with = [&](const ModelOptions& of_second) {
    return told_alike([&](ThreadMesh& ranks, bool is_1) {
      on_pipeline_stage<Ctx, in_blocks>(
          Net{}, ranks, Seed{5}, shape_of(1), [](auto&) {}, is_1 ? of_second : ModelOptions{});
    });
  };
  CHECK(contains(message_with({.keep = Keep::all_over_data}),
                 "ranks disagree on the pipeline: keep is Keep::whole on rank 0, and"));
  CHECK(
      contains(message_with({.bucket_bytes = 100}), "bucket_bytes is 33554432 on rank 0, and 100"));
  CHECK(contains(message_with({.sums_in_shares = true}), "sums_in_shares is false on rank 0, and"));
  CHECK(contains(message_with({.compare_given_every = 0}), "compare_given_every is 20 on rank 0"));
  run_mesh({.pipeline = 2}, [&](ThreadMesh& ranks) {
    on_pipeline_stage<Ctx, in_blocks>(Net{}, ranks, Seed{5}, shape_of(1),
                                      [](auto& stage) {
                                        CHECK(stage.model().sending().bucket_bytes == 100);
                                        CHECK(stage.model().sending().sums_in_shares);
                                      },
                                      {.bucket_bytes = 100, .sums_in_shares = true});
  });
  CHECK(contains(message_with({.sums_meanwhile = true}),
                 "ranks disagree on the pipeline: sums_meanwhile is false on rank 0, and true"));
  run_mesh({.pipeline = 2}, [&](ThreadMesh& ranks) {
    on_pipeline_stage<Ctx, in_blocks>(Net{}, ranks, Seed{5}, shape_of(1), [](auto& stage) {
      const Shape wide{{Axis::batch, 2}, {Axis::feature, 7}};
      if (stage.is_last)
        CHECK(contains(error_of([&] { stage.input_shape(wide); }),
                       "0: ColumnParallelLinear<6, 7>: "));
    });
  });
}

namespace {

/// Adds 1 to the loss of each batch. Gradients above the largest number of fp16 become infinite.
struct AddsOne : Passes {
  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, DY dy, DX dx) const {
    frame.add_loss(1);
    if constexpr (Frame::input_gradient)
      for (std::size_t i = 0; i < dy.size(); ++i)
        dx.data()[i] = std::abs(dy.data()[i]) > 65504 ? HUGE_VAL : dy.data()[i];
  }
};
using Square = Linear<split::none, 6, 6>;
struct Small
    : Sequential<Owns<Table, Square>, AddsOne, Borrows<Table, Square>, Borrows<Table, Square>> {};
constexpr std::array in_small{CutPlace{1}, CutPlace{2}};
/// Of three stages that share parameters, the first of two ranks has two.
constexpr std::array apart{CutPlace{1}, CutPlace{2}, CutPlace{3}};

/// What each of three stages says to f(stage, optimizer, micro-batches, whether it is the last).
/// The second has no parameters, and the others have the same.
template <class F>
std::vector<std::string> told(F f) {
  return on_each_rank({.pipeline = 3}, [&](ThreadMesh& ranks) {
    std::string error;
    with_stages<in_small>(Small{}, ranks, shape_of(1), rule, [&](auto& stage, auto& optimizer) {
      MicroBatches batches({3, 1, 4}, stage.place());
      error = error_of([&] { f(stage, optimizer, batches, stage.is_last); });
    });
    return error;
  });
}

}  // namespace

TEST_CASE("losses of layers count with the share of their micro-batch") {
  const auto errors = told([](auto& stage, auto& optimizer, auto& batches, bool is_last) {
    for (int i = 0; i < 2; ++i) {
      step_of(stage, optimizer, one_f_one_b(3, 3), batches);
      const double expected = stage.is_first || is_last ? 0 : 1;
      CHECK(stage.model().layer_losses() == doctest::Approx(expected).epsilon(1e-15));
    }
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("a step that one rank refuses is begun by none") {
  const auto errors = told([](auto& stage, auto& optimizer, auto& batches, bool is_last) {
    const auto step = [&] { return step_of(stage, optimizer, one_f_one_b(3, 3), batches); };
    auto whole = batches.targets;
    if (is_last) batches.targets.pop_back();
    const std::string error = error_of(step);
    CHECK(contains(error, "3 inputs and 2 targets were given"));
    if (!is_last) CHECK(contains(error, "collective_error: rank 2: pipeline: "));
    if (is_last) batches.targets.push_back(whole[0]);
    CHECK(contains(error_of(step), is_last ? "shape_error: " : "collective_error: rank 2: "));
    batches.targets = whole;
    Step other(optimizer, 8);
    CHECK(contains(error_of(step), "another step of this model is under way"));
    other.discard();
    step();
  });
  for (const std::string& error : errors) CHECK(error == "");
}

namespace {

constexpr DynamicLossScale scales{.initial = 0x1p30, .backoff = 0x1p-20};

/// What three steps with a loss scale come to, of which the first overflows.
template <class Models, class Optimizers, class TrainStep>
TrainingResult scaled_steps(Models& models, Optimizers& optimizer, TrainStep train) {
  LossScaler scaler(scales);
  const TrainingResult result = trained(
      models, steps, [&] { return train(StepOptions{.clip_norm = 0.25, .scaler = &scaler}); });
  CHECK(scaler.state() == LossScaler::State{.scale = 1024, .in_a_row = 2, .skipped = 1});
  CHECK(optimizer.steps() == 2);
  return result;
}

}  // namespace

TEST_CASE("gradients that overflow in some stages make all stages skip the step") {
  TrainingResult one;
  run_mesh({}, [&](ThreadMesh& ranks) {
    Model<Small, Ctx> model(ranks, Seed{5});
    const MicroBatches batch({7}, ranks.place());
    Optimizer optimizer(model, rule);
    one = scaled_steps(model, optimizer, [&](const StepOptions& options) {
      return train_step(model, batch.inputs[0], batch.targets[0], CrossEntropy{}, optimizer,
                        options);
    });
  });
  const auto check_with = [&](const PipelineSchedule& schedule) {
    return [&](auto& stages, auto& optimizer) {
      const MicroBatches batches({3, 4}, stages.place());
      const TrainingResult mine = scaled_steps(stages, optimizer, [&](const StepOptions& options) {
        return step_of(stages, optimizer, schedule, batches, options);
      });
      CHECK(testing::largest_difference(mine.losses, one.losses) < 1e-13);
      if (!mine.parameters.empty()) check_near(mine.parameters, one.parameters, 1e-13);
    };
  };
  run_mesh({.pipeline = 3, .data = 2}, [&](ThreadMesh& ranks) {
    with_stages<in_small>(Small{}, ranks, shape_of(1), rule, check_with(gpipe(3, 2)));
  });
  run_mesh({.pipeline = 2, .data = 2}, [&](ThreadMesh& ranks) {
    with_stages<apart, 2>(Small{}, ranks, shape_of(1), rule,
                          check_with(interleaved_one_f_one_b(2, 2, 2)), Keep::state_over_data);
  });
}

TEST_CASE("a rank whose stages have different learning rates is refused on all ranks") {
  const auto errors = on_each_rank({.pipeline = 2}, [](ThreadMesh& ranks) {
    std::string error;
    with_stages<apart, 2>(Small{}, ranks, shape_of(1), rule, [&](auto& chunks, auto& optimizer) {
      const MicroBatches batches({3, 4}, chunks.place());
      const auto step = [&] {
        step_of(chunks, optimizer, interleaved_one_f_one_b(2, 2, 2), batches);
      };
      optimizer.set_learning_rate(0.5);
      std::size_t count = 0;
      chunks.for_each([&]<class Stage>(Stage&) {
        if (ranks.rank() == 1 && count++ == 1)
          optimizer.template stage<Stage>().set_learning_rate(0.25);
      });
      error = error_of(step);
      CHECK(chunks.step() == 1);
      optimizer.set_learning_rate(0.25);
      CHECK(error_of(step) == "");
    });
    return error;
  });
  for (const std::string& error : errors)
    CHECK(contains(error,
                   "stages of this rank have the learning rates 0.5 and 0.25: all stages of "
                   "a pipeline have one"));
  CHECK(contains(errors[0], "collective_error: rank 1"));
}

TEST_CASE("the norm of the gradients of several stages counts once what they share") {
  std::array<Parameters, 4> gradients;
  std::array<double, 4> norms{};
  run_mesh({.pipeline = 2, .data = 2}, [&](ThreadMesh& ranks) {
    with_stages<apart, 2>(Small{}, ranks, shape_of(1), rule, [&](auto& chunks, auto&) {
      const auto rank = static_cast<std::size_t>(ranks.rank());
      const auto x = rows_of(0, 3, chunks.place());
      chunks.for_each([&](auto& stage) {
        stage.model().forward(x.view());
        stage.model().backward(x.view());
        CHECK(contains(error_of([&] { gradient_norm(stage.model()); }),
                       "each rank has 2 stages, but gradient_norm was given 1 of them"));
      });
      norms[rank] = gradient_norm(chunks);
      chunks.for_each([&](auto& stage) {
        if (stage.model().values().empty()) return;
        merge(gradients[rank], gradients_of(stage.model()));
      });
    });
  });
  Parameters all;
  for (const Parameters& one : gradients) merge(all, one);
  double squares = 0;
  for (const auto& entry : all)
    for (const double g : entry.second) squares += g * g;
  for (const double norm : norms) CHECK(norm == doctest::Approx(std::sqrt(squares)).epsilon(1e-14));
}

namespace {

struct Unlike : Sequential<Owns<Table, Square>, Owns<Scale, Square>, Borrows<Table, Square>,
                           Borrows<Scale, Square>> {};
constexpr std::array in_unlike{CutPlace{2}, CutPlace{3}};

}  // namespace

TEST_CASE("unlike sets of stages that share parameters are refused") {
  CHECK(contains(error_of([] {
                   detail::stage_ties<Ends<Invariant, Invariant>>(Unlike{}, shape_of(1), in_unlike,
                                                                  0, {});
                 }),
                 "pipeline: the parameters of layer 1. are shared by other stages than those of "
                 "an owner before it; cut the model so that the same stages share all of them"));
}

namespace {

using File = std::filesystem::path;

const TensorNames names{{"0.weight", "first"}, {"7.weight", "row"}};

/// Loads a checkpoint, and saves it to `to`. `models` is a model or the stages of a rank.
template <class M, class Optimizers>
void load_and_save(M& models, Optimizers& optimizer, const File& from, const File& to) {
  const RunPosition position = load_checkpoint(from, models, optimizer, {.names = names}).position;
  detail::for_each_model(models, [](auto& model) { CHECK(model.step() == 2); });
  CHECK(optimizer.steps() == 1);
  save_checkpoint(to, models, optimizer, position, {.names = names});
}

/// Saves to `to` after a step of two stages on each rank.
void train_and_save(const File& to) {
  run_mesh({.pipeline = 2, .data = 2, .tensor = 2}, [&](ThreadMesh& ranks) {
    const auto use = [&](auto& chunks, auto& optimizer) {
      step_of(chunks, optimizer, interleaved_one_f_one_b(2, 2, 2),
              MicroBatches({3, 4}, chunks.place()));
      chunks.for_each([](auto& stage) {
        stage.model().visit_buffers(
            [](auto& one) { one.value.data()[0] = one.name == "4.number" ? 3 : 4; });
        CHECK(contains(error_of([&] { save_weights("unused", stage.model()); }),
                       "each rank has 2 stages, but a checkpoint was given 1 of them"));
      });
      CHECK(CheckpointFolder("unused", {.every = 1}).is_due(chunks));
      save_checkpoint(to, chunks, optimizer, {.sampler = {3, 4, 5}}, {.names = names});
    };
    with_stages<in_tied, 2>(Tied{}, ranks, shape_of(1), rule, use, Keep::state_over_data);
  });
}

/// On the mesh, as one or two stages on each rank if it has them.
void load_and_save_on(const mesh& sizes, const File& from, const File& to) {
  run_mesh(sizes, [&](ThreadMesh& ranks) {
    constexpr Keep keep = Keep::state_over_data;
    const Shape in = shape_of(1);
    if (sizes.pipeline == 1) {
      Model<Tied, Ctx> model(ranks, Seed{6});
      Optimizer optimizer(model, rule, keep);
      load_and_save(model, optimizer, from, to);
    } else if (sizes.pipeline == 4) {
      const auto use = [&](auto& stage, auto& optimizer) {
        load_and_save(stage.model(), optimizer, from, to);
      };
      with_stages<in_tied>(Tied{}, ranks, in, rule, use, keep, Seed{6});
    } else {
      const auto use = [&](auto& chunks, auto& optimizer) {
        load_and_save(chunks, optimizer, from, to);
      };
      with_stages<in_tied, 2>(Tied{}, ranks, in, rule, use, keep, Seed{6});
    }
  });
}

}  // namespace

TEST_CASE("stages save and load one checkpoint, with the bytes of any other mesh") {
  const testing::TemporaryFolder folder("shardwise_pipeline");
  const auto path = [&](const char* name) { return folder.path() / name; };
  train_and_save(path("stages.safetensors"));
  const auto saved = testing::bytes_of(path("stages.safetensors"));
  const std::vector<mesh> all{{},
                              {.data = 8},
                              {.pipeline = 4, .tensor = 2},
                              {.data = 3, .tensor = 2},
                              {.pipeline = 2, .data = 3}};
  for (const mesh& sizes : all) {
    CAPTURE(to_string(sizes));
    load_and_save_on(sizes, path("stages.safetensors"), path("other.safetensors"));
    CHECK((saved == testing::bytes_of(path("other.safetensors"))));
    load_and_save_on(all[2], path("other.safetensors"), path("again.safetensors"));
    CHECK((saved == testing::bytes_of(path("again.safetensors"))));
  }
  run_mesh(all[2], [&](ThreadMesh& ranks) {
    on_pipeline_stage<Ctx, in_tied>(Tied{}, ranks, Seed{7}, shape_of(1), [&](auto& stage) {
      const auto file = path("weights.safetensors");
      save_weights(file, stage.model());
      const Parameters before = parameters_of(stage);
      detail::fill(stage.model().backend(), stage.model().values().data(),
                   stage.model().values().size(), 0.0);
      load_weights(file, stage.model());
      CHECK(parameters_of(stage) == before);
      CHECK(contains(
          error_of([&] {
            save_weights(file, stage.model(), {.names = {{"7.weight", "a"}, {"5.x", "b"}}});
          }),
          "the options give a name for '5.x', which the model does not have"));
      CHECK(contains(error_of([&] {
                       load_weights(file, stage.model(), {.names = {{"7.weight", "a"}}});
                     }),
                     "missing: 'a'; unexpected: '7.weight'"));
    });
  });
}

namespace {

/// Cut where features, rows or nothing is split over `tensor`.
struct Uneven : Sequential<ColumnParallelLinear<6, 7>, RowParallelLinear<7, 6>,
                           To<Sharded<Axis::batch>>, To<Invariant>, Linear<split::none, 6, 5>> {};
constexpr std::array in_uneven{CutPlace{1}, CutPlace{3}, CutPlace{4}};
constexpr std::array shapes{shape_of(3), shape_of(1)};

/// What rank `rank` of four with one stage each sends.
constexpr MessagePlan messages_of(int rank) {
  return plan_messages<in_uneven>(Uneven{}, {.pipeline = 4, .data = 2, .tensor = 2}, gpipe(4, 2),
                                  shapes, rank, Dtype::float64);
}
constexpr Collective sent(std::size_t elements) {
  return Collective{Operation::send, elements, Dtype::float64}
      .over(MeshAxis::pipeline)
      .split_over(MeshAxis::data);
}
static_assert(messages_of(0).outputs == CollectiveList{sent(3 * 7).split_over(MeshAxis::tensor),
                                                       sent(1 * 7).split_over(MeshAxis::tensor)});
static_assert(messages_of(0).gradients.empty());
static_assert(messages_of(2).outputs == CollectiveList{sent(3 * 6), sent(1 * 6)});
static_assert(messages_of(2).bytes_sent({.pipeline = 4, .data = 2, .tensor = 2}) ==
              8 * (4 * 6 * 2 + 4 * 6));

/// Whether the calls of this operation in the log of each rank are planned. `group` are ranks that
/// make such calls.
template <class Group>
std::string difference(const CollectiveList& planned, const mesh& sizes, Group& group,
                       std::span<const CountedCall> log, Operation operation = Operation::send) {
  std::vector<CountedCall> calls;
  std::copy_if(log.begin(), log.end(), std::back_inserter(calls),
               [=](const CountedCall& call) { return call.operation == operation; });
  return difference_from_plan("", planned_calls<Counting>(planned, sizes, MeshAxis::pipeline),
                              counted_calls(group, calls));
}

}  // namespace

TEST_CASE("stages send each other the messages of the plan") {
  const mesh sizes{.pipeline = 2, .data = 2, .tensor = 2};
  on_mesh(sizes, [&](testing::on_meshes::Ranks& ranks) {
    using Counted = Context<double, Reference, testing::on_meshes::Ranks>;
    const auto use = [&](auto& chunks, auto& optimizer) {
      const MicroBatches batches({3, 1}, chunks.place());
      const PipelineSchedule schedule = interleaved_one_f_one_b(2, 2, 2);
      auto& rank = chunks.of_rank();
      rank.line().clear();
      rank.gradient_line().clear();
      step_of(chunks, optimizer, schedule, batches);
      const MessagePlan plan =
          plan_messages<in_uneven>(Uneven{}, sizes, schedule, shapes,
                                   ranks.place()[MeshAxis::pipeline].rank, Dtype::float64);
      auto& stage = static_cast<Counting&>(rank.ranks());
      CHECK(difference(plan.outputs, sizes, stage, rank.line().log()) == "");
      CHECK(difference(plan.gradients, sizes, stage, rank.gradient_line().log()) == "");
    };
    with_stages<in_uneven, 2, Ends<Invariant, Invariant>, Counted>(Uneven{}, ranks, shape_of(1),
                                                                   rule, use);
  });
}

TEST_CASE("stages sum by themselves and together what their plans say") {
  const mesh sizes{.pipeline = 4, .data = 2, .tensor = 2};
  for (const Keep keep : {Keep::whole, Keep::state_over_data, Keep::gradients_over_data})
    on_mesh(sizes, [&](testing::on_meshes::Ranks& ranks) {
      using Counted = Context<double, Reference, testing::on_meshes::Ranks>;
      const auto check = [&](auto& stage, auto& optimizer) {
        auto& model = stage.model();
        model.run().sending.bucket_bytes = 112;  // as many buckets at both places along tensor
        const MicroBatches batches({3}, stage.place());
        LossScaler scaler(DynamicLossScale{.initial = 2});
        const StepOptions options{.clip_norm = 1e6, .scaler = &scaler};
        auto& rank = stage.of_rank();
        auto& tied = rank.tied_line({});
        rank.line().clear();
        tied.clear();
        for (const MeshAxis axis : mesh_axes) rank.ranks().along(axis).clear();
        step_of(stage, optimizer, gpipe(4, 1), batches, options);
        Plan plan = plan_step(model, stage.input_shape(shape_of(3)), CrossEntropy{}, options, keep);
        if (!stage.is_last) plan.loss = {};
        check_counts(rank.ranks(), plan);
        const StageSums sums =
            plan_stage_sums<in_tied>(Tied{}, shape_of(3), sizes, options, keep, model.sending());
        CollectiveList of_all = sums.loss;
        for (const Collective& one : sums.finish) of_all.add(one);
        auto& all = static_cast<Counting&>(rank.all_ranks());
        CHECK(difference(of_all, sizes, all, rank.line().log(), Operation::all_reduce) == "");
        CHECK(sums.tied_stages == 2);
        CHECK(!sums.tied.empty());
        if (model.run().stage.tied_ranks == nullptr) return;
        mesh of_stage = sizes;
        of_stage.pipeline = 1;
        auto& here = static_cast<Counting&>(rank.ranks());
        CHECK(difference(sums.tied, of_stage, here, tied.log(), Operation::all_reduce) == "");
      };
      with_stages<in_tied, 1, Ends<Invariant, Invariant>, Counted>(Tied{}, ranks, shape_of(1), rule,
                                                                   check, keep);
    });
}

TEST_CASE("a wrong label is told on the last stage, and ends the step on all stages") {
  std::vector<std::string> errors(2);
  const std::string error = error_of([&] {
    run_mesh({.pipeline = 2}, [&](ThreadMesh& ranks) {
      with_stages<in_blocks>(Net{}, ranks, shape_of(1), rule, [&](auto& stage, auto& optimizer) {
        MicroBatches batches({2, 2, 2}, stage.place());
        batches.y[1][1] = 5;
        const Parameters before = parameters_of(stage);
        std::string& mine = errors[static_cast<std::size_t>(ranks.rank())];
        try {
          step_of(stage, optimizer, one_f_one_b(2, 3), batches);
        } catch (const shardwise::error& e) {
          mine = e.what();
          CHECK(parameters_of(stage) == before);
          throw;
        }
      });
    });
  });
  CHECK(contains(error, "argument_error: rank 1: "));
  CHECK(contains(errors[1], "label 5"));
  CHECK(errors[0] != "");
}
