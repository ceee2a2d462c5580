// A GPT-2 over all axes of a mesh at once has the losses and parameters of one rank: tensor, data,
// context and pipeline, with its first and last layer sharing a table, and with shares of moments;
// and so has every other whole model that is cut between its blocks.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "ranks/pipeline_batches.hpp"
#include "shardwise/models/bert.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/parallel_gpt.hpp"
#include "shardwise/models/parallelism.hpp"
#include "shardwise/models/vit.hpp"
#include "support/count_allocations.hpp"
#include "support/error_of.hpp"
#include "support/largest_difference.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::check_near;
using testing::contains;
using testing::error_of;
using testing::largest_difference;
using testing::on_each_rank;
using testing::ThreadMesh;
using testing::trained;
using testing::TrainingResult;
using namespace testing::on_meshes;

namespace {

using Ctx = OnThreadMesh<double>;
using E = Ends<TensorParallel::ids, TensorParallel::logits>;
using Ids = SamplesOverMesh<TensorParallel::ids>;

constexpr std::size_t vocabulary = 13;
constexpr int steps = 3;
constexpr AdamW rule{.learning_rate = 0.01};
constexpr std::array cut{CutPlace{4, 1}};  // behind the first of three blocks
constexpr std::array in_four{CutPlace{3}, CutPlace{4, 1}, CutPlace{5}};

auto gpt() {
  return gpt2<TensorParallel, Gpt2Form{.dropped = 1, .of = 10}, 3>({.vocabulary = vocabulary,
                                                                    .positions = 7,
                                                                    .features = 12,
                                                                    .hidden = 10,
                                                                    .heads = 6,
                                                                    .layers = 3});
}

constexpr Shape text(std::size_t samples) { return {{Axis::batch, samples}, {Axis::sequence, 5}}; }

/// Micro-batches of a step, and their packed documents.
using Packed = std::vector<std::vector<Segment>>;
const std::vector<std::size_t> sizes_of_batches{2, 1, 1, 1};
const Packed documents{{{0, 2}, {2, 3}, {5, 4, 1}}, {}, {{1, 4, 2}}, {{0, 4}, {4, 1, 6}}};
constexpr std::size_t samples = 5;
/// The same documents in one batch of all samples.
const std::vector<Segment> all_documents{{0, 2},     {2, 3},  {5, 4, 1}, {10, 5},
                                         {16, 4, 2}, {20, 4}, {24, 1, 6}};
const std::vector<std::size_t> padding{9, 15};
const MaskedCrossEntropy loss{.counted = 5 * samples - 2};

/// Token ids from the sample `first` on, each `later` tokens behind that of an input.
template <Layout L>
Tensor<std::int32_t, L> tokens(std::size_t first, std::size_t count, std::size_t later,
                               const MeshPlace& place) {
  return filled<std::int32_t, L>(text(count), place, [=](std::size_t i) {
    const std::size_t n = first * 5 + i + later;
    return static_cast<std::int32_t>(n * n % vocabulary);
  });
}

/// Labels of the samples from `first` on; those of padding are ignored.
Tensor<std::int32_t, Invariant> labels(std::size_t first, std::size_t count,
                                       const MeshPlace& place) {
  auto next = tokens<Invariant>(first, count, 1, place);
  for (const std::size_t row : padding)
    if (row >= first * 5 && row < (first + count) * 5) next[row - first * 5] = -100;
  return next;
}

/// Biases of keys differ: their gradients are rounding alone, because a softmax does not change
/// with them, and AdamW makes steps of any gradient.
void leave_out_keys(TrainingResult& result) {
  std::erase_if(result.parameters,
                [](const auto& one) { return one.first.ends_with(".0.1.1.bias"); });
}

/// The inputs, and labels of which some are ignored.
auto batches(const std::vector<std::size_t>& sizes, const MeshPlace& place) {
  return Batches(
      sizes,
      [=](std::size_t first, std::size_t count) { return tokens<Ids>(first, count, 0, place); },
      [=](std::size_t first, std::size_t count) { return labels(first, count, place); });
}

/// The same inputs, and labels that all count.
auto whole_batches(const std::vector<std::size_t>& sizes, const MeshPlace& place) {
  return Batches(
      sizes,
      [=](std::size_t first, std::size_t count) { return tokens<Ids>(first, count, 0, place); },
      [=](std::size_t first, std::size_t count) {
        return tokens<Invariant>(first, count, 1, place);
      });
}

/// The loss and the number of correct predictions of batches of these sizes. `segments` are theirs.
template <class Models>
std::vector<double> evaluated(Models& models, const std::vector<std::size_t>& sizes,
                              const MeshPlace& place, const Packed& segments) {
  const auto all = batches(sizes, place), counted = whole_batches(sizes, place);
  return {evaluate_loss(models, all.inputs, all.targets, loss, segments),
          static_cast<double>(count_top_k(models, counted.inputs, counted.targets, 4, segments))};
}

/// The steps of models by step(batches), and what they evaluate then.
template <class Models, class Step>
TrainingResult learned(Models& models, const std::vector<std::size_t>& sizes,
                       const MeshPlace& place, const Packed& segments, Step step) {
  const auto all = batches(sizes, place);
  TrainingResult result = trained(models, steps, [&] { return step(all); });
  for (const double number : evaluated(models, sizes, place, segments))
    result.losses.push_back(number);
  leave_out_keys(result);
  return result;
}

TrainingResult gpt_on_one_rank(const std::vector<Segment>& segments) {
  return on_each_rank(mesh{}, [&](ThreadMesh& ranks) {
    Model<decltype(gpt()), Ctx, E> model(gpt(), ranks, Seed{5}, text(dynamic));
    Optimizer optimizer(model, rule);
    return learned(model, {samples}, ranks.place(), {segments}, [&](const auto& all) {
      return train_step(model, all.inputs[0], all.targets[0], loss, optimizer, {.clip_norm = 0.3},
                        segments);
    });
  })[0];
}

/// Trains and evaluates a stage, or the stages of a rank, and compares them with one rank.
auto check_with(const PipelineSchedule& schedule, const Packed& segments,
                const TrainingResult& one) {
  return [&, schedule](auto& stages, auto& optimizer) {
    const auto step = [&](const auto& all) {
      return train_pipeline_step(stages, schedule, all.inputs, all.targets, loss, optimizer,
                                 {.clip_norm = 0.3}, segments);
    };
    check_near(learned(stages, sizes_of_batches, stages.place(), segments, step), one, 1e-12);
  };
}

}  // namespace

