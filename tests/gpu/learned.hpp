#pragma once
// What a model that is split over thread ranks of a device learns in three steps, against what one
// rank of the host learns in double from the same weights and batches.

#include <doctest/doctest.h>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/input_element.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/step.hpp"
#include "support/effort.hpp"
#include "support/far.hpp"
#include "support/largest_difference.hpp"
#include "support/seed.hpp"

namespace testing::learned {

using namespace shardwise;

/// How far results may be off, as a share of the largest of them: rounding of some ten layers and
/// three steps. What is forgotten or counted twice is off by more.
template <class T>
constexpr double bound = sizeof(T) == 8            ? 1e-10
                         : sizeof(T) == 4          ? 1e-3
                         : std::is_same_v<T, bf16> ? 0.25
                                                   : 0.04;

using Numbers = std::vector<double>;

template <class T, class L>
Numbers numbers(const Tensor<T, L>& tensor) {
  Numbers result;
  for (std::size_t i = 0; i < tensor.size(); ++i)
    result.push_back(static_cast<double>(static_cast<accumulate_t<T>>(tensor[i])));
  return result;
}

/// Numbers in [-1, 1) as T holds them, the same for every dtype wider than T.
template <class T, class Narrow>
Tensor<T, Invariant> drawn(const Shape& shape, Place place, unsigned seed, std::uint64_t number) {
  Tensor<T, Invariant> tensor(shape, place);
  const RandomStream stream(Seed{seed}, number, 0);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const auto narrow = static_cast<Narrow>(2 * stream.uniform(i) - 1);
    tensor[i] = static_cast<T>(static_cast<accumulate_t<Narrow>>(narrow));
  }
  return tensor;
}

/// Labels or token ids below `count`.
inline Tensor<std::int32_t, Invariant> drawn_ids(const Shape& shape, std::size_t count, Place place,
                                                 unsigned seed, std::uint64_t number) {
  Tensor<std::int32_t, Invariant> ids(shape, place);
  const RandomStream stream(Seed{seed}, number, 0);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(stream.bits(i) % count);
  return ids;
}

/// The parameters of a model, by name.
using Weights = std::map<std::string, Numbers>;

template <class M>
std::vector<std::string> names_of(M& model) {
  std::vector<std::string> names;
  model.visit_parameters([&](auto& parameter) { names.push_back(parameter.name); });
  return names;
}
template <class M>
Weights weights_of(M& model) {
  Weights weights;
  for (const std::string& name : names_of(model)) weights[name] = numbers(model.gather(name));
  return weights;
}
template <class M>
void set_weights(M& model, const Weights& weights) {
  for (const auto& [name, values] : weights) {
    Tensor<double, Invariant> tensor = model.gather(name);
    for (std::size_t i = 0; i < values.size(); ++i) tensor[i] = values[i];
    model.set(name, tensor.view());
  }
}

/// What came of three steps, and what a model evaluates with the weights behind them.
struct Learned {
  Numbers losses;
  Weights weights;
  Numbers evaluated;
};

/// An architecture, its data, and how it learns. Its input are numbers of the model's dtype, whose
/// innermost axis becomes one of `classes` numbers, or token ids below `classes`.
template <class Net, class LossOf, class RuleOf, class Out = Invariant>
struct Problem {
  Shape in;
  std::size_t classes;
  unsigned seed;
  std::vector<Segment> documents{};  ///< of every batch, if it is text that is packed

  static constexpr bool takes_ids =
      std::same_as<detail::input_element_t<Net, double>, std::int32_t>;
  using Use = std::conditional_t<takes_ids, Train, TrainWithInputGradient>;
  template <class T, class B, class C>
  using ModelOf = Model<Net, Context<T, B, C>, Ends<Invariant, Out>, Use>;

  Shape out() const {
    if (!takes_ids) return {in[0], {Axis::feature, classes}};
    Shape shape = in;
    shape.append({Axis::feature, classes});
    return shape;
  }

  template <class Narrow, class T>
  auto input(Place place, std::uint64_t number) const {
    if constexpr (takes_ids) {
      return drawn_ids(in, classes, place, seed, number);
    } else {
      return drawn<T, Narrow>(in, place, seed, number);
    }
  }

