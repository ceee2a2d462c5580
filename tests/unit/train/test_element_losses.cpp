// Losses of elements against PyTorch, over every layout, dtype and number of ranks, and what they
// refuse.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/testing/loss_check.hpp"
#include "shardwise/train/binary_cross_entropy.hpp"
#include "shardwise/train/huber.hpp"
#include "shardwise/train/loss_of_elements.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "support/messages.hpp"
#include "unit/train/rows.hpp"
#include "witness/values.hpp"

using namespace testing;

namespace {

const Shape square{{Axis::batch, 4}, {Axis::feature, 5}};
const Shape image{{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 2}, {Axis::width, 2}};
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

const witness::Values& theirs() {
  static const witness::Values values("losses/element_losses");
  return values;
}

Tensor<double, Invariant> made_weights(const Dim& classes, Place place) {
  auto weights = made(96, classes.extent());
  for (double& weight : weights) weight += 2;
  return tensor_of<double>(Shape{classes}, place, weights);
}

std::vector<double> made_target(const Shape& shape, bool has_probabilities) {
  auto numbers = made(6, shape.elements());
  for (double& number : numbers) number = has_probabilities ? (1 + number) / 2 : number;
  return numbers;
}

/// The mean and the sum.
template <Layout L, Real T, Communicator C, class Loss>
void check(C& ranks, const std::string& which, Loss loss, const Shape& shape, double factor,
           bool has_probabilities) {
  const auto target = tensor_of<T>(shape, place_of(ranks), made_target(shape, has_probabilities));
  const auto prediction = made(5, shape.elements(), factor);
  for (const auto reduction : {LossReduction::mean, LossReduction::sum}) {
    const std::string key = which + (reduction == LossReduction::mean ? "/mean" : "/sum");
    INFO(key << " as " << layout_name<L>() << " in " << std::string(name(dtype_v<T>)) << " at "
             << ranks.size());
    loss.reduction = reduction;
    const auto result = loss_of<L, T>(ranks, loss, shape, prediction, target.view());
    const double expected = theirs().number(key + "/loss");
    const auto gradient = theirs()[key + "/gradient"];
    double largest = 1;
    for (const double slope : gradient) largest = std::max(largest, std::abs(slope));
    CHECK(std::abs(result.loss - expected) <= rounding<T> * std::max(1.0, expected));
    CHECK(largest_difference(result.gradient, gradient) <= rounding<T> * largest);
  }
}

/// Huber with a delta of 0.75, as a program of its own writes it.
// begin: own
const LossOfElements own_loss{[](auto prediction, auto target) {
  const auto d = prediction - target;
  const auto bounded = std::clamp<decltype(d)>(d, -0.75, 0.75);
  return std::pair{bounded * (d - bounded / 2), bounded};  // the term, and its derivative
}};
// end: own

// begin: own_form
/// The mean of the distances between rows of the prediction and of the target.
struct MeanDistance {
  template <Layout L>
  using exchanges = SumOfTerms<L>;  // each row is on one rank

  void require_target(const Shape& prediction, const Shape& target) const {
    if (prediction == target) return;
    throw shape_error({"MeanDistance: prediction ", prediction, ", but target ", target});
  }

