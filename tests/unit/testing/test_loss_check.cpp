// check_loss finds errors in losses of a user's, and says where they are.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "shardwise/testing/loss_check.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using namespace testing;

namespace {

using Batch = Sharded<Axis::batch>;
using Feature = Sharded<Axis::feature>;

// 5 rows and 3 features over 2, 3, 4 and 8 ranks are uneven, with empty shards.
const Shape rows{{Axis::batch, 5}, {Axis::feature, 3}};

// What a loss does wrong.
constexpr int nothing = 0, slope = 1, sum = 2, shard = 3, twice = 4, batches = 5, last = 6,
              place = 7, alike = 8, throws = 9, never = 10;

/// The mean of squared differences.
template <int Wrong>
struct Squares {
  template <Layout L>
  using exchanges = std::conditional_t<Wrong == sum, std::tuple<>, SumOfTerms<L>>;

  template <class Frame, Real T, Layout L>
  double operator()(Frame& frame, View<const T, L> prediction, View<const T, Invariant> target,
                    View<accumulate_t<T>, dual_t<L>> gradient) const {
    const auto ranks = static_cast<std::size_t>(prediction.place().size);
    if (Wrong == throws && ranks == 3) throw argument_error("this loss will not");
    const std::size_t all = prediction.global().elements();
    const double divisor = Wrong == batches ? static_cast<double>(all)
                                            : frame.divisor_of_step(LossReduction::mean, all);
    double of_slopes = divisor;
    if (Wrong == shard && ShardedLayout<L>)
      of_slopes *= static_cast<double>(prediction.size() * ranks) / static_cast<double>(all);
    std::vector<double> terms(prediction.size());
    for_each_global_run(prediction, [&](std::size_t global, std::size_t local, std::size_t length) {
      for (std::size_t k = 0; k < length; ++k) {
        const double d = prediction[local + k] - target[(Wrong == place ? local : global) + k];
        terms[local + k] = d * d;
        if (Wrong == last && global + k == all - 1) continue;
        gradient[local + k] = (Wrong == slope ? 1 : 2) * d / of_slopes;
      }
    });
    return sum_of(frame, terms) / divisor + (Wrong == alike ? 1e-15 * prediction.place().rank : 0);
  }

 private:
  template <class Frame>
  double sum_of(Frame& frame, const std::vector<double>& terms) const {
    const auto term = [&](std::size_t i) { return terms[i]; };
    if constexpr (Frame::count == 0 || Wrong == never) {
      return frame.sum(terms.size(), term);
    } else {
      if (Wrong == twice) frame.template sum_of_ranks<0>(terms.size(), term);
      return frame.template sum_of_ranks<0>(terms.size(), term);
    }
  }
};

/// The same right ones; it notes the predictions that it is given.
struct Noting : Squares<nothing> {
  std::vector<double>* noted;

  explicit Noting(std::vector<double>& notes) : noted(&notes) {}

  template <class Frame, Real T, Layout L>
  double operator()(Frame& frame, View<const T, L> prediction, View<const T, Invariant> target,
                    View<accumulate_t<T>, dual_t<L>> gradient) const {
    noted->assign(prediction.data(), prediction.data() + prediction.size());
    return Squares<nothing>::operator()(frame, prediction, target, gradient);
  }
};

/// Their exchange_shapes would never be asked.
struct PlainShapes {
  template <Layout L>
  using exchanges = SumOfTerms<L>;

  std::array<Shape, 0> exchange_shapes(const Shape&) const { return {}; }
};
struct ShapesOfOther {
  template <Layout L>
  using exchanges = SumOfTerms<L>;

  template <Layout L>
  std::array<Shape, 0> exchange_shapes(Shape&) const {
    return {};
  }
};
static_assert(Loss<Squares<nothing>> && !Loss<PlainShapes> && !Loss<ShapesOfOther>);

Tensor<double, Invariant> target_of(const Shape& shape) {
  Tensor<double, Invariant> target(shape);
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = 0.25 * static_cast<double>(i % 7);
  return target;
}

/// All failures of the loss.
template <int Wrong>
std::string failures_of() {
  const CheckReport report =
      check_loss<Invariant, Batch, Feature>(Squares<Wrong>{}, rows, target_of(rows));
  CHECK_FALSE(report.passed());
  return report.text();
}

}  // namespace