TEST_CASE("a GPT-2 over tensor, data, context and pipeline is that of one rank") {
  for (const bool is_packed : {false, true}) {
    CAPTURE(is_packed);
    const Packed segments = is_packed ? documents : Packed{};
    const TrainingResult one = gpt_on_one_rank(is_packed ? all_documents : std::vector<Segment>{});
    for (const mesh& sizes : {mesh{.pipeline = 2, .data = 2, .context = 2, .tensor = 2},
                              mesh{.pipeline = 2, .context = 3, .tensor = 2}}) {
      CAPTURE(to_string(sizes));
      run_mesh(sizes, [&](ThreadMesh& ranks) {
        with_stages<cut, 1, E>(gpt(), ranks, text(1), rule,
                               check_with(one_f_one_b(2, 4), segments, one), Keep::state_over_data);
      });
    }
  }
}

TEST_CASE("packed documents are those of one rank with two stages on each rank") {
  const TrainingResult one = gpt_on_one_rank(all_documents);
  run_mesh({.pipeline = 2, .data = 2, .tensor = 2}, [&](ThreadMesh& ranks) {
    with_stages<in_four, 2, E>(gpt(), ranks, text(1), rule,
                               check_with(interleaved_one_f_one_b(2, 4, 2), documents, one));
  });
  run_mesh({.pipeline = 4}, [&](ThreadMesh& ranks) {
    with_stages<in_four, 1, E>(gpt(), ranks, text(1), rule,
                               check_with(zero_bubble_h1(4, 4), documents, one));
  });
}

