#pragma once
// Compares a loss on many ranks with itself on one, its messages with its exchanges, and its
// gradient with differences of its value. For your own losses.

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/testing/many_against_one.hpp"
#include "shardwise/testing/oracle.hpp"
#include "shardwise/testing/report.hpp"
#include "shardwise/train/gradient_check.hpp"
#include "shardwise/train/losses.hpp"

namespace shardwise {

/// The options of `check_loss`; those that `LayerChecks` has too are the same here.
struct LossChecks {
  /// Numbers of thread ranks to run it on.
  std::vector<int> ranks = {1, 2, 3, 4, 8};
  /// The seed of predictions.
  Seed seed{1};
  ///@{
  /// Predictions are random numbers between these two.
  double lowest = -1;
  double highest = 1;
  ///@}
  /// The largest allowed difference between many ranks and one, as in `LayerChecks`.
  double bound = 1e-12;
  /// The most elements of the gradient that are compared with differences.
  std::size_t gradients = 40;
  /// Whether also a step of two batches is compared with the whole batch. Set it to false for a
  /// loss that takes only whole steps, as one without `counted` that leaves out labels.
  bool two_batches = true;
};

namespace detail {

inline constexpr const char* advice_for_loss =
    "Does it add up the terms of all ranks, by an exchange Partial -> Invariant, and divide by the "
    "number of terms of the whole batch?";
inline constexpr const char* advice_for_slopes =
    "Does it assign each element, with the target of the same global element, and divide as the "
    "loss does?";
inline constexpr const char* advice_for_batches =
    "Does it divide by frame.divisor_of_step or frame.terms_of_step, which count all batches?";

/// A prediction and a target, whole, as vectors of one sample after the other.
template <class T>
struct LossData {
  Shape shape;         ///< of the prediction
  Shape target_shape;  ///< of the target
  std::vector<double> prediction;
  std::vector<T> target;

  /// Whether both begin with the same samples, and these are two or more.
  bool can_be_cut() const {
    return shape.rank() > 0 && target_shape.rank() > 0 && shape[0].units > 1 &&
           shape[0] == target_shape[0];
  }

  /// `units` units of samples, from unit `first`.
  LossData part(std::size_t first, std::size_t units) const {
    const auto cut = [&](const auto& whole) {
      const std::size_t of_unit = whole.size() / shape[0].units;
      const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(first * of_unit);
      return std::decay_t<decltype(whole)>(begin,
                                           begin + static_cast<std::ptrdiff_t>(units * of_unit));
    };
    LossData some{shape, target_shape, cut(prediction), cut(target)};
    some.shape[0].units = some.target_shape[0].units = units;
    return some;
  }

  std::size_t samples() const { return shape.rank() > 0 ? shape[0].extent() : 1; }
};

/// A loss on this rank, and its gradient.
struct LossOnRank {
  NumberedValues value;
  NumberedValues gradient;
};

/// The loss of `data` in the layout L, as a part of a step of `of_step` samples.
template <Layout L, Communicator C, class Chosen, class T>
LossOnRank loss_on_rank(C& ranks, const Chosen& loss, const LossData<T>& data,
                        std::size_t of_step) {
  using Ctx = Context<double, Reference, C>;
  Reference backend;
  Run<Ctx> run{ranks, ranks, backend};
  const Place place = place_of(ranks);
  const View<const T, Invariant> target(data.target.data(), data.target_shape, place);
  require_target(loss, data.shape, target);
  Tensor<double, L> prediction(data.shape, place);
  Tensor<double, dual_t<L>> gradient(data.shape, place);
  const auto numbers = global_numbers<L>(data.shape, place);
  for (std::size_t i = 0; i < numbers.size(); ++i) prediction[i] = data.prediction[numbers[i]];
  std::fill_n(gradient.data(), gradient.size(), std::numeric_limits<double>::quiet_NaN());
  auto frame = loss_frame<L>(run, loss, data.shape, {data.samples(), of_step}, false);
  const auto value = static_cast<double>(
      loss(frame, View<const double, L>(prediction.view()), target, gradient.view()));
  return {{"the loss", advice_for_loss, layout_value<Invariant>, {0}, {value}},
          numbered_values("the gradient", advice_for_slopes, gradient.view())};
}

/// The checks of check_loss on one rank.
template <class Chosen, class T, Communicator C>
class LossChecker {
 public:
  LossChecker(C& ranks, const Chosen& loss, LossData<T> data, const LossChecks& checks)
      : ranks_(ranks), loss_(loss), data_(std::move(data)), checks_(checks) {
    for (std::size_t i = 0; i < data_.prediction.size(); ++i)
      data_.prediction[i] = checks.lowest + (checks.highest - checks.lowest) * 0x1p-31 *
                                                oracle::scrambled(1000 * checks.seed.value + 1, i);
    expected_ = alone();
  }

