// Models on meshes of ranks: layers are split along `tensor`, batches along `replica` and `data`.
// Everything is as on one rank.

#include "ranks/model_mesh.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "ranks/model_gpt.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/data/row_batch.hpp"
#include "shardwise/data/sampler.hpp"
#include "shardwise/observe/write_trace.hpp"
#include "shardwise/redistribute/mesh.hpp"
#include "shardwise/shardwise.hpp"
#include "shardwise/train/accuracy.hpp"
#include "shardwise/train/evaluate_loss.hpp"
#include "support/largest_difference.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;

namespace {

using testing::check_mentions;
using testing::largest_difference;
using testing::message_of;
using namespace testing::on_meshes;

double sum_of_squares(Network& model, const std::string& name) {
  const auto whole = model.gather(name);
  double sum = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) sum += whole[i] * whole[i];
  return sum;
}

/// Steps of two batches of 7 and 4 samples, with a mask for each and logits that are split.
Trained trained(Ranks& ranks, std::size_t bucket_bytes = default_bucket_bytes) {
  const MeshPlace& place = ranks.place();
  Mlp model(ranks, Seed{5}, {.bucket_bytes = bucket_bytes});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1, .momentum = 0.9});
  Trained result;
  Shape few = rows;
  few[0].units = 4;
  const CrossEntropy loss{.label_smoothing = 0.1};
  for (std::int64_t n = 0; n < 3; ++n) {
    const auto x = made<Whole>(30 + n, rows, place), y = made<Whole>(40 + n, few, place);
    Step step(optimizer, 11, {.clip_norm = 0.3});
    result.losses.push_back(step.add(x.view(), labels(7, n, place).view(), loss));
    result.losses.push_back(step.add(y.view(), labels(4, n + 1, place).view(), loss));
    result.norms.push_back(*step.finish().norm);
  }
  result.weights = weights_of(model);
  const auto x = made<Whole>(50, rows, place);
  result.evaluated = evaluate_loss(model, x.view(), labels(7, 0, place).view(), loss);
  result.correct = count_correct(model, x.view(), labels(7, 0, place).view());
  CHECK(replicas_are_equal(model, ranks));
  CHECK(model.forward(x.view()).global() == Shape{{Axis::batch, 7}, {Axis::feature, 5}});
  const auto dy = made<Mlp::output_layout>(60, {{Axis::batch, 7}, {Axis::feature, 5}}, place);
  result.slopes = whole(ranks, model.backward(dy.view()));
  return result;
}

// begin: learn
double learn(Ranks& ranks, const std::vector<double>& inputs,
             const std::vector<std::int32_t>& classes) {
  Mlp model(ranks, Seed{1});
  Optimizer optimizer(model, AdamW{});
  RowBatch<double, SamplesOverMesh<Invariant>> x(inputs, {{Axis::feature, 6}}, ranks.place());
  RowBatch<std::int32_t, SamplesOverMesh<Invariant>> labels(classes, {}, ranks.place());
  DistributedSampler sampler(x.count(), ranks.place(), {.batch_size = 4});
  RunningMean loss;
  for (const auto& [in, target] : EpochBatches(sampler, x, labels))
    loss.add(train_step(model, in, target, CrossEntropy{}, optimizer), in.global()[0].units);
  return loss.value();
}
// end: learn

}  // namespace