TEST_CASE("a model without stages evaluates packed documents batch by batch") {
  std::vector<double> whole;
  run_mesh({}, [&](ThreadMesh& ranks) {
    Model<decltype(gpt()), Ctx, E> model(gpt(), ranks, Seed{5}, text(dynamic));
    whole = evaluated(model, {samples}, ranks.place(), {all_documents});
  });
  run_mesh({.data = 2, .tensor = 2}, [&](ThreadMesh& ranks) {
    Model<decltype(gpt()), Ctx, E> model(gpt(), ranks, Seed{5}, text(dynamic));
    const auto in_batches = [&](const Packed& segments) {
      return evaluated(model, sizes_of_batches, ranks.place(), segments);
    };
    CHECK(largest_difference(in_batches(documents), whole) < 1e-12);
    CHECK(contains(error_of([&] { in_batches(Packed(1)); }),
                   "4 inputs and 1 lists of segments were given; give one list"));
  });
}

TEST_CASE("segments that do not fit the batches, or that differ, are refused on all ranks") {
  run_mesh({.pipeline = 2}, [&](ThreadMesh& ranks) {
    with_stages<cut, 1, E>(gpt(), ranks, text(1), rule, [&](auto& stage, auto& optimizer) {
      const auto ids = tokens<Ids>(0, 2, 0, stage.place());
      const auto next = tokens<Invariant>(0, 2, 1, stage.place());
      const std::vector x{ids.view(), ids.view()};
      const std::vector targets{next.view(), next.view()};
      const auto refuse = [&](const Packed& segments, const std::string& why) {
        const auto step = [&] {
          train_pipeline_step(stage, gpipe(2, 2), x, targets, CrossEntropy{}, optimizer, {},
                              segments);
        };
        CHECK(contains(error_of(step), why));
        const auto evaluate = [&] { evaluate_loss(stage, x, targets, CrossEntropy{}, segments); };
        CHECK(contains(error_of(evaluate), why));
      };
      refuse({{{0, 5}}}, "2 inputs and 1 lists of segments were given; give one list");
      refuse({{}, {{0, 5}, {4, 6}}},
             "batch 1: segment 1 is rows 4 to 10 (without the "
             "last) of a batch [batch 2, sequence 5]: it lies in");
      const bool is_0 = ranks.rank() == 0;
      const std::size_t size = is_0 ? 4 : 3;
      refuse({{}, {{0, size}, {5, 5}}},
             "segments is batch 1 rows 0 to 3, batch 1 rows 5 to 9 on rank 0, and batch 1 rows 0 "
             "to 2, batch 1 rows 5 to 9 on rank 1; give all ranks the same");
      refuse({{{0, 4, size}}, {}},
             "segments is batch 0 rows 0 to 3 from position 4 on rank 0, and batch 0 rows 0 to 3 "
             "from position 3 on rank 1; give");
      refuse(is_0 ? Packed{} : Packed{{}, {{5, 5}}},
             "segments is none on rank 0, and batch 1 rows 5 to 9 on rank 1; give all");
      std::vector<Segment> many;
      for (std::size_t row = 0; row < 10; ++row) many.push_back({row, 1, 10 * row + size});
      refuse({many, many}, "segments is 20 segments on rank 0, and other ones on rank 1; give all");
      CHECK(stage.model().step() == 1);
      const Packed none = ranks.rank() == 0 ? Packed{} : Packed{{}, {}};  // mean the same
      evaluate_loss(stage, x, targets, CrossEntropy{}, none);
      const Packed good{{{0, 2}, {5, 3}}, {}};
      const PipelineSchedule schedule = one_f_one_b(2, 2);
      CHECK(testing::allocated_after_second([&] {
              train_pipeline_step(stage, schedule, x, targets, CrossEntropy{}, optimizer, {}, good);
            }) == 0);
    });
  });
}

namespace {

struct Classed : Sequential<Embedding<vocabulary, 6>, ClassToken<6>, PositionEmbedding<6, 6>,
                            Linear<split::output, 6, 5>> {};
constexpr std::array behind_token{CutPlace{2}};

}  // namespace

