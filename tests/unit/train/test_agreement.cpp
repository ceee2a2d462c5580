// Ranks of a model that left out a call, or were given different things: told on every rank, though
// their next calls are equal.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "shardwise/shardwise.hpp"
#include "support/filled.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::contains;
using testing::filled;
using testing::message_of;

namespace {

struct Mlp : Sequential<ColumnParallelLinear<6, 8>, Relu, RowParallelLinear<8, 6>,
                        ColumnParallelLinear<6, 8>, Relu, RowParallelLinear<8, 3>> {};
/// The same calls and sizes.
struct Other : Sequential<ColumnParallelLinear<6, 8>, Gelu, RowParallelLinear<8, 6>,
                          ColumnParallelLinear<6, 8>, Relu, RowParallelLinear<8, 3>> {};

/// Leaves out one of its calls, the `left_out`-th from 0 on.
class Skipping : public WrappedCommunicator<Skipping, ThreadCommunicator> {
  using Base = WrappedCommunicator<Skipping, ThreadCommunicator>;

 public:
  Skipping(ThreadCommunicator inner, std::optional<int> left_out = {})
      : Base(std::move(inner)), left_out_(left_out) {}
  int calls() const { return calls_; }

 private:
  friend Base;
  template <class F>
  void around(const Call&, F make) {
    if (calls_++ != left_out_) make();
  }

  std::optional<int> left_out_;
  int calls_ = 0;
};

/// What a rank is given, unless a case says otherwise.
struct Given {
  std::uint64_t seed = 1;
  double learning_rate = 0.1;
  std::uint64_t every = ModelOptions{}.compare_given_every;
  int samples = 5;
  int batches = 1;  // of a step, with as many samples each
  /// Numbers of a batch, of which a step has `batches`.
  std::function<int(int batch)> inputs = [](int batch) { return batch; };
  std::function<int(int batch)> labels = inputs;
};

template <class L, Layout Data, class C>
void train(C& ranks, int steps, const Given& given) {
  using Context = Context<double, Reference, C>;
  Model<L, Context, Ends<Data, Data>> model(ranks, Seed{given.seed},
                                            {.compare_given_every = given.every});
  Optimizer optimizer(model, Sgd{.learning_rate = given.learning_rate});
  const auto samples = static_cast<std::size_t>(given.samples);
  for (int t = 0; t < steps; ++t) {
    Step step(optimizer, static_cast<std::size_t>(given.batches) * samples, {.clip_norm = 1.0});
    for (int b = t * given.batches; b < (t + 1) * given.batches; ++b) {
      const auto x = filled<double, Data>(
          Shape{{Axis::batch, samples}, {Axis::feature, 6}}, place_of(ranks), [&](std::size_t i) {
            return static_cast<double>((i * 7 + static_cast<std::size_t>(given.inputs(b))) % 11) -
                   5;
          });
      const auto labels = filled<std::int32_t, Data>(
          Shape{{Axis::batch, samples}}, place_of(ranks), [&](std::size_t i) {
            return static_cast<std::int32_t>((i + static_cast<std::size_t>(given.labels(b))) % 3);
          });
      step.add(x.view(), labels.view(), CrossEntropy{});
    }
    step.finish();
  }
}

/// The error of f(ranks) that each of `size` ranks catches, which is the same; "" if there is none.
template <class F>
std::string told_alike(int size, F f) {
  std::vector<std::string> told(static_cast<std::size_t>(size));
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    told[static_cast<std::size_t>(ranks.rank())] = message_of<collective_error>([&] { f(ranks); });
  });
  for (const std::string& text : told) CHECK(text == told[0]);
  return told[0];
}

/// That of three ranks, of which each gets given(rank).
template <class L = Mlp, Layout Data = Invariant>
std::string told(int steps, const std::function<Given(int rank)>& given) {
  return told_alike(
      3, [&](ThreadCommunicator& ranks) { train<L, Data>(ranks, steps, given(ranks.rank())); });
}