// 784 x 512 weights and 512 biases are split, so along `data` each rank sums its part of them.
namespace plans {
struct Digits
    : Sequential<ColumnParallelLinear<784, 512>, Relu, Dropout<1, 4>, RowParallelLinear<512, 10>> {
};
constexpr mesh sizes{.data = 2, .tensor = 4};
constexpr Plan of_digits() { return plan<Digits, sizes>(batch{64}); }
static_assert(of_digits().forward == CollectiveList{all_reduce(64 * 10).split_over(data)});
static_assert(of_digits().backward.empty());
static_assert(of_digits().settle ==
              CollectiveList{all_reduce(10).over(data),
                             all_reduce(784 * 512 + 512 + 512 * 10).over(data).split_over(tensor)});
// Two groups of four, each with 320 of 640; four pairs with a quarter, and four with all 10.
static_assert(of_digits().forward.bytes_sent(sizes) == 2 * 3 * 640 * 4);
static_assert(of_digits().settle.bytes_sent(sizes) ==
              2 * 4 * (784 * 512 + 512 + 512 * 10) + 4 * 2 * 4 * 10);
static_assert(plan<Digits, mesh{.tensor = 4}>(batch{64}).settle ==
              plan<Digits, 4>(batch{64}).settle);

struct Normed : Sequential<Linear<split::none, 8, 6>, BatchNorm<6>> {};
static_assert(plan<Normed, mesh{.replica = 2, .data = 3}>(batch{9}).forward ==
              CollectiveList{all_reduce(12, Dtype::float64).over(data),
                             all_reduce(12, Dtype::float64).over(replica)});
}  // namespace plans

TEST_CASE("a convolutional network learns on every mesh what PyTorch learns on one rank") {
  std::vector<mesh> all = meshes;
  all.push_back({});
  for (const mesh& sizes : all) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [](Ranks& ranks) {
      Network model(Convolutional{}, ranks, Seed{1}, images);
      check_learns_as_pytorch<Whole>(model);
      Numbers sums;
      for (const char* name : {"0.weight", "1.weight", "3.weight", "6.bias", "9.weight", "11.bias"})
        sums.push_back(sum_of_squares(model, name));
      CHECK(largest_difference(sums, Numbers{12.00966918365746, 0.90301695981469643,
                                             8.6299053005861843, 0.62914324170017089,
                                             22.815884988136535, 0.94095482867364744}) < 1e-13);
      CHECK(replicas_are_equal(model, ranks));
      double running = 0;  // Σ mean² + Σ variance² of the rank's channels
      model.visit_buffers([&](auto& buffer) {
        for (const double number : buffer.value.span()) running += number * number;
      });
      ranks.along(tensor).all_reduce(std::span<const double>(&running, 1), std::span(&running, 1));
      CHECK(running == doctest::Approx(0.072790199905785932 + 4.3698432807476904).epsilon(1e-14));
    });
  }
}

TEST_CASE("dropout, steps of two batches, clipping and evaluation are those of one rank") {
  const Trained one = on_one_rank([](Ranks& ranks) { return trained(ranks); });
  CHECK(one.losses.back() > 0);
  for (const mesh& sizes : meshes) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [&](Ranks& ranks) {
      const std::size_t two_numbers = 16;
      const Trained many = trained(ranks);
      CHECK(trained(ranks, two_numbers).weights == many.weights);
      check_alike(many, one);
    });
  }
}

namespace {

/// The losses of two steps of a small GPT-2 with dropout, whose blocks pass tokens on in shards.
Numbers losses_of_gpt(Ranks& ranks) {
  using Net = testing::gpt::Gpt2<SequenceParallel, 2, 1>;
  using Ids = SamplesOverMesh<SequenceParallel::ids>;
  constexpr Shape text{{Axis::batch, 3}, {Axis::sequence, 5}};
  Model<Net, OnMesh, Ends<SequenceParallel::ids, SequenceParallel::logits>> model(Net{}, ranks,
                                                                                  Seed{3}, text);
  Optimizer optimizer(model, Sgd{.learning_rate = 0.3});
  const auto ids = filled<std::int32_t, Ids>(text, ranks.place(), testing::gpt::token);
  const auto next = filled<std::int32_t, Ids>(
      text, ranks.place(), [](std::size_t i) { return testing::gpt::token(i + 1); });
  Numbers losses;
  for (int step = 0; step < 2; ++step)
    losses.push_back(train_step(model, ids.view(), next.view(), CrossEntropy{}, optimizer));
  CHECK(replicas_are_equal(model, ranks));
  return losses;
}

/// A layer that knows nothing of meshes, with a loss of its own: the mean over the samples that it
/// is given of their sums of squares.
struct Penalised : KeepsLayout {
  static constexpr Saves saves = Saves::input;

