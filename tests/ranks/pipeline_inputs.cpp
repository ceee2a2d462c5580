// A model of several inputs in stages trains, evaluates and is saved as on one rank: later stages
// read inputs, too, such as token ids and records.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ranks/pipeline_batches.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/pipeline/cut_by_cost.hpp"
#include "shardwise/pipeline/message_plan.hpp"
#include "support/error_of.hpp"
#include "support/file_tensors.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;
using testing::contains;
using testing::error_of;
using testing::ThreadMesh;
using testing::trained;
using testing::TrainingResult;
using namespace testing::on_meshes;

namespace {

using Ctx = OnThreadMesh<double>;
using E = Ends<Layouts<Invariant, Invariant, Invariant>, Invariant>;

struct Block : Residual<Sequential<LayerNorm<6>, ColumnParallelLinear<6, 7>, Gelu, Dropout<1, 4>,
                                   RowParallelLinear<7, 6>>> {};
// begin: graph
struct Facts : Graph<2, At<Embedding<5, 2>, 0>, At<Linear<split::none, 3, 4>, 1>,
                     At<Concat<Axis::feature>, 3, 2>> {};
struct Seer : Graph<3,                       // ids, image, record
                    At<Embedding<5, 6>, 0>,  // gives slot 3
                    At<Sequential<Conv2d<split::output, 1, 2, kernel(2)>, Relu,  //
                                  Flatten, RowParallelLinear<18, 6>>,
                       1>,
                    At<Sum, 3, 4>, At<Repeat<2, Block>, 5>,  // gives slot 6
                    At<Facts, 0, 2>,                         // reads the ids again, and the record
                    At<Concat<Axis::feature>, 6, 7>, At<Linear<split::output, 12, 5>, 8>> {};
constexpr std::array cut{CutPlace{3, 1}};  // behind the first block; the last stage reads records
// end: graph
constexpr std::array in_four{CutPlace{3}, CutPlace{3, 1}, CutPlace{4}};

constexpr std::array<Shape, 3> shapes_of(std::size_t samples) {
  return {Shape{{Axis::batch, samples}},
          Shape{{Axis::batch, samples}, {Axis::channel, 1}, {Axis::height, 4}, {Axis::width, 4}},
          Shape{{Axis::batch, samples}, {Axis::feature, 3}}};
}

// All places that one value crosses.
static_assert(cut_by_cost<6, Seer, E>(shapes_of(1)) ==
              std::array{CutPlace{1}, CutPlace{3}, CutPlace{3, 1}, CutPlace{4}, CutPlace{6}});
constexpr std::array two{shapes_of(2), shapes_of(1)};
static_assert(plan_messages<in_four, E>(Seer{}, {.pipeline = 4}, gpipe(4, 2), two, 1)
                  .bytes_sent({.pipeline = 4}) == 2 * 4 * 3 * 6);

/// Batches of ids, images and records. On ranks without the first stage images are NaN.
auto batches_of(const std::vector<std::size_t>& sizes, const MeshPlace& place, bool has_images) {
  const auto input = [=](std::size_t first, std::size_t count) {
    const auto shapes = shapes_of(count);
    const auto number = [=](std::int64_t of, std::size_t each) {
      return [=](std::size_t i) {
        return of == 3 && !has_images
                   ? std::numeric_limits<double>::quiet_NaN()
                   : witness::made(of, static_cast<std::int64_t>(first * each + i));
      };
    };
    const auto id = [=](std::size_t i) {
      return static_cast<std::int32_t>((first + i) * (first + i) % 5);
    };
    return std::tuple{filled<std::int32_t, Whole>(shapes[0], place, id),
                      filled<double, Whole>(shapes[1], place, number(3, 16)),
                      filled<double, Whole>(shapes[2], place, number(4, 3))};
  };
  return Batches(sizes, input, [=](std::size_t first, std::size_t count) {
    return labels(count, static_cast<std::int64_t>(first), place);
  });
}

constexpr Sgd rule{.learning_rate = 0.1, .momentum = 0.9};
constexpr StepOptions clipped{.clip_norm = 0.3};

/// Two steps, with the loss of an evaluation behind those of the steps.
template <class Models, class Step, class Evaluate>
TrainingResult learned(Models& models, Step step, Evaluate evaluate) {
  TrainingResult result = trained(models, 2, step);
  result.losses.push_back(evaluate());
  return result;
}

/// Saves its weights at first.
TrainingResult on_one_rank(const std::filesystem::path& file) {
  return testing::on_each_rank(mesh{}, [&](ThreadMesh& ranks) {
    Model<Seer, Ctx, E> model(Seer{}, ranks, Seed{5}, shapes_of(7));
    save_weights(file, model);
    Optimizer optimizer(model, rule);
    const auto all = batches_of({7}, ranks.place(), true);
    const auto& x = all.inputs[0];
    const auto& y = all.targets[0];
    return learned(
        model, [&] { return train_step(model, x, y, CrossEntropy{}, optimizer, clipped); },
        [&] { return evaluate_loss(model, x, y, CrossEntropy{}); });
  })[0];
}

/// Does the same with a stage, or with the stages of a rank.
template <class Stages, class Optimizers>
void check(Stages& stages, Optimizers& optimizer, const PipelineSchedule& schedule,
           const TrainingResult& one) {
  const Place here = stages.all_ranks().place()[MeshAxis::pipeline];
  auto batches = batches_of({2, 1, 3, 1}, stages.place(), here.rank == 0);
  const TrainingResult many = learned(
      stages, [&] { return step_of(stages, optimizer, schedule, batches, clipped); },
      [&] { return evaluate_loss(stages, batches.inputs, batches.targets, CrossEntropy{}); });
  check_near(many, one, 1e-13);
  if (here.rank == 1) std::get<2>(batches.inputs[1]) = std::get<2>(batches.inputs[0]);
  CHECK(contains(error_of([&] { for_each_output(stages, batches.inputs, [](auto...) {}); }),
                 "ranks disagree on what they evaluate"));
}

}  // namespace

