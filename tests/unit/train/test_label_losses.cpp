// Losses of labels that are ignored or weighted, and negative log-likelihood, against PyTorch, over
// every layout, dtype and number of ranks, and what they refuse.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/testing/loss_check.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/negative_log_likelihood.hpp"
#include "support/messages.hpp"
#include "unit/train/rows.hpp"
#include "witness/values.hpp"

using namespace testing;

namespace {

const Shape plain{{Axis::batch, 6}, {Axis::feature, 10}};
const Shape sequence{{Axis::batch, 2}, {Axis::sequence, 3}, {Axis::feature, 5}};
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

const witness::Values& theirs() {
  static const witness::Values values("losses/label_losses");
  return values;
}

std::vector<double> log_softmax(std::vector<double> logits, std::size_t classes) {
  for (std::size_t row = 0; row < logits.size() / classes; ++row) {
    double* const z = logits.data() + row * classes;
    double sum = 0;
    for (std::size_t k = 0; k < classes; ++k) sum += std::exp(z[k]);
    for (std::size_t k = 0; k < classes; ++k) z[k] -= std::log(sum);
  }
  return logits;
}

Tensor<double, Invariant> made_weights(const Dim& classes, Place place) {
  auto weights = made(97, classes.extent());
  for (double& weight : weights) weight += 1.5;
  return tensor_of<double>(Shape{classes}, place, weights);
}

/// A batch of the witness, in which the logits of ignored rows are NaN.
struct LabelBatch {
  Shape shape;
  std::vector<double> logits;
  Tensor<std::int32_t, Invariant> labels;
  Tensor<double, Invariant> weights;
  std::string key;

  LabelBatch(const Shape& of, Place place, bool ignores, bool weighs)
      : shape(of),
        logits(made(of.rank() == 2 ? 7 : 8, of.elements(), 4)),
        labels(made_labels(of.without_back(), place, of.back().extent())),
        weights(made_weights(of.back(), place)),
        key(std::string(of.rank() == 2 ? "plain" : "sequence") + (ignores ? "_ignored" : "") +
            (weighs ? "_weighted" : "")) {
    const auto classes = static_cast<std::ptrdiff_t>(of.back().extent());
    for (const std::ptrdiff_t row : {1, 4}) {
      if (!ignores) continue;
      labels[static_cast<std::size_t>(row)] = -100;
      std::fill_n(logits.begin() + row * classes, classes, not_a_number);
    }
  }
};

template <Layout L, Real T, Communicator C, class Loss>
void check_value(C& ranks, const LabelBatch& batch, const std::vector<double>& prediction,
                 const Loss& loss, detail::BatchInStep share, const std::string& key,
                 double divisor = 1) {
  INFO(key << " as " << layout_name<L>() << " in " << std::string(name(dtype_v<T>)) << " at "
           << ranks.size());
  const auto result =
      loss_of<L, T>(ranks, loss, batch.shape, prediction, batch.labels.view(), share);
  const double expected = theirs().number(key + "/loss") / divisor;
  auto gradient = theirs()[key + "/gradient"];
  std::vector<double> scaled(gradient.begin(), gradient.end());
  for (double& slope : scaled) slope /= divisor;
  // Slopes of a sum are up to the largest weight, 2.5.
  CHECK(std::abs(result.loss - expected) <= rounding<T> * std::max(1.0, expected));
  CHECK(largest_difference(result.gradient, scaled) <= 2.5 * rounding<T>);
}

/// The mean, the sum, and the mean over a step whose labels add up to 20.
template <Layout L, Real T, Communicator C, class Loss>
void check_all_values(C& ranks, const LabelBatch& batch, const std::vector<double>& prediction,
                      Loss loss, const std::string& key) {
  check_value<L, T>(ranks, batch, prediction, loss, {1, 1}, key + "/mean");
  loss.counted = 20;
  check_value<L, T>(ranks, batch, prediction, loss, {1, 3}, key + "/sum", 20);
  loss.counted = 0;
  loss.reduction = LossReduction::sum;
  check_value<L, T>(ranks, batch, prediction, loss, {1, 3}, key + "/sum");
}

template <Layout L, Real T, Communicator C>
void check_layout(C& ranks, const Shape& shape) {
  for (const int options : {0, 1, 2, 3}) {
    const bool ignores = (options & 1) != 0;
    const bool weighs = (options & 2) != 0;
    const LabelBatch batch(shape, place_of(ranks), ignores, weighs);
    MaskedCrossEntropy entropy;
    NegativeLogLikelihood likelihood;
    if (weighs) entropy.class_weights = likelihood.class_weights = batch.weights.view();
    check_all_values<L, T>(ranks, batch, batch.logits, entropy, "entropy_" + batch.key);
    entropy.label_smoothing = 0.1;
    check_all_values<L, T>(ranks, batch, batch.logits, entropy, "entropy_" + batch.key + "_smooth");
    if (ignores) likelihood.ignored = -100;
    const auto prediction = log_softmax(batch.logits, shape.back().extent());
    check_all_values<L, T>(ranks, batch, prediction, likelihood, "nll_" + batch.key);
    if (!ignores && !weighs) {
      check_value<L, T>(ranks, batch, prediction, likelihood, {1, 3}, "nll_" + batch.key + "/mean",
                        3);
      const CrossEntropy sum{.reduction = LossReduction::sum};
      check_value<L, T>(ranks, batch, batch.logits, sum, {1, 3}, "entropy_" + batch.key + "/sum");
    }
  }
}

}  // namespace