  template <class Frame, class X, class Y>
  void forward(Frame&, X x, Y y) const {
    std::copy_n(x.data(), x.size(), y.data());
  }
  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, X x, DY dy, DX dx) const {
    const auto samples = static_cast<double>(x.global()[0].units);
    double squares = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      squares += x[i] * x[i];
      dx[i] = dy[i] + 2 * x[i] / samples * frame.loss_factor();
    }
    frame.add_loss(squares / samples);
  }
};
struct Regressed : Sequential<Linear<split::none, 6, 5>, Penalised> {};

/// The losses of a step of two batches, without and with those of layers, and of the next step.
Numbers losses_of_layers(Ranks& ranks) {
  Model<Regressed, OnMesh> model(ranks, Seed{5});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
  Shape few = rows;
  few[0].units = 4;
  const auto x = made<Whole>(30, rows, ranks.place()), y = made<Whole>(40, few, ranks.place());
  double squares = 0;
  for (const auto& in : {x.view(), y.view()}) {
    const auto out = model.evaluate(in);
    for (std::size_t i = 0; i < out.size(); ++i) squares += out[i] * out[i];
  }
  Step step(optimizer, 11);
  Numbers losses{step.add(x.view(), labels(7, 0, ranks.place()).view(), CrossEntropy{}),
                 step.add(y.view(), labels(4, 1, ranks.place()).view(), CrossEntropy{})};
  step.finish();
  losses.push_back(model.layer_losses());
  if (ranks.size() == 1) CHECK(losses.back() == doctest::Approx(squares / 11).epsilon(1e-14));
  losses.push_back(
      train_step(model, x.view(), labels(7, 0, ranks.place()).view(), CrossEntropy{}, optimizer));
  return losses;
}

/// The same in T, with parameters and sums over ranks in float.
template <class T>
Numbers losses_of_perceptron(Ranks& ranks) {
  return losses_in<Perceptron, Precision<T, float>, Ends<Invariant, Sharded<Axis::feature>>, Whole>(
      ranks, rows, 0.1);
}

}  // namespace

TEST_CASE("a transformer with dropout has the losses of one rank on every mesh") {
  check_as_on_one_rank(losses_of_gpt, 1e-13, meshes);
  check_as_on_one_rank(losses_of_gpt, 1e-13, contexts);
}

TEST_CASE("a layer's own loss is that of one rank on every mesh") {
  check_as_on_one_rank(losses_of_layers, 1e-13, meshes);
}

TEST_CASE("in bf16 and fp16 the losses on every mesh are those of one rank, but for rounding") {
  check_as_on_one_rank(losses_of_perceptron<bf16>, 0x1p-8, meshes);
  check_as_on_one_rank(losses_of_perceptron<fp16>, 0x1p-11, meshes);
}

TEST_CASE("a checkpoint of one mesh goes on on another, and becomes the same bytes there") {
  const testing::TemporaryFolder folder("shardwise_mesh");
  const auto train = [](Mlp& model, auto& optimizer) {
    const MeshPlace& place = model.ranks().place();
    const auto x = made<Whole>(30, rows, place);
    return train_step(model, x.view(), labels(7, 0, place).view(), CrossEntropy{}, optimizer);
  };
  const auto first = folder.path() / "first.safetensors";
  double next = 0;
  on_mesh({.data = 2, .tensor = 2}, [&](Ranks& ranks) {
    Mlp model(ranks, Seed{5});
    Optimizer optimizer(model, AdamW{});
    train(model, optimizer);
    save_checkpoint(first, model, optimizer, RunPosition{});
    const double loss = train(model, optimizer);
    if (ranks.rank() == 0) next = loss;
  });
  for (const mesh& sizes : std::vector<mesh>{{},
                                             {.data = 4},
                                             {.data = 3, .tensor = 2},
                                             {.replica = 2, .data = 2, .tensor = 3},
                                             {.data = 2, .context = 2, .tensor = 2}}) {
    CAPTURE(to_string(sizes));
    const auto second = folder.path() / "second.safetensors";
    on_mesh(sizes, [&](Ranks& ranks) {
      Mlp model(ranks, Seed{6});
      Optimizer optimizer(model, AdamW{});
      load_checkpoint(first, model, optimizer);
      save_checkpoint(second, model, optimizer, RunPosition{});
      if (sizes.context == 1)  // the samples have no tokens
        CHECK(train(model, optimizer) == doctest::Approx(next).epsilon(1e-13));
    });
    CHECK(testing::bytes_of(second) == testing::bytes_of(first));
  }
}