/// The same where rank 1 gets something else.
std::string told_of_rank_1(int steps, const Given& usual, const Given& wrong) {
  return told(steps, [&](int rank) { return rank == 1 ? wrong : usual; });
}

}  // namespace

TEST_CASE("every call of a model that a rank leaves out is told, with step, layer and phase") {
  int calls = 0;  // of a step
  run_ranks(3, [&](ThreadCommunicator& threads) {
    Skipping ranks(threads);
    train<Mlp, Invariant>(ranks, 1, {});
    if (ranks.rank() == 0) calls = ranks.calls();
  });
  REQUIRE(calls >= 4);
  std::set<std::string> places;
  for (const int step : {1, 2, 20})  // steps 1 and 21 compare what was given, the others do not
    for (int left_out = (step - 1) * calls; left_out < step * calls; ++left_out) {
      CAPTURE(left_out);
      run_ranks(3, [&](ThreadCommunicator& threads) {
        Skipping ranks(threads, threads.rank() == 1 ? std::optional(left_out) : std::nullopt);
        const std::string what =
            message_of<collective_error>([&] { train<Mlp, Invariant>(ranks, step + 1, {}); });
        CAPTURE(what);
        const auto begin = what.find("it left out ");
        REQUIRE(begin != std::string::npos);
        check_mentions(what,
                       {"rank 1 is at step ", ", the others at step " + std::to_string(step)});
        CHECK(contains(what, "rank 1 is at step " + std::to_string(step + 1)) ==
              (left_out == step * calls - 1));
        if (ranks.rank() == 0) places.insert(what.substr(begin, what.find(';') - begin));
      });
    }
  CHECK(places.size() == static_cast<std::size_t>(calls));
  CHECK(places.count("it left out all_reduce(sum, float64, 15 elements) of forward") == 1);
  CHECK(places.count("it left out 3: ColumnParallelLinear<6, 8>, backward") == 1);
}

TEST_CASE("a call that a rank leaves out at the end of a batch is told with the batch") {
  const Given two{.batches = 2};
  run_ranks(3, [&](ThreadCommunicator& threads) {
    int before = 0;  // the calls of a batch: all but the norm's, by half
    {
      Skipping ranks(threads);
      train<Mlp, Invariant>(ranks, 1, two);
      before = (ranks.calls() - 1) / 2;
    }
    Skipping ranks(threads, threads.rank() == 1 ? std::optional(before - 1) : std::nullopt);
    check_mentions(message_of<collective_error>([&] { train<Mlp, Invariant>(ranks, 1, two); }),
                   {"rank 1 is at step 1, batch 1, the others at step 1, batch 0: it left out "
                    "3: ColumnParallelLinear<6, 8>, backward"});
  });
}

TEST_CASE("a call of a rank beside its model is told, also where ranks compare what was given") {
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    std::string what = "no error";
    try {
      if (ranks.rank() == 0) ranks.barrier();
      train<Mlp, Invariant>(ranks, 1, {});
    } catch (const collective_error& e) {
      what = e.what();
    }
    CAPTURE(what);
    CHECK(contains(what,
                   ": rank 0 is at no step, the others at step 1: rank 0 made once more barrier(), "
                   "or left out 3: ColumnParallelLinear<6, 8>, forward; rank 0 called barrier(); "
                   "ranks 1, 2 called all_reduce(sum, float64, 30 elements); all must"));
  });
}

TEST_CASE("ranks that compare what they were given in other steps are told so") {
  Given never;
  never.every = 0;
  CHECK(contains(told_of_rank_1(1, {}, never),
                 ": in step 1, only ranks 0, 2 compare what they were given, and not rank 1: "
                 "give ModelOptions::compare_given_every the same number on all ranks"));
}

