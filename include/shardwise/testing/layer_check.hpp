#pragma once
// Compares a layer on many ranks with itself on one, its messages with its plan, and its backward
// with differences of its forward. For your own layers.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/sentence.hpp"
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
inline constexpr const char* advice_for_repetition =
    " on one rank alone is another one when the same step runs again. Do its random numbers come "
    "from frame.random(), and does visit_buffers name all that it keeps from step to step?";
inline constexpr const char* advice_for_second_batch =
    " on one rank alone. Does backward ask frame.write() whether to add?";
inline constexpr const char* advice_for_memory =
    " on one rank alone depends on what its memory held before. Does the layer assign each of its "
    "elements, without adding to it and without leaving one out?";
inline constexpr const char* advice_for_parameter =
    "Is its ParameterUse true? What each rank uses for a share of its own is stored as Invariant "
    "and used as Replicated.";
inline constexpr const char* advice_for_buffer =
    "Does each rank update it by what it holds, where all ranks' sum is needed?";

/// Writes a number over all memory that the pool lends next for so many bytes.
inline void write_over_free(Pool& pool, std::size_t bytes, double by) {
  const std::size_t reserved = pool.reserved();
  std::vector<Buffer> lent;
  do {
    lent.push_back(pool.take(bytes));
    std::fill_n(static_cast<double*>(lent.back().data()), bytes / sizeof(double), by);
  } while (pool.reserved() == reserved);
}

/// A model of the layer on generated data, parameters and buffers.
template <class E, class Use, class L, Communicator C>
class LayerRun {
  using M = Model<L, Context<double, Reference, C>, E, Use>;

 public:
  LayerRun(C& ranks, const L& layer, const Shape& in, Seed seed, MadeOf what)
      : model_(layer, ranks, seed, in), in_(in), seed_(seed), what_(what) {
    model_.visit_parameters([&](auto& p) { make(p.value); });
    model_.values_changed();
    // Buffers differ from what they begin as, often 0 or 1; a variance, which begins at 1, stays
    // above 0.
    model_.visit_buffers([&](auto& b) {
      for_each_made(b.value, what_, next(), [](auto& element, double number) {
        element += static_cast<std::decay_t<decltype(element)>>(number / 4);
      });
    });
    buffers_ = KeptBuffers(model_);
  }

  /// The rank's results of a step of two batches, a step of one batch, and an evaluation. Calls
  /// sent(part, planned) after each part of a step.
  template <class Sent>
  std::vector<NumberedValues> run(Sent sent) {
    const Plan plan = model_.plan(in_);
    sent("before the first step", CollectiveList{});
    batch("", plan, sent);
    batch(" of a second batch", plan, sent);
    settle("", plan, sent);
    model_.next_step();
    batch(" of the next step", plan, sent);
    settle(" in the next step", plan, sent);
    const auto x = made<typename M::input_layout>(in_);
    note("the output in evaluation", advice_for_output, model_.evaluate(x.view()));
    return std::move(results_);
  }

  /// On one rank, the results of a step that always begins with the same batch; `more` batches
  /// follow that are worth nothing, since the gradients of their outputs are 0. Memory for outputs
  /// and gradients of inputs holds this number before it is lent.
  std::vector<NumberedValues> same_step(int more, double in_memory) {
    model_.discard_step();
    buffers_.put_back(model_);
    results_.clear();
    const std::uint64_t before = tensors_;
    const auto prepare = [&](std::string_view, const CollectiveList&) {
      for (const Shape& shape : {in_, model_.layers().output_shape(in_)})
        write_over_free(model_.run().pool, shape.elements() * sizeof(double), in_memory);
    };
    prepare("forward", {});
    batch("", model_.plan(in_), prepare);
    for (const auto x = made<typename M::input_layout>(in_); more > 0; --more) {
      const auto y = model_.forward(x.view());
      model_.backward(
          Tensor<double, dual_t<typename M::output_layout>>(y.global(), y.place()).view());
    }
    tensors_ = before;  // so that the next call is given the same numbers
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
    const auto x = made<typename M::input_layout>(in_);
    const auto y = model_.forward(x.view());
    sent("forward", plan.forward);
    note("the output" + which, advice_for_output, y);
    const auto dy = made<dual_t<typename M::output_layout>>(y.global());
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
    Tensor<double, P> tensor(shape, model_.run().place_at_ends());
    make(tensor.view());
    return tensor;
  }