TEST_CASE("what the page on meshes shows learns from a program's own rows as one rank does") {
  Numbers inputs(11 * 6);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    inputs[i] = witness::made(70, static_cast<std::int64_t>(i));
  std::vector<std::int32_t> classes;
  for (std::int64_t row = 0; row < 11; ++row) classes.push_back(witness::made_label(row, 5));
  check_as_on_one_rank([&](Ranks& ranks) { return Numbers{learn(ranks, inputs, classes)}; }, 1e-13,
                       meshes);
}

TEST_CASE("a description shows the rank's slice, and what all ranks send") {
  on_mesh({.data = 2, .tensor = 2}, [](Ranks& ranks) {
    Mlp model(ranks, Seed{5});
    const std::size_t samples = ranks.place()[data].rank == 0 ? 4 : 3;
    const std::string here = "on [batch " + std::to_string(samples) + ", feature 6] float64, " +
                             to_string(ranks.place());
    // 5 and 5 x 5 + 5 are whole, 7 x 6 + 7 + 5 x 7 are split
    const std::string settles =
        "settle by all_reduce(35 x float64) over data, 1120 bytes; "
        "all_reduce(84 x float64) over data, 1344 bytes";
    check_mentions(describe(model, rows), {here, settles});
    check_mentions(describe_graph(model, rows), {here, settles});
  });
}

TEST_CASE("a tracer notes the axis of each call, and the bytes of its group") {
  const testing::TemporaryFolder folder("shardwise_mesh_trace");
  const auto path = folder.path() / "trace.json";
  on_mesh({.replica = 2, .data = 2, .tensor = 2}, [&](Ranks& ranks) {
    Mlp model(ranks, Seed{5});
    Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
    model.observer().reserve(200);
    clear_calls(ranks);
    train_step(model, made<Whole>(30, rows, ranks.place()).view(),
               labels(7, 0, ranks.place()).view(), CrossEntropy{}, optimizer);
    for (const MeshAxis axis : {replica, data, tensor}) {
      std::vector<Operation> noted, made_calls;
      for (const Tracer::Event& event : model.observer().events())
        if (event.work.kind == Work::Kind::collective && event.work.collective.axis == axis)
          noted.push_back(event.work.collective.operation);
      for (const CountedCall& call : ranks.along(axis).log()) made_calls.push_back(call.operation);
      CHECK(noted.size() > 1);
      CHECK(noted == made_calls);
    }
    write_trace(path, ranks, model.observer());
  });
  const std::string trace = testing::bytes_of(path);
  // Of the split weights the first rank has 4 x 6 + 4 + 5 x 4, and a pair sends each twice.
  check_mentions(trace, {"all_reduce(48 x float64) over data\",\"axis\":\"data\",\"bytes\":768",
                         "\"axis\":\"replica\",\"bytes\":768", "\"axis\":\"tensor\""});
}