  template <Layout... Ls>
  CheckReport run() {
    CheckReport all = differences();
    (all.add(many<Ls>()), ...);
    return all;
  }

 private:
  LossOnRank alone() const {
    SingleRank one;
    return loss_on_rank<Invariant>(one, loss_, data_, data_.samples());
  }

  ManyAgainstOne<C> comparison(const std::string& layout) const {
    return {ranks_, CountingCommunicator<C>(ranks_),
            name_of<Chosen>() + on_ranks(ranks_.size()) + ", " + layout};
  }

  /// The gradient of the whole prediction, compared with differences on this rank alone.
  CheckReport differences() {
    auto found = comparison(layout_name<Invariant>());
    const std::vector<double>& slopes = expected_.gradient.values;
    double scale = 1e-3;
    for (const double slope : slopes) scale = std::max(scale, std::abs(slope));
    for (std::size_t k = 0; k < std::min(slopes.size(), checks_.gradients); ++k) {
      const bool are_all = slopes.size() <= checks_.gradients;
      const std::size_t i =
          are_all ? k : oracle::scrambled(1000 * checks_.seed.value + 2, k) % slopes.size();
      const double numeric = difference(data_.prediction[i]);
      ++found.report().checked;
      if (std::abs(slopes[i] - numeric) <= GradientReport::bound * scale) continue;
      char numbers[128];
      std::snprintf(numbers, sizeof numbers, "it gives %.9g, and differences of the loss %.9g",
                    slopes[i], numeric);
      found.fail("its gradient is not that of its value. In double on one rank alone, element " +
                 std::to_string(i) + ": " + numbers +
                 ". Is it the derivative of the term, divided as the loss is, and assigned?");
      break;
    }
    return std::move(found.report());
  }

  /// The central difference of the loss as a function of one element.
  double difference(double& element) const {
    const double kept = element;
    const double slope = central_difference(kept, [&](double value) {
      element = value;
      return alone().value.values[0];
    });
    element = kept;
    return slope;
  }

  template <Layout L>
  CheckReport many() {
    auto found = comparison(layout_name<L>());
    compare(found, batch<L>(found, data_));
    if (checks_.two_batches && data_.can_be_cut() && found.report().failures.empty())
      compare(found, of_two_batches<L>(found));
    return std::move(found.report());
  }

  /// The loss of a batch of the step, whose calls are compared with its exchanges.
  template <Layout L>
  LossOnRank batch(ManyAgainstOne<C>& found, const LossData<T>& data) {
    found.forget_calls();
    LossOnRank mine = loss_on_rank<L>(found.counted(), loss_, data, data_.samples());
    found.compare_calls("the loss, whose plan is its `exchanges`",
                        plan_loss<L>(loss_, data.shape, Dtype::float64));
    return mine;
  }