TEST_CASE("a target that is a Tensor or has static extents is compared, and no memory is not") {
  run_ranks(2, [](ThreadCommunicator& ranks) {
    Model<Mlp, Context<double, Reference, ThreadCommunicator>, Ends<Invariant, Invariant>> model(
        ranks, Seed{1});
    const Shape rows{{Axis::batch, 5}};
    const auto labels = filled<std::int32_t, Invariant>(
        rows, place_of(ranks), [](std::size_t i) { return static_cast<std::int32_t>(i % 3); });
    const View<const std::int32_t, Invariant, Extents<Dim{Axis::batch, 5}>> known(
        labels.data(), rows, place_of(ranks));
    const auto of = [&](const auto& given) { return detail::fingerprint_of(model.run(), given); };
    CHECK(of(labels.view()) != 0);
    CHECK(of(labels) == of(labels.view()));
    CHECK(of(known) == of(labels.view()));
    const View<const std::int32_t, Invariant> none;
    CHECK(of(none) == 0);
    const Tensor<double, Invariant> x(Shape{{Axis::batch, 5}, {Axis::feature, 6}}, place_of(ranks));
    Optimizer optimizer(model, Sgd{});
    CHECK_THROWS_AS(train_step(model, x.view(), none, CrossEntropy{}, optimizer), shape_error);
    CHECK_THROWS_AS(train_step(model, {}, labels.view(), CrossEntropy{}, optimizer), shape_error);
  });
}

TEST_CASE("another seed, model, input, label or rate of a rank is told at the first step") {
  const auto end = "; found at step 1. All would train on";
  Given other;
  CHECK(told_of_rank_1(1, {}, other) == "");
  for (const std::uint64_t seed : {std::uint64_t{2}, (std::uint64_t{1} << 32) + 1}) {
    other.seed = seed;
    CHECK(contains(told_of_rank_1(1, {}, other),
                   std::string(": rank 1 was given another seed than ranks 0, 2") + end));
  }
  other.seed = 1;
  other.learning_rate = 0.2;
  CHECK(contains(told_of_rank_1(1, {}, other),
                 std::string(": learning_rate is 0.1 on ranks 0, 2, and 0.2 on rank 1") + end));
  other.learning_rate = 0.1;
  other.labels = [](int step) { return step + 1; };
  CHECK(contains(told_of_rank_1(1, {}, other),
                 std::string(": rank 1 was given other targets than ranks 0, 2") + end));
  other.inputs = other.labels;
  const std::string both = told_of_rank_1(1, {}, other);
  check_mentions(both, {"rank 1 was given other inputs than ranks 0, 2",
                        std::string("; rank 1 was given other targets than ranks 0, 2") + end});
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    const std::string of_model = message_of<collective_error>([&] {
      ranks.rank() == 1 ? train<Other, Invariant>(ranks, 1, {})
                        : train<Mlp, Invariant>(ranks, 1, {});
    });
    check_mentions(of_model, {": rank 1 was given a model of another type or other sizes than "
                              "ranks 0, 2; found at step 1. All would train on"});
  });
}