TEST_CASE("a sampler gives each rank the samples of its slice") {
  for (const mesh& sizes : meshes) {
    CAPTURE(to_string(sizes));
    for (int rank = 0; rank < sizes.size(); ++rank) {
      const MeshPlace place = place_in(sizes, rank);
      DistributedSampler sampler(10, place, {.batch_size = 10, .seed = Seed{1}, .shuffles = false});
      const auto mine = sampler.next().mine;
      const Shape whole{{Axis::batch, 10}};
      CHECK(mine.size() == local_shape<Whole>(whole, place)[0].extent());
      if (!mine.empty()) CHECK(mine[0] == detail::local_begin<Whole>(whole, place)[0]);
    }
  }
}

TEST_CASE("labels may be those of the whole batch, or the rank's part") {
  on_mesh({.replica = 2, .data = 2}, [](Ranks& ranks) {
    const MeshPlace& place = ranks.place();
    Mlp model(ranks, Seed{5});
    const auto x = made<Whole>(30, rows, place);
    const auto whole = labels(7, 0, place);
    const auto part_at = [&](const MeshPlace& where) {
      Tensor<std::int32_t, Whole> part({{Axis::batch, 7}}, where);
      const std::size_t first = detail::local_begin<Whole>(part.global(), where)[0];
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = whole[first + i];
      return part;
    };
    const auto loss_of = [&](const auto& target) {
      return evaluate_loss(model, x.view(), target.view(), CrossEntropy{});
    };
    CHECK(loss_of(part_at(place)) == loss_of(whole));
    CHECK(evaluate_loss(model, x.view(), whole.view(), MaskedCrossEntropy{.counted = 7}) ==
          doctest::Approx(loss_of(whole)).epsilon(1e-14));
    Shape single = rows;
    single[0].units = 1;  // three of four slices are empty, and one is all of the step
    const auto one = made<Whole>(30, single, place);
    check_mentions(message_of<argument_error>([&] {
                     evaluate_loss(model, one.view(), labels(1, 0, place).view(),
                                   MaskedCrossEntropy{});
                   }),
                   {"counted"});
    MeshPlace other = place;
    other[data].rank = 1 - other[data].rank;
    check_mentions(message_of<argument_error>([&] { loss_of(part_at(other)); }),
                   {"the labels or targets are the part of", "of 2 along data"});
  });
}

TEST_CASE("a gradient that is not finite on one rank makes all ranks skip the step") {
  on_mesh({.data = 2, .tensor = 2}, [](Ranks& ranks) {
    Mlp model(ranks, Seed{5});
    Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
    LossScaler scaler = LossScaler::fixed(8);
    const Numbers before(model.values().begin(), model.values().end());
    for (const bool is_bad : {true, false}) {
      Step step(optimizer, 7, {.scaler = &scaler});
      step.add(made<Whole>(30, rows, ranks.place()).view(), labels(7, 0, ranks.place()).view(),
               CrossEntropy{});
      if (is_bad && ranks.rank() == 3)
        model.gradients()[0] = std::numeric_limits<double>::infinity();
      CHECK(step.finish().skipped == is_bad);
      const Numbers after(model.values().begin(), model.values().end());
      CHECK((after == before) == is_bad);
    }
  });
}

TEST_CASE("a NaN in one slice is an error on all ranks that names its row of the whole batch") {
  on_mesh({.data = 3, .tensor = 2}, [](Ranks& ranks) {
    const MeshPlace& place = ranks.place();
    Mlp model(ranks, Seed{5});
    Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
    auto x = made<Whole>(30, rows, place);
    if (place[data].rank == 2) x[1] = std::numeric_limits<double>::quiet_NaN();
    const std::string said = message_of<numeric_error>([&] {
      train_step(model, x.view(), labels(7, 0, place).view(), CrossEntropy{}, optimizer);
    });
    check_mentions(said, {"the input holds a NaN in row 5, feature 1, on rank 4"});
  });
}

