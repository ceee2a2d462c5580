#pragma once
// Compares a layer on many ranks with itself on one, its messages with its plan, and its backward
// with differences of its forward. For your own layers.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/testing/many_against_one.hpp"
#include "shardwise/testing/report.hpp"
#include "shardwise/train/gradient_check.hpp"

namespace shardwise {

/// The options of `check_layer`.
struct LayerChecks {
  /// Numbers of thread ranks to run it on.
  std::vector<int> ranks = {1, 2, 3, 4, 8};
  /// The seed of parameters, inputs and masks.
  Seed seed{1};
  /// Whether many ranks and one must agree bit by bit on small integers, because all sums are
  /// exact. Set it to false for a layer that sums numbers that are not integers in an order that
  /// depends on the ranks: a linear layer after GELU, for example.
  bool exact = true;
  /// Otherwise the largest allowed difference, relative to the largest element of the tensor, or to
  /// 1/1000 if all are smaller. A sum of a few hundred doubles in another order changes by about
  /// 1e-15 for each term.
  double bound = 1e-12;
  /// The most gradients of the input and of each parameter that are compared with differences.
  std::size_t gradients = 40;
};

namespace detail {

// The most frequent cause of an error in each tensor.
inline constexpr const char* advice_for_output =
    "Does each rank add what only one may add to a Partial, or use its part where all is needed?";
inline constexpr const char* advice_for_input_gradient =
    "Are the layouts that it takes and gives true? What each rank uses for a share of its own is "
    "Replicated, and its gradient Partial.";
inline constexpr const char* advice_for_parameter =
    "Is its ParameterUse true? What each rank uses for a share of its own is stored as Invariant "
    "and used as Replicated.";
inline constexpr const char* advice_for_buffer =
    "Does each rank update it by what it holds, where all ranks' sum is needed?";

/// A model of the layer on generated data and parameters.
template <class E, class Use, class L, Communicator C>
class LayerRun {
 public:
  LayerRun(C& ranks, const L& layer, const Shape& in, Seed seed, MadeOf what)
      : model_(layer, ranks, seed, in), in_(in), seed_(seed), what_(what) {
    std::vector<std::pair<std::string, Shape>> parameters;
    model_.visit_parameters([&](auto& p) { parameters.emplace_back(p.name, p.spec.shape); });
    for (const auto& [name, shape] : parameters) model_.set(name, made<Invariant>(shape).view());
  }

  /// The rank's results of a step of two batches, a step of one batch, and an evaluation. Calls
  /// sent(part, planned) after each part of a step.
  template <class Sent>
  std::vector<NumberedValues> run(Sent sent) {
    const Plan plan = model_.plan(in_);
    sent("before the first step", collectives{});
    batch("", plan, sent);
    batch(" of a second batch", plan, sent);
    settle("", plan, sent);
    model_.next_step();
    batch(" of the next step", plan, sent);
    settle(" in the next step", plan, sent);
    const auto x = made<typename E::offered>(in_);
    note("the output in evaluation", advice_for_output, model_.evaluate(x.view()));
    return std::move(results_);
  }

  /// The gradients of a step whose first batch is always the same, and all further ones are worth
  /// nothing: the gradients of their outputs are 0.
  std::vector<NumberedValues> gradients(int batches) {
    model_.discard_step();
    results_.clear();
    const std::uint64_t before = tensors_;
    const auto x = made<typename E::offered>(in_);
    for (int i = 0; i < batches; ++i) {
      using DY = dual_t<typename E::wanted>;
      const auto y = model_.forward(x.view());
      const auto dy = i == 0 ? made<DY>(y.global()) : Tensor<double, DY>(y.global(), y.place());
      model_.backward(dy.view());
    }
    tensors_ = before;  // so that the next call is given the same numbers
    model_.settle_gradients();
    note_gradients("");
    return std::move(results_);
  }

 private:
  template <class T, Layout P>
  void note(const std::string& name, const char* advice, View<T, P> tensor) {
    results_.push_back(numbered_values(name, advice, tensor));
  }

  template <class Sent>
  void batch(const std::string& which, const Plan& plan, Sent sent) {
    const auto x = made<typename E::offered>(in_);
    const auto y = model_.forward(x.view());
    sent("forward", plan.forward);
    note("the output" + which, advice_for_output, y);
    const auto dy = made<dual_t<typename E::wanted>>(y.global());
    if constexpr (Use::input_gradient) {
      const auto dx = model_.backward(dy.view());
      note("the gradient of the input" + which, advice_for_input_gradient, dx);
    } else {
      model_.backward(dy.view());
    }
    sent("backward", plan.backward);
  }

  template <class Sent>
  void settle(const std::string& when, const Plan& plan, Sent sent) {
    model_.settle_gradients();
    sent("settling the gradients", plan.settle);
    note_gradients(when);
    model_.visit_buffers([&](auto& b) { note(b.name + when, advice_for_buffer, b.value); });
  }

  void note_gradients(const std::string& when) {
    model_.visit_parameters([&](auto& p) {
      note("the gradient of " + p.name + when, advice_for_parameter, p.gradient);
    });
  }

  template <Layout P>
  Tensor<double, P> made(const Shape& shape) {
    Tensor<double, P> tensor(shape, place_of(model_.ranks()));
    make(tensor.view(), what_, 1000 * seed_.value + ++tensors_);
    return tensor;
  }