namespace {

/// The error of three ranks that train with these; rank 1 has the second ones.
template <class Rule, class Loss>
std::string told_of_options(const Rule& rule, const Rule& rule_of_1, const Loss& loss,
                            const Loss& loss_of_1, std::optional<double> clip_norm = {},
                            std::optional<double> clip_norm_of_1 = {}) {
  return told_alike(3, [&](ThreadCommunicator& ranks) {
    const bool is_1 = ranks.rank() == 1;
    Model<Mlp, Context<double, Reference, ThreadCommunicator>> model(ranks, Seed{1});
    Optimizer optimizer(model, is_1 ? rule_of_1 : rule);
    const auto x = filled<double, Invariant>(Shape{{Axis::batch, 4}, {Axis::feature, 6}},
                                             place_of(ranks), [](std::size_t i) { return i % 5; });
    const auto train_on = [&](const auto& target) {
      for (int step = 0; step < 2; ++step)
        train_step(model, x.view(), target.view(), is_1 ? loss_of_1 : loss, optimizer,
                   {.clip_norm = is_1 ? clip_norm_of_1 : clip_norm});
    };
    if constexpr (
        requires { loss.label_smoothing; } || requires { loss.class_weights; })
      train_on(Tensor<std::int32_t, Invariant>(Shape{{Axis::batch, 4}}, place_of(ranks)));
    else
      train_on(
          Tensor<double, Invariant>(Shape{{Axis::batch, 4}, {Axis::feature, 3}}, place_of(ranks)));
  });
}

/// Whether it names each option in which the two rules, or losses, differ.
template <class O>
void check_each_option(const O& usual, std::initializer_list<std::pair<O, const char*>> others) {
  for (const std::pair<O, const char*>& one : others) {
    const O& other = one.first;
    const char* words = one.second;
    CAPTURE(words);
    if constexpr (UpdateRule<O>)
      CHECK(contains(told_of_options(usual, other, CrossEntropy{}, CrossEntropy{}), words));
    else
      CHECK(contains(told_of_options(Sgd{}, Sgd{}, usual, other), words));
  }
}

/// A user's rule, which does not tell its options.
struct Scaled {
  double learning_rate = 0.1;
  double factor = 1;
  void check() const {}
  static constexpr std::size_t moments() { return 0; }
  template <class A>
  auto update(std::uint64_t) const {
    return [by = static_cast<A>(learning_rate * factor)](A value, A gradient, A*) {
      return value - by * gradient;
    };
  }
};

}  // namespace

TEST_CASE("another option of an update rule, of a step or of a loss is told, by name and value") {
  check_each_option(Sgd{.momentum = 0.5},
                    {{{.momentum = 0.25}, "momentum is 0.5 on ranks 0, 2, and 0.25 on rank 1"},
                     {{.momentum = 0.5, .nesterov = true}, "nesterov is false on ranks 0, 2, and"},
                     {{.momentum = 0.5, .weight_decay = 0.1}, "weight_decay is 0 on ranks 0, 2"},
                     {{.momentum = 0.5, .dampening = 0.1}, "dampening is 0 on ranks 0, 2, and 0.1"},
                     {{.momentum = 0.5, .decay = Decay::chosen}, "decay is all on ranks 0, 2"}});
  check_each_option(Adam{}, {{{.beta1 = 0.8}, "beta1 is 0.9 on ranks 0, 2, and 0.8 on rank 1"},
                             {{.epsilon = 1e-7}, "epsilon is 1e-08 on ranks 0, 2, and 1e-07"}});
  check_each_option(AdamW{}, {{{.beta2 = 0.99}, "beta2 is 0.999 on ranks 0, 2, and 0.99"},
                              {{.weight_decay = 0}, "weight_decay is 0.01 on ranks 0, 2, and 0 on"},
                              {{.decay = Decay::chosen}, "and chosen on rank 1; found at step 1"}});
  check_each_option(Lion{}, {{{.beta1 = 0.8}, "beta1 is 0.9"}, {{.beta2 = 0.9}, "beta2 is 0.99"}});
  check_each_option(RmsProp{}, {{{.alpha = 0.9}, "alpha is 0.99"},
                                {{.momentum = 0.9}, "momentum is 0 on"},
                                {{.centered = true}, "centered is false on ranks 0, 2, and true"}});
  check_each_option(Scaled{}, {{{.factor = 2}, "third_update_of_1 is "}});
  check_each_option(CrossEntropy{}, {{{.label_smoothing = 0.1}, "label_smoothing is 0 on ranks"},
                                     {{.reduction = LossReduction::sum}, "reduction is mean on"}});
  const char* const other_sum = "reduction is mean on ranks 0, 2, and sum on rank 1";
  const auto sum = LossReduction::sum;
  check_each_option(MaskedCrossEntropy{}, {{{.label_smoothing = 0.1}, "label_smoothing is 0 on"},
                                           {{.ignored = 2}, "ignored is -100 on ranks 0, 2, and 2"},
                                           {{.counted = 3}, "counted is "},
                                           {{.reduction = sum}, other_sum}});
  check_each_option(NegativeLogLikelihood{}, {{{.ignored = 2}, "ignored is "},
                                              {{.counted = 3}, "counted is "},
                                              {{.reduction = sum}, other_sum}});
  check_each_option(MeanSquaredError{}, {{{.reduction = sum}, other_sum}});
  check_each_option(BinaryCrossEntropy{}, {{{.reduction = sum}, other_sum}});
  check_each_option(Huber{}, {{{.delta = 2}, "delta is 1 on ranks 0, 2, and 2 on rank 1"},
                              {{.reduction = sum}, other_sum}});
  check_each_option(SmoothL1{}, {{{.beta = 2}, "beta is 1 on ranks 0, 2, and 2 on rank 1"},
                                 {{.reduction = sum}, other_sum}});
  const auto of_clip = [](std::optional<double> usual, std::optional<double> other) {
    return told_of_options(Sgd{}, Sgd{}, CrossEntropy{}, CrossEntropy{}, usual, other);
  };
  CHECK(of_clip(1.0, 1.0).empty());
  CHECK(contains(of_clip(1.0, 0.5), ": clip_norm is 1 on ranks 0, 2, and 0.5 on rank 1; found"));
  CHECK(contains(of_clip(1.0, {}), ": clip_norm is 1 on ranks 0, 2, and not given on rank 1; no"));
}