TEST_CASE(
    "a label that is no class is told on every rank, with slice and row, and training goes on") {
  for (const mesh& sizes : {mesh{.data = 3, .tensor = 2}, mesh{.replica = 3, .data = 2}}) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [&](Ranks& ranks) {
      const MeshPlace& place = ranks.place();
      Mlp model(ranks, Seed{5});
      Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
      const auto x = made<Whole>(30, rows, place);
      const auto good = labels(7, 0, place);
      auto target = labels(7, 0, place);
      target[4] = 10;  // of the second slice of three, or of the fourth and fifth of six
      target[5] = 10;
      const Numbers before(model.values().begin(), model.values().end());
      const std::string said[] = {
          message_of<argument_error>(
              [&] { train_step(model, x.view(), target.view(), CrossEntropy{}, optimizer); }),
          message_of<argument_error>(
              [&] { evaluate_loss(model, x.view(), target.view(), CrossEntropy{}); }),
          message_of<argument_error>([&] { count_correct(model, x.view(), target.view()); })};
      for (const std::string& text : said) {
        check_mentions(text, {"rank ", "slice from sample ", "label 10 of row ", "is no class"});
        if (place[data].rank == 0 && place[replica].rank == 0)
          check_mentions(
              text, {sizes.replica == 1 ? "from sample 3 on: label 10 of row 1"
                                        : "rank 3, slice from sample 4 on: label 10 of row 0"});
      }
      CHECK(Numbers(model.values().begin(), model.values().end()) == before);
      CHECK(train_step(model, x.view(), good.view(), CrossEntropy{}, optimizer) > 0);
    });
  }
}

TEST_CASE("what refuses a slice is told whole on every rank, however long it is") {
  on_mesh({.data = 3, .tensor = 2}, [&](Ranks& ranks) {
    Mlp model(ranks, Seed{5});
    for (const std::size_t letters : {1U, 500U, 501U, 1234U}) {
      std::string said(letters, ' ');
      for (std::size_t i = 0; i < letters; ++i) said[i] = static_cast<char>('a' + i % 26);
      const std::string mine = ranks.place()[data].rank == 1 ? said : "";
      CHECK(message_of<argument_error>([&] { detail::throw_refused(model.run(), mine); }) == said);
    }
  });
}

TEST_CASE("ranks that are given batches of unlike sizes are all told") {
  for (const auto& given : {std::pair{data, 7}, {replica, 7}, {data, 4096}}) {
    const MeshAxis axis = given.first;
    const int samples = given.second;
    mesh sizes{.tensor = 2};
    sizes[axis] = 3;
    on_mesh(sizes, [&](Ranks& ranks) {
      const MeshPlace& place = ranks.place();
      Mlp model(ranks, Seed{5});
      Shape mine = rows;
      mine[0].units = static_cast<std::size_t>(samples * place[axis].rank);
      const auto x = made<Whole>(30, mine, place);
      const auto target = labels(mine[0].units, 0, place);
      check_mentions(
          message_of<argument_error>(
              [&] { evaluate_loss(model, x.view(), target.view(), CrossEntropy{}); }),
          {"rank " + std::to_string(place[tensor].rank) +
           " was given a batch of 0 samples, and rank " + std::to_string(4 + place[tensor].rank) +
           " one of " + std::to_string(2 * samples)});
    });
  }
}

TEST_CASE("labels and gradients of another number of samples are refused on every rank") {
  on_mesh({.data = 2}, [](Ranks& ranks) {
    const MeshPlace& place = ranks.place();
    Mlp model(ranks, Seed{5});
    const auto x = made<Whole>(30, rows, place);
    const auto eight = labels(8, 0, place);
    check_mentions(message_of<shape_error>([&] { count_correct(model, x.view(), eight.view()); }),
                   {"batch 8", "batch 7"});
    const auto dy = made<SamplesOverMesh<Sharded<Axis::feature>>>(
        31, {{Axis::batch, 8}, {Axis::feature, 5}}, place);
    model.forward(x.view());
    check_mentions(message_of<shape_error>([&] { model.backward(dy.view()); }),
                   {"batch 8", "batch 7"});
  });
}

