// What goes wrong in a step of a pipeline is told on every rank of every stage, with its cause, and
// the training goes on as if there had been no such step.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ranks/pipeline_batches.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using namespace testing::on_meshes;
using testing::alike;
using testing::check_mentions;
using testing::message_of;
using testing::on_each_rank;
using testing::parameters_of;
using testing::ThreadMesh;

namespace {

struct Net : Sequential<ColumnParallelLinear<6, 7>, Gelu, Dropout<1, 4>, RowParallelLinear<7, 8>,
                        LayerNorm<8>, ColumnParallelLinear<8, 7>, Gelu, RowParallelLinear<7, 5>> {};

using Ctx = OnThreadMesh<double>;
constexpr std::array in_two{CutPlace{4}};
constexpr std::array in_four{CutPlace{2}, CutPlace{4}, CutPlace{6}};
constexpr mesh sizes{.pipeline = 2, .data = 2, .tensor = 2};
constexpr std::size_t rows_of_batch = 5;
constexpr int micro_batches = 4;
const std::vector<std::size_t> of_five(micro_batches, rows_of_batch);
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// What a rank is told, and its parameters in the end.
using Told = std::pair<std::string, testing::NamedNumbers>;

/// Trains a step, one that `spoil(stages, batches, true)` makes wrong, and one after
/// `spoil(stages, batches, false)`; or the first and the last alone.
template <auto Cut, std::size_t Chunks, class Spoil>
std::vector<Told> train(const PipelineSchedule& schedule, bool has_wrong_step, Spoil spoil) {
  return on_each_rank(sizes, [&](ThreadMesh& ranks) {
    Told told;
    const auto run = [&](auto& stages, auto& optimizer) {
      MicroBatches batches(of_five, stages.place());
      stages.for_each([](auto& stage) { stage.model().run().compared_steps.set_every(1); });
      const auto step = [&] { step_of(stages, optimizer, schedule, batches); };
      step();
      if (has_wrong_step) {
        spoil(stages, batches, true);
        told.first = message_of<numeric_error>(step);
        spoil(stages, batches, false);
      }
      step();
      told.second = parameters_of(stages);
    };
    with_stages<Cut, Chunks>(Net{}, ranks, shape_of(rows_of_batch), Adam{}, run);
    return told;
  });
}

/// Every rank is told all of `parts`, and learns on as without the wrong step.
template <auto Cut, std::size_t Chunks, class Spoil>
void check_told(const PipelineSchedule& schedule, const std::vector<std::string>& parts,
                Spoil spoil) {
  const auto with = train<Cut, Chunks>(schedule, true, spoil);
  const auto without = train<Cut, Chunks>(schedule, false, spoil);
  for (std::size_t rank = 0; rank < with.size(); ++rank) {
    check_mentions(with[rank].first, parts);
    CHECK(with[rank].second == without[rank].second);
  }
}

/// Micro-batch 1 has a NaN in feature 4 of row 3, the first row of the second rank along `data`.
const auto input_is_nan = [](auto& stages, MicroBatches& batches, bool is_wrong) {
  if (stages.place()[MeshAxis::data].rank == 1)
    batches.x[1].span()[4] = is_wrong ? nan : element_of_rows(rows_of_batch + 3, 4);
};

}  // namespace

TEST_CASE("a NaN in an input is told with micro-batch, row and feature, on every rank") {
  const std::vector<std::string> parts{"pipeline: in micro-batch 1 on stage 0",
                                       "the input holds a NaN in row 3, feature 4"};
  check_told<in_two, 1>(one_f_one_b(2, micro_batches), parts, input_is_nan);
  check_told<in_two, 1>(zero_bubble_h1(2, micro_batches), parts, input_is_nan);
  check_told<in_four, 2>(interleaved_one_f_one_b(2, micro_batches, 2), parts, input_is_nan);
}

TEST_CASE("a layer that gives an infinity is named with its stage, on every rank") {
  const auto spoil = [](auto& stages, MicroBatches&, bool is_wrong) {
    stages.for_each([&]<class Stage>(Stage& stage) {
      if constexpr (Stage::is_last) {  // by a power of two, which can be taken back
        for (double& value : stage.model().values()) value *= is_wrong ? 0x1p1000 : 0x1p-1000;
        stage.model().values_changed();
      }
    });
  };
  check_told<in_two, 1>(one_f_one_b(2, micro_batches),
                        {"pipeline: in micro-batch 0 on stage 1", "Linear"}, spoil);
}

/// Ranks 6 and 7 are those of the last stage with other samples than ranks 4 and 5. Ranks that wait
/// for one which has been told are told that it has left.
void check_targets(const std::vector<int>& differing, const std::vector<std::string>& told) {
  const auto errors = on_each_rank(sizes, [&](ThreadMesh& ranks) {
    std::string error;
    const auto train = [&](auto& stage, auto& optimizer) {
      MicroBatches batches(of_five, stage.place());
      if (std::ranges::count(differing, ranks.rank()) > 0) batches.y[2].span()[0] ^= 1;
      error = message_of<shardwise::error>(
          [&] { step_of(stage, optimizer, one_f_one_b(2, micro_batches), batches); });
    };
    with_stages<in_two>(Net{}, ranks, shape_of(rows_of_batch), Adam{}, train);
    return error;
  });
  for (const std::size_t rank : {6U, 7U}) check_mentions(errors[rank], told);
}

TEST_CASE("targets that differ on ranks of the last stage are told") {
  check_targets({7}, {"rank 7 was given other targets than rank 6"});
  check_targets({6, 7}, {" was given other targets than rank "});
}