TEST_CASE("an option of a model that differs on a mesh is told at the first step") {
  run_mesh({.data = 2}, [](MeshRanks<ThreadCommunicator>& ranks) {
    const std::string told = message_of<collective_error>([&] {
      Model<Mlp, Context<double, Reference, MeshRanks<ThreadCommunicator>>> model(
          ranks, Seed{1}, {.sums_meanwhile = ranks.rank() == 1});
      Optimizer optimizer(model, Sgd{});
      const Tensor<double, SamplesOverMesh<Invariant>> x({{Axis::batch, 4}, {Axis::feature, 6}},
                                                         ranks.place());
      const Tensor<double, SamplesOverMesh<Invariant>> y({{Axis::batch, 4}, {Axis::feature, 3}},
                                                         ranks.place());
      train_step(model, x.view(), y.view(), MeanSquaredError{}, optimizer);
    });
    CHECK(contains(told, "sums_meanwhile is false on rank 0, and true on rank 1; found at step 1"));
  });
}

TEST_CASE("other weights of classes are told, a long list by its size, and those of each loss") {
  const std::array<double, 3> usual{1, 2, 0.5}, other{1, 0, 0.5};
  const auto in = [](const auto& numbers) {
    return ClassWeights(numbers.data(), Shape{{Axis::feature, numbers.size()}}, Place{});
  };
  const char* const what = ": class_weights is {1, 2, 0.5} on ranks 0, 2, and {1, 0, 0.5} on rank";
  check_each_option(MaskedCrossEntropy{.class_weights = in(usual)},
                    {{{.class_weights = in(other)}, what},
                     {{}, "class_weights is {1, 2, 0.5} on ranks 0, 2, and not given on rank 1"}});
  check_each_option(NegativeLogLikelihood{.class_weights = in(usual)},
                    {{{.class_weights = in(other)}, what}});
  check_each_option(
      BinaryCrossEntropy{.positive_weights = in(usual)},
      {{{.positive_weights = in(other)}, "positive_weights is {1, 2, 0.5} on ranks"}});
  using Halved = Weighted<BinaryCrossEntropy>;
  check_each_option(
      Halved{{.positive_weights = in(usual)}, 0.5},
      {{{{.positive_weights = in(other)}, 0.5}, "positive_weights is {1, 2, 0.5} on"},
       {{{.positive_weights = in(usual)}, 0.25}, "weight is 0.5 on ranks 0, 2, and"}});

  SingleRank one;
  Model<Mlp, Context<double, Reference, SingleRank>> model(one, Seed{1});
  const auto told = [&](const auto& loss, const auto& of_1) {
    detail::GrowingList<const detail::OptionsText*> texts;
    std::array<detail::GivenOptions, 2> options;
    detail::add_loss(options[0], model.run(), loss);
    detail::add_loss(options[1], model.run(), of_1);
    CHECK(options[0].hash() != options[1].hash());
    const std::array both{detail::OptionsText(options[0]), detail::OptionsText(options[1])};
    for (const auto& one_of : both) texts.add(&one_of);
    return detail::text_of_unlike(texts, std::array{0, 1});
  };
  std::vector<double> many(1000, 1), others(many), ten(10, 0.5);
  others[999] = 2;
  CHECK(told(MaskedCrossEntropy{.class_weights = in(many)},
             MaskedCrossEntropy{.class_weights = in(others)}) ==
        "class_weights is 1000 numbers on rank 0, and other ones on rank 1");
  // Alike in the second loss: that numbers are kept to be shown in one place does not count.
  const MaskedCrossEntropy without, with{.class_weights = in(ten)};
  const std::string first = "losses[0].class_weights is not given on rank 0, and {0.5, 0.5, ";
  const std::string of_one = told(std::tuple{without, with}, std::tuple{with, with});
  CHECK(of_one.starts_with(first));
  CHECK_FALSE(contains(of_one, "losses[1]"));
  CHECK_FALSE(contains(
      told(std::tuple{without, with, with, with, with}, std::tuple{with, with, with, with, with}),
      "losses[4]"));
  CHECK(told(std::tuple{CrossEntropy{}, Weighted{CrossEntropy{}, 1}},
             std::tuple{CrossEntropy{}, Weighted{CrossEntropy{.label_smoothing = 0.5}, 2}}) ==
        "losses[1].weight is 1 on rank 0, and 2 on rank 1; losses[1].label_smoothing is 0 on rank "
        "0, and 0.5 on rank 1");
}