  /// A third of the samples, and then the others.
  template <Layout L>
  LossOnRank of_two_batches(ManyAgainstOne<C>& found) {
    const std::size_t units = data_.shape[0].units;
    const std::size_t first = (units + 2) / 3;
    LossOnRank sum = batch<L>(found, data_.part(0, first));
    const LossOnRank rest = batch<L>(found, data_.part(first, units - first));
    const std::size_t before = data_.prediction.size() / units * first;
    sum.value.values[0] += rest.value.values[0];
    sum.value.name += " of two batches of a step";
    sum.gradient.name += " of two batches of a step";
    sum.value.advice = sum.gradient.advice = advice_for_batches;
    for (const std::size_t i : rest.gradient.elements) sum.gradient.elements.push_back(before + i);
    sum.gradient.values.insert(sum.gradient.values.end(), rest.gradient.values.begin(),
                               rest.gradient.values.end());
    return sum;
  }

  void compare(ManyAgainstOne<C>& found, const LossOnRank& mine) {
    for (const auto part : {&LossOnRank::value, &LossOnRank::gradient}) {
      found.compare_copies(mine.*part);
      found.compare_values(expected_.*part, mine.*part, MadeOf::reals, checks_.bound);
    }
    agree_on_failures(ranks_, found.report().failures);  // so that all ranks go on, or none
  }

  C& ranks_;
  const Chosen& loss_;
  LossData<T> data_;
  const LossChecks& checks_;
  LossOnRank expected_;
};

}  // namespace detail

/// Runs a loss in double on a generated prediction of global shape `shape` and a whole `target`,
/// and compares
///
/// - its gradient with central differences of its value, on one rank alone;
/// - in each layout of `Ls`, its value and gradient on every rank with those of one rank alone, up
///   to rounding, and what all ranks hold alike bit by bit;
/// - the messages of all ranks together with its `exchanges`;
/// - if this holds, the sum of two batches of a step with the whole batch, where prediction and
///   target begin with the same samples.
///
///     check_loss<Invariant, Sharded<Axis::batch>>(ranks, MyLoss{}, shape, target).require();
///
/// Each of `Ls` is Invariant or Sharded. Uneven extents find more errors than even ones. Near a
/// kink, such as that of |x| at 0, differences are wrong within 1e-5 of it; then another seed
/// passes. A collective: every rank of one axis calls it with equal arguments, and all get the
/// failures of the first rank that has any; `checked` counts a rank's own elements.
/// throws   as the loss
template <Layout... Ls, class Chosen, class T, Communicator C>
CheckReport check_loss(C& ranks, const Chosen& loss, const Shape& shape,
                       const Tensor<T, Invariant>& target, const LossChecks& checks = {}) {
  static_assert(detail::must_be_one_axis<C>());
  static_assert(detail::must_be_loss<Chosen, 1>());
  static_assert(sizeof...(Ls) > 0 && ((std::same_as<Ls, Invariant> || ShardedLayout<Ls>)&&...),
                "check_loss makes whole predictions or shards: name the layouts that the loss "
                "takes, each Invariant or Sharded: check_loss<Invariant, Sharded<Axis::batch>>.");
  detail::LossData<T> data{shape,
                           target.global(),
                           std::vector<double>(shape.elements()),
                           {target.data(), target.data() + target.size()}};
  return detail::LossChecker<Chosen, T, C>(ranks, loss, std::move(data), checks)
      .template run<Ls...>();
}

/// The same on threads, for each of `checks.ranks` until one fails; an exception of a rank is a
/// failure too.
///
///     check_loss<Invariant, Sharded<Axis::batch>>(MyLoss{}, shape, target).require();
template <Layout... Ls, class Chosen, class T>
CheckReport check_loss(const Chosen& loss, const Shape& shape, const Tensor<T, Invariant>& target,
                       const LossChecks& checks = {}) {
  return detail::checked_on_threads(detail::name_of<Chosen>(), checks.ranks,
                                    [&](ThreadCommunicator& ranks) {
                                      return check_loss<Ls...>(ranks, loss, shape, target, checks);
                                    });
}

}  // namespace shardwise