TEST_CASE("segments behind a class token end the step on all stages, and without them it runs") {
  const auto told = [](const Packed& segments) {
    return on_each_rank({.pipeline = 2}, [&](ThreadMesh& ranks) {
      std::string error;
      const auto step = [&](auto& stage, auto& optimizer) {
        const auto ids = tokens<Whole>(0, 2, 0, stage.place());
        const auto classes = filled<std::int32_t, Invariant>(
            {{Axis::batch, 2}, {Axis::sequence, 6}}, stage.place(),
            [](std::size_t i) { return static_cast<std::int32_t>(i % 5); });
        error = error_of([&] {
          train_pipeline_step(stage, gpipe(2, 1), {ids.view()}, std::vector{classes.view()},
                              CrossEntropy{}, optimizer, {}, segments);
        });
      };
      with_stages<behind_token>(Classed{}, ranks, text(1), rule, step);
      return error;
    });
  };
  CHECK(told({}) == std::vector<std::string>(2));
  const auto errors = told({{{0, 2}, {2, 3}, {5, 5}}});
  CHECK(
      contains(errors[1],
               "2: PositionEmbedding<6, 6>: a tensor [batch 2, sequence 6, feature 6] has 12 rows "
               "of tokens, but the segments were given for a batch of 10: layers behind one that "
               "changes the number of tokens, such as a ClassToken, take no segments; leave them "
               "out"));
  CHECK(contains(errors[0], "rank 1"));
}

namespace {

using OfBert = BertEnds<TensorParallel>;
using Types = SamplesOverMesh<TensorParallel::stream>;
constexpr std::array between_blocks{CutPlace{5, 1}};

auto bert_of_two() {
  return bert<TensorParallel, BertForm{.dropped = 1, .of = 10}, 2>({.vocabulary = vocabulary,
                                                                    .positions = 7,
                                                                    .types = 2,
                                                                    .features = 12,
                                                                    .hidden = 10,
                                                                    .heads = 6,
                                                                    .layers = 2});
}

/// Ids and types of tokens, and labels.
auto bert_batches(const std::vector<std::size_t>& sizes, const MeshPlace& place) {
  return Batches(
      sizes,
      [=](std::size_t first, std::size_t count) {
        return std::tuple{tokens<Ids>(first, count, 0, place),
                          filled<std::int32_t, Types>(text(count), place, [](std::size_t i) {
                            return static_cast<std::int32_t>(i % 5 > 2);
                          })};
      },
      [=](std::size_t first, std::size_t count) { return labels(first, count, place); });
}

}  // namespace

TEST_CASE("a BERT that is cut between its blocks is that of one rank") {
  std::vector<double> one;
  run_mesh({}, [&](ThreadMesh& ranks) {
    Model<decltype(bert_of_two()), Ctx, OfBert> model(bert_of_two(), ranks, Seed{5},
                                                      {text(dynamic), text(dynamic)});
    Optimizer optimizer(model, rule);
    const auto all = bert_batches({samples}, ranks.place());
    one = trained(model, steps, [&] {
            return train_step(model, all.inputs[0], all.targets[0], loss, optimizer, {},
                              all_documents);
          }).losses;
  });
  CHECK(one.back() < one.front());
  run_mesh({.pipeline = 2, .tensor = 2}, [&](ThreadMesh& ranks) {
    const auto check = [&](auto& stage, auto& optimizer) {
      const auto all = bert_batches(sizes_of_batches, stage.place());
      const auto step = [&] {
        return train_pipeline_step(stage, one_f_one_b(2, 4), all.inputs, all.targets, loss,
                                   optimizer, {}, documents);
      };
      CHECK(largest_difference(trained(stage, steps, step).losses, one) < 1e-12);
    };
    with_stages<between_blocks, 1, OfBert>(bert_of_two(), ranks, std::array{text(1), text(1)}, rule,
                                           check);
  });
}