TEST_CASE("a gradient is that of the batch in its flight, however many samples others have") {
  on_mesh({.data = 2}, [](Ranks& ranks) {
    const MeshPlace& place = ranks.place();
    Mlp model(ranks, Seed{5});
    model.reserve_flights(2);
    const auto x = [&](std::size_t samples) {
      return made<Whole>(30, {{Axis::batch, samples}, {Axis::feature, 6}}, place);
    };
    const auto dy = [&](std::size_t samples) {
      return made<Mlp::output_layout>(31, {{Axis::batch, samples}, {Axis::feature, 5}}, place);
    };
    const auto six = x(6), four = x(4);
    model.forward(six.view(), {.flight = Flight{0}});
    model.forward(four.view(), {.flight = Flight{1}});
    check_mentions(message_of<shape_error>([&] { model.backward(dy(4).view(), Flight{0}); }),
                   {"[batch 4", "the output was [batch 6"});
    model.backward(dy(6).view(), Flight{0});
    model.backward(dy(4).view(), Flight{1});
  });
}

TEST_CASE("ranks along data that make unlike models are told in the first step") {
  const std::string said = message_of<collective_error>([] {
    on_mesh({.data = 2, .tensor = 2}, [](Ranks& ranks) {
      const MeshPlace& place = ranks.place();
      Mlp model(ranks, Seed{5U + static_cast<unsigned>(place[data].rank)});
      Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
      train_step(model, made<Whole>(30, rows, place).view(), labels(7, 0, place).view(),
                 CrossEntropy{}, optimizer);
    });
  });
  check_mentions(said, {"seed"});
}

namespace {

/// The error of f(ranks), which all ranks are told alike; "" if there is none.
template <class F>
std::string told_on_mesh(const mesh& sizes, F f) {
  std::vector<std::string> said(static_cast<std::size_t>(sizes.size()));
  on_mesh(sizes, [&](Ranks& ranks) {
    said[static_cast<std::size_t>(ranks.rank())] = message_of<collective_error>([&] { f(ranks); });
  });
  for (const std::string& text : said) CHECK(text == said[0]);
  return said[0];
}

}  // namespace

TEST_CASE(
    "a parameter that has drifted is told on every rank, with the ranks that hold it otherwise") {
  const auto told = [](const mesh& sizes, int rank, std::string_view changed,
                       Keep keep = Keep::whole) {
    return told_on_mesh(sizes, [&](Ranks& ranks) {
      Mlp model(ranks, Seed{5}, {.keep = keep});
      clear_calls(ranks);
      compare_held(model);
      if (sizes.replica > 1) CHECK(ranks.along(data).log().empty());  // nothing is gathered
      model.visit_stored([&](auto& parameter) {
        if (ranks.rank() != rank || parameter.name != changed) return;
        REQUIRE(parameter.value.size() > 0);
        parameter.value.data()[0] += 1e-9;
      });
      compare_held(model);
    });
  };
  const std::string alike = "must hold alike: ";
  check_mentions(told({.data = 3, .tensor = 2}, 3, "0.weight"), {alike + "0.weight of rank 3. "});
  check_mentions(told({.replica = 3, .tensor = 2}, 4, "3.weight"),
                 {alike + "3.weight of rank 4. "});
  check_mentions(told({.data = 2, .tensor = 2}, 3, "0.bias"), {alike + "0.bias of ranks 1, 3. "});
  check_mentions(told({.data = 2, .tensor = 2}, 2, "3.bias"), {alike + "3.bias of rank 2. "});
  for (const Keep keep : {Keep::gradients_over_data, Keep::all_over_data})
    check_mentions(told({.replica = 3, .data = 2}, 2, "0.weight", keep),
                   {alike + "0.weight of rank 2. "});
  check_mentions(told({.data = 2, .tensor = 3}, 1, "3.bias", Keep::all_over_data),
                 {alike + "3.bias of rank 1. "});  // in the share of ranks 0, 1 and 2
}