  template <Layout P>
  void make(View<double, P> tensor) {
    for_each_made(tensor, what_, next(), [](double& element, double number) { element = number; });
  }

  /// The seed of the next tensor.
  std::uint64_t next() { return 1000 * seed_.value + ++tensors_; }

  M model_;
  Shape in_;
  Seed seed_;
  MadeOf what_;
  std::uint64_t tensors_ = 0;
  KeptBuffers buffers_;
  std::vector<NumberedValues> results_;
};

/// The checks of check_layer on one rank. `Counted` are the same ranks, on one axis or on a mesh.
template <class E, class Use, class L, Communicator C, Communicator Counted>
class LayerChecker {
 public:
  LayerChecker(C& ranks, Counted counted, const std::string& on, const L& layer, const Shape& in,
               const LayerChecks& checks)
      : ranks_(ranks),
        layer_(layer),
        in_(in),
        checks_(checks),
        found_(ranks, std::move(counted),
               name_of<L>() + on + ", " + layout_name<typename E::offered>() + " -> " +
                   layout_name<typename E::wanted>()) {}

  CheckReport run() {
    compare_steps_alone();
    agree_on_failures(ranks_, found_.report().failures);
    if (found_.report().failures.empty()) {  // else the others would tell of it in other words
      compare(MadeOf::integers);
      compare(MadeOf::reals);
      if constexpr (!MeshCommunicator<Counted>) compare_differences();
      agree_on_failures(ranks_, found_.report().failures);
    }
    return std::move(found_.report());
  }

 private:
  using Alone = LayerRun<Ends<Invariant, Invariant>, Use, L, SingleRank>;

  /// What must be true on one rank alone, without any differences.
  void compare_steps_alone() {
    SingleRank rank;
    Alone one(rank, layer_, in_, checks_.seed, MadeOf::reals);
    const auto of_one_batch = one.same_step(0, 3.0);
    const auto of_two = one.same_step(1, 3.0);
    const auto in_other_memory = one.same_step(0, 99.0);
    const std::size_t outputs = Use::input_gradient ? 2 : 1;  // which are before the gradients
    for (std::size_t i = 0; i < of_two.size(); ++i) {
      const auto& [name, advice, layout, elements, values] = of_one_batch[i];
      found_.report().checked += 2 * values.size();
      if (of_two[i].values != values)
        found_.fail(i < outputs ? name + advice_for_repetition
                                : "a second batch of a step, which is worth nothing, changes " +
                                      name + advice_for_second_batch);
      else if (in_other_memory[i].values != values)
        found_.fail(name + advice_for_memory);
    }
  }

  void compare(MadeOf what) {
    SingleRank alone;
    found_.forget_calls();
    Alone one(alone, layer_, in_, checks_.seed, what);
    LayerRun<E, Use, L, Counted> many(found_.counted(), layer_, in_, checks_.seed, what);
    const auto expected = one.run([](std::string_view, const CollectiveList&) {});
    const auto found = many.run([&](std::string_view part, const CollectiveList& planned) {
      found_.compare_calls(part, planned);
    });
    const bool is_exact = what == MadeOf::integers && checks_.exact;
    for (std::size_t i = 0; i < found.size(); ++i) {
      found_.compare_copies(found[i]);
      found_.compare_values(expected[i], found[i], what, is_exact ? 0 : checks_.bound,
                            checks_.bound);
    }
  }

  void compare_differences() {
    const GradientReport gradients = check_gradients<typename E::offered, typename E::wanted, Use>(
        found_.counted(), layer_, in_, checks_.seed, checks_.gradients);
    found_.report().checked += gradients.checked;
    if (gradients.checked > 0 && !gradients.passed())
      found_.fail("its backward is not that of its forward. In double, " + gradients.where);
  }

  C& ranks_;
  const L& layer_;
  Shape in_;
  const LayerChecks& checks_;
  ManyAgainstOne<C, Counted> found_;
};