namespace {

/// What a model of text reads and learns.
struct OfText {
  using ends = E;
  static Shape shape() { return text(1); }
  static auto input(std::size_t first, std::size_t count, const MeshPlace& place) {
    return tokens<Ids>(first, count, 0, place);
  }
  static auto target(std::size_t first, std::size_t count, const MeshPlace& place) {
    return tokens<Invariant>(first, count, 1, place);
  }
};

/// What a model of images does.
struct OfImages {
  using ends = Ends<Invariant, TensorParallel::logits>;
  static Shape shape(std::size_t count = 1) {
    return {{Axis::batch, count}, {Axis::channel, 2}, {Axis::height, 5}, {Axis::width, 5}};
  }
  static auto input(std::size_t first, std::size_t count, const MeshPlace& place) {
    return filled<double, Ids>(shape(count), place, [=](std::size_t i) {
      return static_cast<double>((first * 50 + i) * (first * 50 + i) % 7) / 4;
    });
  }
  static auto target(std::size_t first, std::size_t count, const MeshPlace& place) {
    return filled<std::int32_t, Invariant>({{Axis::batch, count}}, place, [=](std::size_t i) {
      return static_cast<std::int32_t>((first + i) % 3);
    });
  }
};

/// Trains `net` on two stages, the first of which ends behind the first block of this part, and
/// compares losses and parameters with those of one rank.
template <class Data, std::size_t Part, class Net>
void check_in_two_stages(const Net& net) {
  constexpr Sgd by_gradient{.learning_rate = 0.1};
  const auto batches_of = [](const std::vector<std::size_t>& sizes, const MeshPlace& place) {
    return Batches(
        sizes,
        [&](std::size_t first, std::size_t count) { return Data::input(first, count, place); },
        [&](std::size_t first, std::size_t count) { return Data::target(first, count, place); });
  };
  TrainingResult one;
  run_mesh({}, [&](ThreadMesh& ranks) {
    Model<Net, Ctx, typename Data::ends> model(net, ranks, Seed{5}, Data::shape());
    Optimizer optimizer(model, by_gradient);
    const auto all = batches_of({3}, ranks.place());
    one = trained(model, steps, [&] {
      return train_step(model, all.inputs[0], all.targets[0], CrossEntropy{}, optimizer);
    });
  });
  CHECK(one.losses.back() < one.losses.front());
  static constexpr std::array behind_first{CutPlace{Part, 1}};
  run_mesh({.pipeline = 2, .tensor = 2}, [&](ThreadMesh& ranks) {
    const auto check = [&](auto& stage, auto& optimizer) {
      const auto all = batches_of({2, 1}, stage.place());
      const TrainingResult many =
          trained(stage, steps, [&] { return step_of(stage, optimizer, one_f_one_b(2, 2), all); });
      CHECK(many.parameters.size() < one.parameters.size());
      check_near(many, one, 1e-12);
    };
    with_stages<behind_first, 1, typename Data::ends>(net, ranks, Data::shape(), by_gradient,
                                                      check);
  });
}

}  // namespace

TEST_CASE(
    "a Llama, a GPT-J and a vision transformer that are cut between blocks are those of one "
    "rank") {
  constexpr LlamaForm tied{.tied = true, .window = dynamic, .two_windows = true};
  const LlamaConfig llama_sizes{.form = tied,
                                .vocabulary = vocabulary,
                                .features = 12,
                                .hidden = 10,
                                .heads = 6,
                                .groups = 3,
                                .head_size = 2,
                                .layers = 6,
                                .turn = {{.layers = 2, .window = 2}, {.layers = 1}}};
  check_in_two_stages<OfText, 2>(llama<TensorParallel, tied, 2>(llama_sizes));
  check_in_two_stages<OfText, 2>(
      parallel_gpt<TensorParallel, gptj_form, 3>({.form = gptj_form,
                                                  .vocabulary = vocabulary,
                                                  .features = 12,
                                                  .hidden = 10,
                                                  .heads = 3,
                                                  .groups = 3,
                                                  .head_size = 4,
                                                  .layers = 3}));
  check_in_two_stages<OfImages, 6>(vit<TensorParallel, VitForm{.patch = 2}, 2>({.channels = 2,
                                                                                .side = 5,
                                                                                .patch = 2,
                                                                                .features = 6,
                                                                                .hidden = 5,
                                                                                .heads = 3,
                                                                                .layers = 2,
                                                                                .classes = 3}));
  CHECK(error_of([&] { llama<TensorParallel, tied, 3>(llama_sizes); }) ==
        "argument_error: Repeat: the type has 3 blocks, but 2 were asked for");
}