  template <class Narrow, class T>
  auto target(Place place, std::uint64_t number) const {
    if constexpr (LossOf::takes_labels) {
      return drawn_ids(out().without_back(), classes, place, seed, number);
    } else {
      return drawn<T, Narrow>(out(), place, seed, number);
    }
  }

  template <class Narrow, class T, class B, class C>
  Learned learn(ModelOf<T, B, C>& model, Place place) const {
    Learned learned;
    Optimizer optimizer(model, RuleOf::rule());
    for (std::uint64_t step = 0; step < 3; ++step) {
      const auto x = input<Narrow, T>(place, 2 * step);
      const auto y = target<Narrow, T>(place, 2 * step + 1);
      const auto there = model.to_device(x.view());
      const auto wanted = model.to_device(y.view());
      learned.losses.push_back(
          train_step(model, there.view(), wanted.view(), LossOf::loss(), optimizer, {}, documents));
    }
    learned.weights = weights_of(model);
    return learned;
  }

  /// Nothing, if each rank has a part of the output.
  template <class Narrow, class T, class B, class C>
  Numbers evaluate(ModelOf<T, B, C>& model, Place place) const {
    if constexpr (std::same_as<Out, Invariant>) {
      const auto x = input<Narrow, T>(place, 100);
      const auto there = model.to_device(x.view());
      return numbers(model.to_host(model.evaluate(there.view(), {.segments = documents})));
    } else {
      return {};
    }
  }

  /// Of the first rank; `begun` are the weights that all began with.
  template <class T>
  Learned on_ranks(int ranks, Weights& begun) const {
    using Group = DeviceThreadCommunicator<Far>;
    const auto memory = std::make_shared<FarMemory>();
    Learned result;
    run_ranks(ranks, [&](ThreadCommunicator& threads) {
      Far backend(memory);
      Group group(threads, backend);
      ModelOf<T, Far, Group> model(Net{}, group, Seed{seed}, in, backend);
      const Weights before = weights_of(model);
      Learned learned = learn<T, T, Far, Group>(model, place_of(group));
      learned.evaluated = evaluate<T, T, Far, Group>(model, place_of(group));
      if (threads.rank() == 0) begun = before, result = std::move(learned);
      threads.barrier();  // peers read this rank's memory until here
    });
    return result;
  }

  /// Evaluates with `learned`, the weights of the ranks: rounding of all steps, which one row of a
  /// batch may multiply, is seen in the weights and not once more here.
  template <class Narrow>
  Learned in_double(const Weights& begun, const Weights& learned) const {
    Reference backend;
    SingleRank alone;
    ModelOf<double, Reference, SingleRank> model(Net{}, alone, Seed{seed}, in, backend);
    set_weights(model, begun);
    Learned expected = learn<Narrow, double, Reference, SingleRank>(model, {});
    set_weights(model, learned);
    expected.evaluated = evaluate<Narrow, double, Reference, SingleRank>(model, {});
    return expected;
  }
};

/// The largest difference as a share of the largest number, but of 0.05 if all are smaller: a bias
/// that begins at zero may have gradients that cancel but for their rounding.
inline double difference(const Numbers& found, const Numbers& expected) {
  Largest largest;
  largest.see(0.05);
  for (const double number : expected) largest.see(std::abs(number));
  return largest_difference(found, expected) / largest;
}

template <class T, class P>
void check(const P& problem) {
  MESSAGE("SHARDWISE_TEST_SEED=" << problem.seed);
  for (const int ranks : at_ranks({1, 2, 3, 4, 8})) {
    CAPTURE(ranks);
    Weights begun;
    const Learned found = problem.template on_ranks<T>(ranks, begun);
    const Learned expected = problem.template in_double<T>(begun, found.weights);
    CHECK(difference(found.losses, expected.losses) <= bound<T>);
    CHECK(difference(found.evaluated, expected.evaluated) <= bound<T>);
    REQUIRE(found.weights.size() == expected.weights.size());
    for (const auto& weight : expected.weights) {
      CAPTURE(weight.first);
      CHECK(difference(found.weights.at(weight.first), weight.second) <= bound<T>);
    }
  }
}

/// Random labels.
struct ByLabels {
  static constexpr bool takes_labels = true;
  static CrossEntropy loss() { return {0.1}; }
};

}  // namespace testing::learned