TEST_CASE("a right loss passes in each of its layouts") {
  const CheckReport report =
      check_loss<Invariant, Batch, Feature>(Squares<nothing>{}, rows, target_of(rows));
  CHECK_MESSAGE(report.passed(), report.text());
  // Of each number of ranks differences, and of each layout calls, values and gradients of rank 0,
  // with the whole batch and with two.
  CHECK(report.checked > 5 * (15 + 3 * 5));
}

TEST_CASE("predictions are different numbers between those asked for") {
  std::vector<double> noted;
  const LossChecks checks{.ranks = {1}, .lowest = 2, .highest = 3, .two_batches = false};
  CHECK(check_loss<Invariant>(Noting(noted), rows, target_of(rows), checks).checked == 15 + 17);
  REQUIRE(noted.size() == 15);
  std::sort(noted.begin(), noted.end());
  CHECK(noted.front() >= 2);
  CHECK(noted.back() < 3);
  CHECK(noted.back() - noted.front() > 0.5);
  CHECK(std::adjacent_find(noted.begin(), noted.end()) == noted.end());
}

TEST_CASE("a derivative that is not that of the term is found on one rank") {
  CHECK(contains(
      failures_of<slope>(),
      "Squares<1> on 1 rank(s), Invariant: its gradient is not that of its value. In double on one "
      "rank alone, element 0: it gives 0.0271341983, and differences of the loss 0.0542683965. Is "
      "it the derivative of the term, divided as the loss is, and assigned?"));
}

TEST_CASE("an element of the gradient that is not assigned is found") {
  CHECK(contains(failures_of<last>(), "element 14: it gives nan, and differences of the loss "));
}

TEST_CASE("a sum that leaves out other ranks is found") {
  const std::string text = failures_of<sum>();
  check_mentions(text, {"Squares<2> on 2 rank(s), Sharded<batch>: the loss is not that of one rank "
                        "alone, on random numbers: element 0 is ",
                        " alone. Does it add up the terms of all ranks"});
}

TEST_CASE("a factor that is right for even shards alone is found") {
  const Shape even{{Axis::batch, 4}, {Axis::feature, 2}};
  const LossChecks two{.ranks = {1, 2}};
  CHECK(check_loss<Invariant, Batch>(Squares<shard>{}, even, target_of(even), two).passed());
  const std::string text = failures_of<shard>();
  check_mentions(text, {"Squares<3> on 2 rank(s), Sharded<batch>: the gradient is not that of one "
                        "rank alone, on random numbers: element 0 is ",
                        "and divide as the loss does?"});
}

TEST_CASE("a call that no exchange declares, and one that is not made, are found") {
  CHECK(contains(failures_of<twice>(),
                 "Squares<4> on 1 rank(s), Sharded<batch>: it sends other than planned, in "
                 "the loss, whose plan is its `exchanges`: collective 1 is all_reduce(1 x "
                 "float64), and planned is nothing more"));
  CHECK(contains(failures_of<never>(),
                 "collective 0 is nothing more, and planned is all_reduce(1 x float64)"));
}

TEST_CASE("a batch that counts like a whole step is found, unless only whole steps are checked") {
  check_mentions(failures_of<batches>(),
                 {"Squares<5> on 1 rank(s), Invariant: the loss of two batches of a step is not "
                  "that of one rank alone, on random numbers: element 0 is ",
                  "the gradient of two batches of a step", "frame.divisor_of_step"});
  const Shape one_axis{{Axis::batch, 5}}, one_sample{{Axis::batch, 1}, {Axis::feature, 3}};
  CHECK(contains(check_loss<Batch>(Squares<batches>{}, one_axis, target_of(one_axis)).text(),
                 "the loss of two batches of a step is not"));
  CHECK(check_loss<Batch>(Squares<batches>{}, one_sample, target_of(one_sample)).passed());
  const LossChecks whole{.two_batches = false};
  CHECK(check_loss<Invariant>(Squares<batches>{}, rows, target_of(rows), whole).passed());
}

TEST_CASE("targets that are taken from the beginning on each rank are found") {
  CHECK(
      contains(failures_of<place>(), "Squares<7> on 2 rank(s), Sharded<batch>: the loss is not "));
}

TEST_CASE("a loss that is not the same on all ranks is found, however small the difference") {
  CHECK(contains(failures_of<alike>(),
                 "Squares<8> on 2 rank(s), Invariant: the loss on rank 1 is not that of rank 0 "
                 "bit by bit, and all should hold the same."));
}

TEST_CASE("what a loss throws is a failure") {
  check_mentions(failures_of<throws>(), {"Squares<9> on 3 rank(s): rank ", "this loss will not"});
}