TEST_CASE("a step that a rank leaves out is told within the steps between two comparisons") {
  Given skips;
  skips.inputs = skips.labels = [](int step) { return step < 10 ? step : step + 1; };
  Given usual;
  CHECK(contains(told_of_rank_1(30, usual, skips), "found at step 21."));
  CHECK(told_of_rank_1(20, usual, skips) == "");
  usual.every = skips.every = 1;
  CHECK(contains(told_of_rank_1(30, usual, skips), "found at step 11."));
  usual.every = skips.every = 4;
  CHECK(contains(told_of_rank_1(30, usual, skips), "found at step 13."));
  usual.every = skips.every = 0;
  CHECK(told_of_rank_1(30, usual, skips) == "");
}

TEST_CASE("a rank whose parameter has drifted is told with the parameter, on every rank") {
  struct Normed : Sequential<Mlp, LayerNorm<3>> {};
  /// What ranks are told if `change(model)` runs on rank 1.
  const auto told = [](int size, auto change) {
    return told_alike(size, [&](ThreadCommunicator& ranks) {
      Model<Normed, Context<float, Reference, ThreadCommunicator>> model(ranks, Seed{1});
      compare_held(model);
      if (ranks.rank() == 1) model.visit_parameters(change);
      compare_held(model);
    });
  };
  const auto change = [&](const std::string& name) {
    return [=](auto& parameter) {
      if (parameter.name == name && parameter.value.size() > 0)
        parameter.value.data()[parameter.value.size() - 1] += 1e-6F;
    };
  };
  CHECK(contains(
      told(3, change("0.2.bias")),
      "before step 1 ranks hold other numbers of what they must hold alike: "
      "0.2.bias of rank 1. Their results are wrong from now on: load the last checkpoint"));
  CHECK(contains(told(2, change("1.weight")), "alike: 1.weight of ranks 0, 1. "));
  CHECK(told(3, change("0.0.weight")) == "");  // each rank has a shard of its own
  const auto change_all = [](auto& parameter) {
    if (parameter.value.size() > 0) parameter.value.data()[0] += 1;
  };
  CHECK(contains(told(8, change_all),
                 "alike: 0.2.bias of rank 1; 0.5.bias of rank 1; 1.weight of rank 1; 1.bias of "
                 "rank 1. "));
  const std::string of_many = told_alike(3, [&](ThreadCommunicator& ranks) {
    Model<Normed, Context<float, Reference, ThreadCommunicator>> model(ranks, Seed{1});
    if (ranks.rank() == 1) model.visit_parameters(change_all);
    detail::HeldAlike held = detail::held_alike(model);
    for (std::size_t i = 0; held.names.size() < 12; ++i) {
      held.names.add(held.names[i]);
      held.marks.add(held.marks[i]);
    }
    detail::require_alike(model, held);
  });
  CHECK(contains(of_many, " of rank 1 and 4 more. "));
}