/// Whether check_layer can set and read tensors in these layouts.
template <Layout Offered, Layout Wanted>
consteval bool must_be_set_and_read() {
  using Taken = along_t<Offered, MeshAxis::tensor>;
  using Given = along_t<Wanted, MeshAxis::tensor>;
  static_assert(
      (std::same_as<Taken, Invariant> || ShardedLayout<Taken>)&&(std::same_as<Given, Invariant> ||
                                                                 ShardedLayout<Given>),
      "check_layer sets and reads whole tensors or shards: Offered and Wanted must be Invariant or "
      "Sharded. What a layer takes inside is its own affair.");
  return true;
}

}  // namespace detail

/// Runs a layer or composition in double on generated data, parameters and buffers, forward,
/// backward and in evaluation, and compares
///
/// - on one rank alone, a step with the same step again, in memory that held other numbers, and
///   before a second batch whose gradients are 0; if one of these differs, nothing more is
///   compared;
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
/// input. Parameters are the integers -2, -1, 1 and 2, or random numbers in [-1, 1), and in the
/// last comparison differ from their initial values by up to 1/2, as buffers always do. A
/// collective: every rank calls it with equal arguments, and all get the failures of the first rank
/// that has any; `checked` counts a rank's own elements.
/// throws   as the layer
template <Layout Offered = Invariant, Layout Wanted = Invariant, class Use = TrainWithInputGradient,
          class L, Communicator C>
CheckReport check_layer(C& ranks, const L& layer, const Shape& in, const LayerChecks& checks = {}) {
  static_assert(detail::must_be_one_axis<C>());
  static_assert(detail::must_be_set_and_read<Offered, Wanted>());
  using Counted = CountingCommunicator<C>;
  return detail::LayerChecker<Ends<Offered, Wanted>, Use, L, C, Counted>(
             ranks, Counted(ranks), detail::on_ranks(ranks.size()), layer, in, checks)
      .run();
}

/// The same on threads, for each of `checks.ranks` until one fails; an exception of a rank is a
/// failure too.
///
///     check_layer(MyLayer{}, {{Axis::batch, 5}, {Axis::feature, 6}}).require();
template <Layout Offered = Invariant, Layout Wanted = Invariant, class Use = TrainWithInputGradient,
          class L>
CheckReport check_layer(const L& layer, const Shape& in, const LayerChecks& checks = {}) {
  return detail::checked_on_threads(
      detail::name_of<L>(), checks.ranks, [&](ThreadCommunicator& ranks) {
        return check_layer<Offered, Wanted, Use>(ranks, layer, in, checks);
      });
}

///@{
/// The same on a mesh of these sizes, without the differences: ranks along `replica` and `data`
/// have other samples, those along `context` other tokens of a sample, or what `Offered` and
/// `Wanted` say as the Ends of a Model do. `ranks` are as many as the mesh has; without them,
/// threads are made. Of `checks`, the numbers of ranks and of gradients are not used.
///
///     check_layer({.data = 3, .tensor = 2}, MyLayer{}, tokens).require();
///     using Rows = SamplesOverMesh<Invariant, Axis::height>;
///     check_layer<Rows, Rows>({.context = 3}, MyLayer{}, images).require();
///
/// throws   as the layer; argument_error for another number of ranks
template <Layout Offered = Invariant, Layout Wanted = Invariant, class Use = TrainWithInputGradient,
          class L, Communicator C>
CheckReport check_layer(C& ranks, const mesh& sizes, const L& layer, const Shape& in,
                        const LayerChecks& checks = {}) {
  static_assert(detail::must_be_one_axis<C>());
  static_assert(detail::must_be_set_and_read<Offered, Wanted>());
  using Counted = MeshRanks<CountingCommunicator<C>>;
  return detail::LayerChecker<Ends<Offered, Wanted>, Use, L, C, Counted>(
             ranks, Counted(CountingCommunicator<C>(ranks), sizes),
             detail::sentence({" on the mesh ", sizes}), layer, in, checks)
      .run();
}
template <Layout Offered = Invariant, Layout Wanted = Invariant, class Use = TrainWithInputGradient,
          class L>
CheckReport check_layer(const mesh& sizes, const L& layer, const Shape& in,
                        const LayerChecks& checks = {}) {
  const int all[]{sizes.size()};
  const std::string name = detail::sentence({detail::name_of<L>(), " on the mesh ", sizes});
  return detail::checked_on_threads(name, all, [&](ThreadCommunicator& ranks) {
    return check_layer<Offered, Wanted, Use>(ranks, sizes, layer, in, checks);
  });
}
///@}

}  // namespace shardwise