  Model<L, Context<double, Reference, C>, E, Use> model_;
  Shape in_;
  Seed seed_;
  MadeOf what_;
  std::uint64_t tensors_ = 0;
  std::vector<NumberedValues> results_;
};

/// The checks of check_layer on one rank.
template <class E, class Use, class L, Communicator C>
class LayerChecker {
 public:
  LayerChecker(C& ranks, const L& layer, const Shape& in, const LayerChecks& checks)
      : ranks_(ranks),
        layer_(layer),
        in_(in),
        checks_(checks),
        found_(ranks, name_of<L>() + on_ranks(ranks.size()) + ", " +
                          layout_name<typename E::offered>() + " -> " +
                          layout_name<typename E::wanted>()) {}

  CheckReport run() {
    compare(MadeOf::integers);
    compare(MadeOf::reals);
    if constexpr (Use::input_gradient) compare_differences();
    agree_on_failures(ranks_, found_.report().failures);
    return std::move(found_.report());
  }

 private:
  void compare(MadeOf what) {
    SingleRank alone;
    found_.counted().clear();
    LayerRun<Ends<Invariant, Invariant>, Use, L, SingleRank> one(alone, layer_, in_, checks_.seed,
                                                                 what);
    LayerRun<E, Use, L, CountingCommunicator<C>> many(found_.counted(), layer_, in_, checks_.seed,
                                                      what);
    const auto expected = one.run([](std::string_view, const collectives&) {});
    const auto found = many.run([&](std::string_view part, const collectives& planned) {
      found_.compare_calls(part, planned);
    });
    const bool is_exact = what == MadeOf::integers && checks_.exact;
    for (std::size_t i = 0; i < found.size(); ++i) {
      found_.compare_copies(found[i]);
      found_.compare_values(expected[i], found[i], what, is_exact ? 0 : checks_.bound);
    }
    const auto of_one_batch = one.gradients(1);
    const auto of_two = one.gradients(2);
    for (std::size_t i = 0; i < of_two.size(); ++i)
      if (of_two[i].values != of_one_batch[i].values)
        found_.fail("a second batch of a step, which is worth nothing, changes " + of_two[i].name +
                    " on one rank alone. Does backward ask frame.write() whether to add?");
  }

  void compare_differences() {
    const GradientReport gradients = check_gradients<typename E::offered, typename E::wanted>(
        found_.counted(), layer_, in_, checks_.seed, checks_.gradients);
    found_.report().checked += gradients.checked;
    if (gradients.checked > 0 && !gradients.passed())
      found_.fail("its backward is not that of its forward. In double, " + gradients.where);
  }

  C& ranks_;
  const L& layer_;
  Shape in_;
  const LayerChecks& checks_;
  ManyAgainstOne<C> found_;
};

}  // namespace detail

/// Runs a layer or composition in double on generated data, forward, backward and in evaluation,
/// and compares
///
/// - output, gradient of the input, settled gradients of parameters and buffers on every rank with
///   those of one rank alone, over a step of two batches and a step of one: on small integers
///   exactly, on random numbers up to rounding;
/// - what all ranks hold alike, bit by bit on all of them;
/// - the messages of all ranks together with the layer's plan;
/// - backward with differences of forward, see `check_gradients`.
///
///     check_layer(ranks, MyLayer{}, {{Axis::batch, 5}, {Axis::feature, 6}}).require();
///
/// `Offered` and `Wanted` are the layouts of input and output; each is Invariant or Sharded. Uneven
/// extents find more errors than even ones. With `Train` for `Use` there is no gradient of the
/// input, and backward is not compared with differences. On a mesh, give it the ranks along
/// `tensor`; what a layer does with slices of a batch is not checked. A collective: every rank
/// calls it with equal arguments, and all get the failures of the first rank that has any;
/// `checked` counts a rank's own elements.
/// throws   as the layer
template <Layout Offered = Invariant, Layout Wanted = Invariant, class Use = TrainWithInputGradient,
          class L, Communicator C>
CheckReport check_layer(C& ranks, const L& layer, const Shape& in, const LayerChecks& checks = {}) {
  static_assert(detail::must_be_one_axis<C>());
  static_assert(
      (std::same_as<Offered, Invariant> ||
       ShardedLayout<Offered>)&&(std::same_as<Wanted, Invariant> || ShardedLayout<Wanted>),
      "check_layer sets and reads whole tensors or shards: Offered and Wanted must be Invariant or "
      "Sharded. What a layer takes inside is its own affair.");
  return detail::LayerChecker<Ends<Offered, Wanted>, Use, L, C>(ranks, layer, in, checks).run();
}

/// The same on threads, for each of `checks.ranks` until one fails; an exception of a rank is a
/// failure too.
///
///     check_layer(MyLayer{}, {{Axis::batch, 5}, {Axis::feature, 6}}).require();
template <Layout Offered = Invariant, Layout Wanted = Invariant, class Use = TrainWithInputGradient,
          class L>
CheckReport check_layer(const L& layer, const Shape& in, const LayerChecks& checks = {}) {
  return detail::checked_on_threads(name_of<L>(), checks.ranks, [&](ThreadCommunicator& ranks) {
    return check_layer<Offered, Wanted, Use>(ranks, layer, in, checks);
  });
}

}  // namespace shardwise