TEST_CASE("a rank whose moments have drifted is told with the parameter, on every rank") {
  const std::string told = told_alike(3, [](ThreadCommunicator& ranks) {
    Model<Mlp, Context<float, Reference, ThreadCommunicator>> model(ranks, Seed{1});
    Optimizer optimizer(model, Adam{});
    model.visit_parameters([&](auto& parameter) {
      if (ranks.rank() == 1 && parameter.name == "2.bias")
        optimizer.moments_of(parameter.slot)[2 * parameter.value.size() - 1] = 1e-6F;
    });
    compare_held(model);
    compare_held(model, optimizer);
  });
  check_mentions(told, {"must hold alike: the moments of 2.bias of rank 1. Their results"});
}

TEST_CASE("split inputs and labels differ by right, in a smaller last batch too") {
  for (const int samples : {6, 5, 1})
    CHECK(told<Mlp, Sharded<Axis::batch>>(1, [&](int rank) {
            Given own;
            own.samples = samples;
            own.inputs = own.labels = [=](int step) { return 100 * rank + step; };
            return own;
          }) == "");
  Given own;
  own.seed = 2;
  CHECK(contains(
      told<Mlp, Sharded<Axis::batch>>(1, [&](int rank) { return rank == 2 ? own : Given{}; }),
      ": rank 2 was given another seed than ranks 0, 1"));
}

TEST_CASE("the fingerprint of elements changes with any bit, and with their order") {
  const auto check = []<class T>(T) {
    std::vector<T> data(37);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<T>(i % 2 == 0 ? 0 : 1);
    const auto of = [](const std::vector<T>& some) {
      return detail::lane_reduce(some.size(), std::uint32_t{0}, detail::BitsAt<T>{some.data()},
                                 detail::Plus{});
    };
    std::set<std::uint32_t> seen{of(data)};
    for (std::size_t i = 0; i < data.size(); ++i)
      for (std::size_t bit = 0; bit < 8 * sizeof(T); ++bit) {
        auto other = data;
        reinterpret_cast<unsigned char*>(&other[i])[bit / 8] ^=
            static_cast<unsigned char>(1U << bit % 8);
        seen.insert(of(other));
      }
    std::vector<T> swapped = data;
    for (std::size_t i = 0; i < data.size(); ++i) swapped[i] = static_cast<T>(i % 2 == 0 ? 1 : 0);
    seen.insert(of(swapped));
    std::swap(data[3], data[4]);
    seen.insert(of(data));
    CHECK(seen.size() == 37 * 8 * sizeof(T) + 3);
  };
  check(float{});
  check(double{});
  check(bf16{});
  check(fp16{});
  check(std::int32_t{});
  check(std::int64_t{});
  check(std::uint8_t{});
}