  template <class Frame, Real T, Layout L, class Target>
  auto operator()(Frame& frame, View<const T, L> prediction, const Target& target,
                  View<accumulate_t<T>, dual_t<L>> gradient) const {
    using A = accumulate_t<T>;
    static_assert(!std::same_as<L, Sharded<Axis::feature>>, "MeanDistance takes whole rows");
    const auto part = part_of_target<L>(frame.backend(), frame.pool(), target, prediction.place());
    const double rows = frame.terms_of_step(prediction.global().rows());
    const std::size_t columns = prediction.columns();
    const auto distance = [&](std::size_t row) {
      const std::size_t first = row * columns, end = first + columns;
      const auto difference = [&](std::size_t i) {
        return static_cast<A>(prediction[i]) - static_cast<A>(part.view()[i]);
      };
      A squares = 0;
      for (std::size_t i = first; i < end; ++i) squares += difference(i) * difference(i);
      const A length = std::sqrt(squares);
      const A slope = length > 0 ? 1 / (length * static_cast<A>(rows)) : A(0);
      for (std::size_t i = first; i < end; ++i) gradient[i] = slope * difference(i);
      return static_cast<double>(length);
    };
    return frame.sum_of_terms(prediction.rows(), distance) / rows;
  }
};
// end: own_form

template <Layout L, Real T, Communicator C>
void check_square(C& ranks) {
  const auto weights = made_weights(square.back(), place_of(ranks));
  check<L, T>(ranks, "squared", MeanSquaredError{}, square, 3, false);
  check<L, T>(ranks, "huber", Huber{.delta = 0.75}, square, 2, false);
  check<L, T>(ranks, "huber", own_loss, square, 2, false);
  check<L, T>(ranks, "smooth_l1", SmoothL1{.beta = 0.75}, square, 2, false);
  check<L, T>(ranks, "l1", SmoothL1{.beta = 0}, square, 2, false);
  check<L, T>(ranks, "binary", BinaryCrossEntropy{}, square, 3, true);
  check<L, T>(ranks, "positive", BinaryCrossEntropy{weights.view()}, square, 3, true);
  check<L, T>(ranks, "wide", BinaryCrossEntropy{}, square, 3000, true);
}

template <Layout L, Real T, Communicator C>
void check_image(C& ranks) {
  const auto weights = made_weights(image[1], place_of(ranks));
  check<L, T>(ranks, "image", BinaryCrossEntropy{weights.view()}, image, 3, true);
}

}  // namespace

TEST_CASE_TEMPLATE("losses of elements are PyTorch's as means and as sums", T, float, double, bf16,
                   fp16) {
  for (int size = 1; size <= 8; ++size) {
    run_ranks(size, [](ThreadCommunicator& ranks) {
      check_square<Invariant, T>(ranks);
      check_square<Feature, T>(ranks);
      check_square<Batch, T>(ranks);
      check_image<Invariant, T>(ranks);
      check_image<Sharded<Axis::channel>, T>(ranks);
      check_image<Sharded<Axis::width>, T>(ranks);
    });
  }
}

TEST_CASE("a program's own loss passes its check") {
  // begin: own_checked
  const Shape shape{{Axis::batch, 5}, {Axis::feature, 3}};
  const Tensor<double, Invariant> target(shape);  // zeros; fill it with numbers that you expect
  check_loss<Invariant, Batch, Feature>(own_loss, shape, target).require();
  // end: own_checked
}

TEST_CASE("a loss of another form finds the rank's part of its target in every layout") {
  const Shape shape{{Axis::batch, 3}, {Axis::sequence, 5}, {Axis::feature, 4}};
  const auto prediction = made(5, 60), numbers = made(6, 60);
  LossResult expected{0, std::vector<double>(60)};
  for (std::size_t row = 0; row < 15; ++row) {
    double squares = 0;
    for (std::size_t i = 4 * row; i < 4 * row + 4; ++i)
      squares += std::pow(prediction[i] - numbers[i], 2);
    expected.loss += std::sqrt(squares) / 15;
    for (std::size_t i = 4 * row; i < 4 * row + 4; ++i)
      expected.gradient[i] = (prediction[i] - numbers[i]) / (15 * std::sqrt(squares));
  }
  for (int size = 1; size <= 5; ++size) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      const auto check = [&]<Layout L, Layout Of>() {
        CAPTURE(layout_name<L>());
        CAPTURE(ranks.size());
        const auto whole = tensor_of<double>(shape, place_of(ranks), numbers);
        Tensor<double, Of> target(shape, place_of(ranks));
        Pool pool;
        redistribute(ranks, pool, whole.view(), target.view());
        const auto result = loss_of<L, double>(ranks, MeanDistance{}, shape, prediction, target);
        CHECK(std::abs(result.loss - expected.loss) < 1e-14);
        CHECK(largest_difference(result.gradient, expected.gradient) < 1e-14);
      };
      check.template operator()<Invariant, Invariant>();
      check.template operator()<Batch, Invariant>();
      check.template operator()<Batch, Batch>();
      check.template operator()<Sequence, Invariant>();  // whose parts are in pieces
      check.template operator()<Sequence, Sequence>();
    });
  }
  const Tensor<double, Invariant> zeros(shape);
  check_loss<Invariant, Batch, Sequence>(MeanDistance{}, shape, zeros).require();
}