namespace {

/// The error of call(stage, batches, whether the rank is rank 5) on the ranks of a pipeline, which
/// is the same on all of them.
template <class Call>
std::string told_with_rank_5(Call call) {
  return alike(on_each_rank(sizes, [&](ThreadMesh& ranks) {
    std::string error;
    on_pipeline_stage<Ctx, in_two>(
        Net{}, ranks, Seed{5}, shape_of(rows_of_batch), [&](auto& stage) {
          MicroBatches batches(of_five, stage.place());
          error = message_of<collective_error>([&] { call(stage, batches, ranks.rank() == 5); });
        });
    return error;
  }));
}

/// The same of a step, and of an evaluation, with `usual`, and on rank 5 with `other`.
template <class Loss>
void check_losses_told(const Loss& usual, const Loss& other, const std::string& what) {
  const std::string of_step = told_with_rank_5([&](auto& stage, MicroBatches& batches, bool is_5) {
    Optimizer optimizer(stage.model(), Adam{});
    train_pipeline_step(stage, one_f_one_b(2, micro_batches), batches.inputs, batches.targets,
                        is_5 ? other : usual, optimizer);
  });
  CHECK(of_step == "ranks disagree on the step of the pipeline: " + what);
  const std::string evaluated =
      told_with_rank_5([&](auto& stage, MicroBatches& batches, bool is_5) {
        evaluate_loss(stage, batches.inputs, batches.targets, is_5 ? other : usual);
      });
  CHECK(evaluated == "ranks disagree on what they evaluate: " + what);
}

/// Weights of five classes.
ClassWeights weights_in(const std::array<double, 5>& numbers) {
  return {numbers.data(), Shape{{Axis::feature, 5}}, Place{}};
}

}  // namespace

TEST_CASE("ranks that evaluate other batches, or count otherwise, are told what differs alone") {
  CHECK(told_with_rank_5([&](auto& stage, MicroBatches& batches, bool is_5) {
          if (is_5) batches.inputs.pop_back();
          for_each_output(stage, batches.inputs, [](auto...) {});
        }) ==
        "ranks disagree on what they evaluate: batches is 4 x [batch 5, feature 6] on ranks "
        "0 to 4, 6, 7, and 3 x [batch 5, feature 6] on rank 5; give all ranks the same");
  CHECK(told_with_rank_5([&](auto& stage, MicroBatches&, bool is_5) {
          std::vector<std::size_t> many;
          for (std::size_t k = 0; k < 40; ++k) many.push_back(1 + k % 2);
          if (is_5) many.back() = 3;
          for_each_output(stage, MicroBatches(many, stage.place()).inputs, [](auto...) {});
        }) ==
        "ranks disagree on what they evaluate: what differs is too long for this message; "
        "give all ranks the same");
  CHECK(told_with_rank_5([&](auto& stage, MicroBatches& batches, bool is_5) {
          count_top_k(stage, batches.inputs, batches.targets, is_5 ? 1 : 2);
        }) ==
        "ranks disagree on what they evaluate: k is 2 on ranks 0 to 4, 6, 7, and 1 on rank "
        "5; give all ranks the same");
}

TEST_CASE("ranks of a pipeline with other weights of classes are told them") {
  check_losses_told(CrossEntropy{}, CrossEntropy{.label_smoothing = 0.5},
                    "label_smoothing is 0 on ranks 0 to 4, 6, 7, and 0.5 on rank 5; give all "
                    "ranks the same");
  const std::array<double, 5> usual{1, 2, 3, 4, 5}, other{1, 2, 3, 4, 0.5};
  const std::string what =
      "class_weights is {1, 2, 3, 4, 5} on ranks 0 to 4, 6, 7, and {1, 2, 3, 4, 0.5} on rank 5; "
      "give all ranks the same";
  check_losses_told(MaskedCrossEntropy{.counted = 60, .class_weights = weights_in(usual)},
                    MaskedCrossEntropy{.counted = 60, .class_weights = weights_in(other)}, what);
  check_losses_told(NegativeLogLikelihood{.counted = 60, .class_weights = weights_in(usual)},
                    NegativeLogLikelihood{.counted = 60, .class_weights = weights_in(other)}, what);
}

TEST_CASE("ranks that make other pipelines are told what differs alone") {
  const auto told = [](Seed seed, const Shape& shape, Keep keep) {
    return alike(on_each_rank(sizes, [&](ThreadMesh& ranks) {
      const bool is_5 = ranks.rank() == 5;
      return message_of<collective_error>([&] {
        on_pipeline_stage<Ctx, in_two>(Net{}, ranks, is_5 ? seed : Seed{5},
                                       is_5 ? shape : shape_of(5), [](auto&) {},
                                       {.keep = is_5 ? keep : Keep::whole});
      });
    }));
  };
  const std::string begin = "ranks disagree on the pipeline: ", same = "; give all ranks the same";
  CHECK(told(Seed{5}, shape_of(5), Keep::whole) == "");
  CHECK(told(Seed{1 + (std::uint64_t{5} << 32)}, shape_of(5), Keep::whole) ==
        begin + "seed is 5 on ranks 0 to 4, 6, 7, and 21474836481 on rank 5" + same);
  CHECK(told(Seed{5}, shape_of(4), Keep::all_over_data) ==
        begin +
            "shape is [batch 5, feature 6] on ranks 0 to 4, 6, 7, and [batch 4, feature 6] on rank "
            "5; keep is Keep::whole on ranks 0 to 4, 6, 7, and Keep::all_over_data on rank 5" +
            same);
}