TEST_CASE("moments that have drifted are told, also where ranks keep shares of them") {
  const auto told = [](const mesh& sizes, Keep keep, int rank) {
    return told_on_mesh(sizes, [&](Ranks& ranks) {
      Mlp model(ranks, Seed{5});
      Optimizer optimizer(model, Sgd{.learning_rate = 0.1, .momentum = 0.9}, keep);
      compare_held(model, optimizer);
      model.visit_stored([&](auto& parameter) {
        if (ranks.rank() == rank && parameter.name == "0.weight")
          optimizer.moments_of(parameter.slot)[0] += 1e-9;
      });
      compare_held(model);
      compare_held(model, optimizer);
    });
  };
  const std::string of = "must hold alike: the moments of 0.weight of ";
  check_mentions(told({.data = 3, .tensor = 2}, Keep::whole, 3), {of + "rank 3. "});
  check_mentions(told({.replica = 3, .data = 2}, Keep::state_over_data, 2), {of + "rank 2. "});
  check_mentions(told({.replica = 2, .data = 2}, Keep::state_over_data, 0), {of + "ranks 0, 2. "});
  CHECK(told({.data = 2, .tensor = 2}, Keep::state_over_data, 0).empty());  // no rank has the same
}

TEST_CASE("ranks of one tensor group that are given unlike slices are told in the first step") {
  const auto told = [](bool other_input, bool other_labels, const MeshPlace& where) {
    return message_of<collective_error>([&] {
      on_mesh({.data = 2, .tensor = 2}, [&](Ranks& ranks) {
        const MeshPlace& place = ranks.place();
        Mlp model(ranks, Seed{5});
        Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
        auto x = made<Whole>(30, rows, place);
        Tensor<std::int32_t, Whole> target({{Axis::batch, 7}}, place);
        if (other_input && place == where) x[0] += 1;
        if (other_labels && place == where) target[0] = 1;
        train_step(model, x.view(), target.view(), CrossEntropy{}, optimizer);
      });
    });
  };
  const MeshPlace last = place_in({.data = 2, .tensor = 2}, 3);
  check_mentions(told(true, false, last), {"rank 3 was given other inputs than rank 2"});
  check_mentions(told(false, true, last), {"rank 3 was given other targets than rank 2"});
  const std::string of_all = message_of<collective_error>([] {
    on_mesh({.data = 2, .tensor = 2}, [](Ranks& ranks) {
      Mlp model(ranks, Seed{5});
      Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
      train_step(model, made<Whole>(30, rows, ranks.place()).view(),
                 labels(7, ranks.place()[data].rank, ranks.place()).view(), CrossEntropy{},
                 optimizer);
    });
  });
  check_mentions(of_all, {"other targets than rank"});
}

TEST_CASE("what a model on a mesh cannot take is refused on every rank before it sends anything") {
  on_mesh({.context = 2, .tensor = 2}, [](Ranks& ranks) {
    check_mentions(
        message_of<shape_error>([&] { Network(Convolutional{}, ranks, Seed{1}, images); }),
        {"Convolutional: a tensor [batch 7", "name SamplesOverMesh<L, Axis::height> in the Ends"});
    check_mentions(message_of<shape_error>([&] { made<Whole>(30, rows, ranks.place()); }),
                   {"has no axis sequence, of which ranks along context would have parts",
                    "take a mesh with one rank along context"});
  });
  on_mesh({.data = 2}, [](Ranks& ranks) {
    Mlp model(ranks, Seed{5});
    const MeshPlace& place = ranks.place();
    const Shape turned{{Axis::feature, 6}, {Axis::batch, 7}};
    CHECK(testing::contains(
        message_of<shape_error>([&] { model.forward(made<Whole>(30, turned, place).view()); }),
        "its outermost axis must be batch"));
    MeshPlace other = place;
    other[data].rank = 1 - other[data].rank;
    CHECK(testing::contains(
        message_of<argument_error>([&] { model.forward(made<Whole>(30, rows, other).view()); }),
        "the input is the part of rank"));
  });
}