TEST_CASE("a target that is another rank's part is refused") {
  SingleRank alone;
  const Shape shape{{Axis::batch, 4}, {Axis::feature, 1}};
  const Tensor<double, Batch> of_other(shape, Place{1, 2});
  CHECK(message_of<argument_error>([&] {
          loss_of<Batch, double>(alone, MeanDistance{}, shape, made(5, 4), of_other);
        }).find("targets are the part of rank 1 of 2, but the prediction is that of rank 0 of 1") !=
        std::string::npos);
}

TEST_CASE("losses of elements pass the check, as means and as sums") {
  const Shape shape{{Axis::batch, 5}, {Axis::channel, 3}, {Axis::width, 3}};
  const auto target = tensor_of<double>(shape, {}, made_target(shape, true));
  const auto check = [&](auto loss) {
    for (const auto reduction : {LossReduction::mean, LossReduction::sum}) {
      loss.reduction = reduction;
      const auto report = check_loss<Invariant, Batch, Sharded<Axis::width>>(loss, shape, target);
      CHECK_MESSAGE(report.passed(), report.text());
    }
  };
  const auto weights = made_weights(shape[1], {});
  check(MeanSquaredError{});
  check(Huber{.delta = 0.75});
  check(SmoothL1{.beta = 0.75});
  check(BinaryCrossEntropy{weights.view()});
}

static_assert(Huber{}.delta == 1 && SmoothL1{}.beta == 1, "these are PyTorch's defaults");

namespace {

/// Whether `found` is within three units in the last place of `exact`, or the least normal number.
template <class A>
bool is_close(A found, long double exact) {
  const A near = std::abs(static_cast<A>(exact));
  const auto unit =
      static_cast<long double>(std::nextafter(near, std::numeric_limits<A>::infinity()) - near);
  const long double apart = std::abs(static_cast<long double>(found) - exact);
  return apart <= std::max<long double>(3 * unit, std::numeric_limits<A>::min());
}

/// Checks value and slope of the binary cross-entropy of z and 0, and of -z and 1, by its formula.
template <class A>
void check_logistic(A z) {
  CAPTURE(z);
  const auto x = static_cast<long double>(z);
  const long double e = std::exp(-std::abs(x));
  const long double loss = std::max(0.0L, x) + std::log1p(e);
  const long double slope = (x > 0 ? 1 : e) / (1 + e);
  const auto if_false = detail::LogisticTerm<A>{}(0, z, A(0));
  const auto if_true = detail::LogisticTerm<A>{}(0, -z, A(1));
  CHECK(is_close(if_false.value, loss));
  CHECK(is_close(if_false.slope, slope));
  CHECK(if_true.value == if_false.value);
  CHECK(if_true.slope == -if_false.slope);
}

}  // namespace

TEST_CASE_TEMPLATE("a binary cross-entropy is exact near zero and far out", A, float, double) {
  for (A z = A(1e-8); z < 100; z = z < 1 ? z * A(1.1) : z + A(0.07)) {
    check_logistic(z);
    check_logistic(-z);
  }
  for (const A z : {A(0), A(20), A(90), A(1e4), A(1e30)}) {
    check_logistic(z);
    check_logistic(-z);
  }
  constexpr A beyond = std::numeric_limits<A>::infinity();
  CHECK(detail::LogisticTerm<A>{}(0, beyond, A(0)).value == beyond);
  CHECK(detail::LogisticTerm<A>{}(0, beyond, A(0)).slope == 1);
  const auto unknown = detail::LogisticTerm<A>{}(0, static_cast<A>(not_a_number), A(0));
  CHECK(std::isnan(unknown.value));
  CHECK(std::isnan(unknown.slope));
}