// 10 classes over 3, 4, 6, 7 and 8 ranks and 5 over all but 5 are uneven; 8 ranks have empty
// shards.
TEST_CASE_TEMPLATE("ignored and weighted labels count as PyTorch's, in the mean of a whole step", T,
                   float, double, bf16, fp16) {
  for (int size = 1; size <= 8; ++size) {
    run_ranks(size, [](ThreadCommunicator& ranks) {
      for (const Shape& shape : {plain, sequence}) {
        check_layout<Invariant, T>(ranks, shape);
        check_layout<Feature, T>(ranks, shape);
        check_layout<Batch, T>(ranks, shape);
      }
      check_layout<Sequence, T>(ranks, sequence);
    });
  }
}

TEST_CASE(
    "two batches of a step make the mean over the labels of both, and all ranks that of one") {
  const LabelBatch batch(plain, {}, true, true);
  double counted = 0;
  for (const std::int32_t label : batch.labels.view().span())
    if (label >= 0) counted += batch.weights[static_cast<std::size_t>(label)];
  const auto check = [&](const auto& loss) {
    const CheckReport report = check_loss<Invariant, Batch, Feature>(loss, plain, batch.labels);
    CHECK_MESSAGE(report.passed(), report.text());
  };
  check(MaskedCrossEntropy{.counted = counted, .class_weights = batch.weights.view()});
  check(NegativeLogLikelihood{
      .ignored = -100, .counted = counted, .class_weights = batch.weights.view()});
}

namespace {

/// The message with which every rank refuses a loss before it sends something.
template <Layout L, class Error = argument_error, class Loss>
std::string refusal(const Loss& loss, const Tensor<std::int32_t, Invariant>& labels,
                    detail::BatchInStep share = {1, 1}) {
  std::string said;
  run_ranks(2, [&](ThreadCommunicator& inner) {
    CountingCommunicator ranks(inner);
    const View<const std::int32_t, Invariant> here(labels.data(), labels.global(), place_of(ranks));
    const std::string mine = message_of<Error>(
        [&] { loss_of<L, double>(ranks, loss, plain, made(7, 60), here, share); });
    CHECK(ranks.log().empty());
    if (ranks.rank() == 0) said = mine;
  });
  return said;
}

}  // namespace

TEST_CASE("what cannot be counted is refused, and so is a label that is no class") {
  auto labels = made_labels(Shape{plain[0]}, {}, 10);
  labels[2] = -100;
  CHECK(contains(refusal<Batch>(MaskedCrossEntropy{}, labels, {6, 18}),
                 "cross-entropy: labels may be ignored or weighted, and the rank has only a part "
                 "of the step's labels: set `counted`"));
  CHECK(contains(refusal<Feature>(MaskedCrossEntropy{.ignored = 3}, labels),
                 "label -100 of row 2 is no class"));
  CHECK(!contains(refusal<Feature>(MaskedCrossEntropy{.ignored = 3}, labels), "are left out by"));
  const std::string unmasked = refusal<Feature>(NegativeLogLikelihood{}, labels);
  CHECK(contains(unmasked, "label -100 of row 2 is no class"));
  CHECK(contains(unmasked,
                 "left out by MaskedCrossEntropy or NegativeLogLikelihood with .ignored "
                 "= -100"));
  CHECK(contains(refusal<Invariant>(NegativeLogLikelihood{.ignored = -100}, labels, {6, 18}),
                 "negative log-likelihood: labels may be ignored or weighted"));
  CHECK(contains(refusal<Invariant>(MaskedCrossEntropy{.counted = -1}, labels), "`counted` is -1"));
  std::fill_n(labels.data(), labels.size(), -100);
  CHECK(contains(refusal<Invariant>(MaskedCrossEntropy{}, labels), "there are none in this step"));
}

TEST_CASE("weights count as the doubles that they are") {
  SingleRank alone;
  const LabelBatch batch(plain, {}, false, false);
  auto weights = made_weights(plain.back(), {});
  std::fill_n(weights.data(), weights.size(), 0.1);  // in float 1.5e-9 more
  const NegativeLogLikelihood loss{.class_weights = weights.view(),
                                   .reduction = LossReduction::sum};
  const std::vector<double> prediction(plain.elements(), -1.0);
  const auto result =
      loss_of<Invariant, double>(alone, loss, plain, prediction, batch.labels.view(), {1, 1});
  CHECK(std::abs(result.loss - 6 * 0.1) < 1e-14);
}

TEST_CASE("weights that are none, or are those of other classes, are refused") {
  auto labels = made_labels(Shape{plain[0]}, {}, 10);
  auto weights = made_weights(plain.back(), {});
  const MaskedCrossEntropy entropy{.class_weights = weights.view()};
  const NegativeLogLikelihood likelihood{.class_weights = weights.view()};
  for (const double wrong : {-1.0, not_a_number, std::numeric_limits<double>::infinity()}) {
    weights[3] = wrong;
    CHECK(contains(refusal<Batch>(entropy, labels),
                   "cross-entropy: number 3 of the class weights is "));
    CHECK(contains(refusal<Feature>(likelihood, labels),
                   "negative log-likelihood: number 3 of the class weights is "));
  }
  std::fill_n(weights.data(), weights.size(), 0);
  CHECK(contains(refusal<Invariant>(entropy, labels), "there are none in this step"));

  const Tensor<double, Invariant> few(Shape{{Axis::feature, 9}});
  const Tensor<double, Invariant> of_rows(Shape{{Axis::batch, 10}});
  for (const auto* other : {&few, &of_rows}) {
    const MaskedCrossEntropy loss{.class_weights = other->view()};
    CHECK(contains(refusal<Batch, shape_error>(loss, labels),
                   "give one number for each class, which are an axis of [feature 10]"));
  }
}