TEST_CASE("stages that read inputs train, evaluate and are saved as one rank") {
  const testing::TemporaryFolder folder("shardwise_pipeline_inputs");
  const auto file = folder.path() / "one.safetensors";
  const auto of_stages = folder.path() / "stages.safetensors";
  const TrainingResult one = on_one_rank(file);
  const auto saved = testing::bytes_of(file);
  for (const mesh& sizes : {mesh{.pipeline = 2}, mesh{.pipeline = 2, .data = 2, .tensor = 2}}) {
    CAPTURE(to_string(sizes));
    for (const PipelineSchedule& schedule : {one_f_one_b(2, 4), zero_bubble_h1(2, 4)})
      run_mesh(sizes, [&](ThreadMesh& ranks) {
        const auto use = [&](auto& stage, auto& optimizer) {
          save_weights(of_stages, stage.model());
          check(stage, optimizer, schedule, one);
        };
        with_stages<cut, 1, E>(Seer{}, ranks, shapes_of(1), rule, use, Keep::state_over_data);
      });
    CHECK((saved == testing::bytes_of(of_stages)));
    run_mesh(sizes, [&](ThreadMesh& ranks) {
      const auto use = [&](auto& chunks, auto& optimizer) {
        save_weights(of_stages, chunks);
        check(chunks, optimizer, interleaved_one_f_one_b(2, 4, 2), one);
      };
      with_stages<in_four, 2, E>(Seer{}, ranks, shapes_of(1), rule, use);
    });
    CHECK((saved == testing::bytes_of(of_stages)));
  }
}

namespace {

/// The sum of what has as many tokens, which is not looked at.
struct SumOfTokens : Sum {
  template <std::size_t N>
  constexpr Shape output_shape(const std::array<Shape, N>& terms) const {
    return terms[0];
  }
};
struct TwoTexts : Graph<2, At<Linear<split::none, 6, 6>, 0>, At<SumOfTokens, 2, 1>,
                        At<Linear<split::output, 6, 5>, 3>> {};
constexpr std::array behind_first{CutPlace{1}};

constexpr std::array<Shape, 2> two_texts(std::size_t tokens, std::size_t of_second) {
  const auto text = [](std::size_t count) {
    return Shape{{Axis::batch, 2}, {Axis::sequence, count}, {Axis::feature, 6}};
  };
  return {text(tokens), text(of_second)};
}

}  // namespace

TEST_CASE(
    "ranks with different tokens are told at once that an input of a later stage has others") {
  using Both = Ends<Layouts<Invariant, Invariant>, Invariant>;
  const std::string expected =
      "shape_error: pipeline: stage 1 reads an input [batch 2, sequence 4, feature 6], but the "
      "value from the stage before is [batch 2, sequence 5, feature 6]: where ranks along context "
      "have different tokens, all that a stage is given must have as many. Cut the model where "
      "that value has the tokens of the input, or give the ranks along context to another axis";
  run_mesh({.pipeline = 2, .context = 2}, [&](ThreadMesh& ranks) {
    const auto make = [&](const std::array<Shape, 2>& shapes, auto f) {
      on_pipeline_stage<Ctx, behind_first, Both>(TwoTexts{}, ranks, Seed{5}, shapes, f);
    };
    CHECK(error_of([&] { make(two_texts(5, 4), [](auto&) { CHECK(false); }); }) == expected);
    make(two_texts(dynamic, dynamic), [&](auto& stage) {
      Optimizer optimizer(stage.model(), rule);
      const auto texts = [&](std::size_t of_second) {
        const auto shapes = two_texts(5, of_second);
        return std::pair{made<Whole>(3, shapes[0], stage.place()),
                         made<Whole>(4, shapes[1], stage.place())};
      };
      const auto alike = texts(5), other = texts(4);
      const auto classes = filled<std::int32_t, Invariant>(
          {{Axis::batch, 2}, {Axis::sequence, 5}}, stage.place(),
          [](std::size_t i) { return static_cast<std::int32_t>(i % 5); });
      using Inputs = std::vector<typename std::remove_cvref_t<decltype(stage)>::input_view>;
      const Inputs good{{alike.first.view(), alike.second.view()}};
      const Inputs bad{{other.first.view(), other.second.view()}};
      const auto step = [&](const Inputs& x) {
        return train_pipeline_step(stage, gpipe(2, 1), x, std::vector{classes.view()},
                                   CrossEntropy{}, optimizer);
      };
      CHECK(error_of([&] { step(bad); }) == expected);
      CHECK(error_of([&] { for_each_output(stage, bad, [](auto...) {}); }) == expected);
      CHECK(std::isfinite(step(good)));
    });
  });
}