TEST_CASE("terms that write have the sum of those that do not, to the last bit") {
  for (const std::size_t n : {0U, 1U, 15U, 16U, 63U, 64U, 81U, 200U}) {
    std::vector<double> x(n), y(n), gradient(n);
    for (std::size_t i = 0; i < n; ++i)
      x[i] = 1 / (static_cast<double>(i) + 3);  // sums are rounded
    const detail::PutTerm<double, detail::SquaredDifference> put{
        {}, x.data(), y.data(), 2.0, gradient.data()};
    CHECK(detail::sum_on_host(n, put) == detail::lane_reduce(n, 0.0, put, detail::Plus{}));
  }
}

namespace {

/// The sum over differences of 0, of plus and minus the bound, and of more.
template <Real T, class Loss>
void check_at_bound(Loss loss, double sum, double slope) {
  SingleRank alone;
  const Shape four{{Axis::batch, 4}};
  const Tensor<T, Invariant> target(four, {});
  loss.reduction = LossReduction::sum;
  const auto result = loss_of<Invariant, T>(alone, loss, four, {0, 0.5, -0.5, 3}, target.view());
  CHECK(result.loss == sum);
  CHECK(result.gradient == std::vector<double>{0, slope, -slope, slope});
  const std::vector<double> unknown{0, 0.5, not_a_number, 3};
  const auto of_unknown = loss_of<Invariant, T>(alone, loss, four, unknown, target.view());
  CHECK(std::isnan(of_unknown.loss));
  CHECK(std::isnan(of_unknown.gradient[2]));
}

}  // namespace

TEST_CASE_TEMPLATE("equal numbers have no slope, squares and magnitudes meet at the bound", T,
                   float, double) {
  constexpr auto smallest = static_cast<double>(std::numeric_limits<T>::denorm_min());
  check_at_bound<T>(Huber{.delta = 0.5}, 1.625, 0.5);
  check_at_bound<T>(SmoothL1{.beta = 0.5}, 3.25, 1);
  check_at_bound<T>(SmoothL1{.beta = smallest}, 4, 1);
  check_at_bound<T>(SmoothL1{.beta = 0}, 4, 1);
}

namespace {

template <class Error, class Loss>
std::string refusal(const Loss& loss, const Shape& shape = square) {
  std::string said;
  run_ranks(2, [&](ThreadCommunicator& inner) {
    CountingCommunicator ranks(inner);
    const Tensor<double, Invariant> target(square, place_of(ranks));
    const std::vector<double> prediction(shape.elements());
    const std::string mine = message_of<Error>(
        [&] { loss_of<Batch, double>(ranks, loss, shape, prediction, target.view()); });
    CHECK(ranks.log().empty());
    if (ranks.rank() == 0) said = mine;
  });
  return said;
}

}  // namespace

TEST_CASE("options, weights and targets that make no sense are refused before anything is sent") {
  for (const double wrong : {0.0, -1.0, not_a_number, std::numeric_limits<double>::infinity()}) {
    CHECK(contains(refusal<argument_error>(Huber{.delta = wrong}), "Huber: delta is "));
    if (wrong == 0) continue;
    CHECK(contains(refusal<argument_error>(SmoothL1{.beta = wrong}), "SmoothL1: beta is "));
    auto weights = made_weights(square.back(), {});
    weights[4] = wrong;
    CHECK(contains(refusal<argument_error>(BinaryCrossEntropy{weights.view()}),
                   "binary cross-entropy: number 4 of the positive weights is "));
  }
  for (const Shape& other :
       {Shape{{Axis::feature, 4}}, Shape{{Axis::channel, 5}}, Shape{}, square}) {
    const Tensor<double, Invariant> weights(other);
    CHECK(contains(refusal<shape_error>(BinaryCrossEntropy{weights.view()}),
                   "give one number for each class, which are an axis of [batch 4, feature 5]"));
  }
  const Shape wide{square[0], {Axis::feature, 6}};
  CHECK(contains(refusal<shape_error>(own_loss, wide), "loss of elements: the prediction is a"));
  CHECK(contains(refusal<shape_error>(Huber{}, wide),
                 "Huber: the prediction is a tensor [batch 4, feature 6] and the target [batch 4"));
}
