// Steps on memory that the host cannot touch come to the same bits as on memory of the host.

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "shardwise/train/accuracy.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/binary_cross_entropy.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/huber.hpp"
#include "shardwise/train/lion.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/negative_log_likelihood.hpp"
#include "shardwise/train/rms_prop.hpp"
#include "unit/far_train/machine.hpp"

using namespace testing;

namespace {

/// Three plain steps, one of two batches that is clipped under a loss scale, and one that is
/// skipped because it overflows.
template <class Training, class Target, class Loss>
void note_steps(Bits& bits, Training& t, const Value<Target, Invariant>& target, const Loss& loss,
                Norm norm) {
  for (int i = 0; i < 3; ++i) note(bits, t.step(target, loss));
  const std::size_t reserved = t.model.run().pool.reserved();
  note(bits, t.step(target, loss));
  CHECK(t.model.run().pool.reserved() == reserved);
  LossScaler scaler(DynamicLossScale{.initial = 1024});
  const StepOptions options{.clip_norm = 0.01, .norm = norm, .scaler = &scaler};
  Step step(t.optimizer, 2 * samples, options);
  for (int i = 0; i < 2; ++i) note(bits, step.add(t.x.view(), target.view(), loss));
  note(bits, *step.finish().norm);
  t.note_values(bits);
}

/// Weights of the classes, where the backend's tensors lie.
template <class Training>
Value<double, Invariant> weights_of(Training& t) {
  return placed<double, Invariant>(t.backend, t.pool, Shape{{Axis::feature, classes}}, t.x.place(),
                                   [](std::size_t k) { return 0.5 + static_cast<double>(k % 3); });
}

/// The second of two steps takes no memory that the first did not take.
template <class Training, class Target, class Loss>
void note_two(Bits& bits, Training& t, const Value<Target, Invariant>& target, const Loss& loss) {
  note(bits, t.step(target, loss));
  const std::size_t reserved = t.model.run().pool.reserved();
  note(bits, t.step(target, loss));
  CHECK(t.model.run().pool.reserved() == reserved);
}

/// Whole logits, one rank's rows after the other.
struct WholeLogits {
  template <class B, class C>
  Bits operator()(B& backend, C& ranks) const {
    Training<ByFeature, float, Ends<Invariant, Invariant>, AdamW, B, C> t(
        backend, ranks, AdamW{.learning_rate = 0.05});
    Bits bits;
    note_steps(bits, t, t.labels, CrossEntropy{0.1}, Norm::euclidean);
    const auto weights = weights_of(t);
    const ClassWeights here = weights.view();
    note(bits, t.step(t.labels, MaskedCrossEntropy{.ignored = 1}));
    note_two(bits, t, t.labels, MaskedCrossEntropy{0.1, 1, {}, here});
    note_two(bits, t, t.target, Huber{.delta = 0.1});
    note(bits, static_cast<double>(count_correct(t.model, t.x.view(), t.labels.view())));
    note_steps(bits, t, t.target, MeanSquaredError{}, Norm::infinity);
    note(bits, detail::fingerprint_of(t.model.run(), std::tuple(t.x.view(), t.labels.view())));
    return bits;
  }
};

/// Logits split by class, computed in bf16.
struct SplitClasses {
  template <class B, class C>
  Bits operator()(B& backend, C& ranks) const {
    Training<ByClass, Precision<bf16, float>, Ends<Invariant, Feature>, RmsProp, B, C> t(
        backend, ranks, RmsProp{.learning_rate = 0.001, .momentum = 0.9, .centered = true});
    Bits bits;
    note_steps(bits, t, t.labels, CrossEntropy{0.1}, Norm::euclidean);
    const auto weights = weights_of(t);
    const ClassWeights here = weights.view();
    note(bits, t.step(t.labels, MaskedCrossEntropy{.ignored = 1}));
    note_two(bits, t, t.labels, MaskedCrossEntropy{0.1, 1, {}, here});
    note_two(bits, t, t.labels, NegativeLogLikelihood{.class_weights = here});
    note_two(bits, t, t.target, BinaryCrossEntropy{here, LossReduction::sum});
    note_steps(bits, t, t.labels, CrossEntropy{}, Norm::infinity);
    note(bits, static_cast<double>(count_top_k(t.model, t.x.view(), t.labels.view(), 3)));
    note_steps(bits, t, t.target, MeanSquaredError{}, Norm::euclidean);
    return bits;
  }
};

/// A rank's own rows, of labels and targets that are whole.
struct SplitRows {
  template <class B, class C>
  Bits operator()(B& backend, C& ranks) const {
    Training<ByFeature, double, Ends<Invariant, Batch>, Lion, B, C> t(
        backend, ranks, Lion{.learning_rate = 0.01, .weight_decay = 0.01});
    Bits bits;
    note_steps(bits, t, t.labels, CrossEntropy{}, Norm::infinity);
    const auto weights = weights_of(t);
    const ClassWeights here = weights.view();
    note(bits, t.step(t.labels, MaskedCrossEntropy{.ignored = 1}));
    note_two(bits, t, t.labels, MaskedCrossEntropy{0.1, 1, {}, here});
    note_two(bits, t, t.labels, NegativeLogLikelihood{.ignored = 1, .class_weights = here});
    note(bits, static_cast<double>(count_correct(t.model, t.x.view(), t.labels.view())));
    note_steps(bits, t, t.target, MeanSquaredError{}, Norm::euclidean);
    return bits;
  }
};

/// What goes wrong, says so, and changes nothing.
struct Refusals {
  template <class B, class C>
  Bits operator()(B& backend, C& ranks) const {
    Training<ByFeature, float, Ends<Invariant, Invariant>, AdamW, B, C> t(backend, ranks, AdamW{});
    Bits bits;
    const auto note_message = [&](auto&& call, const std::string& part) {
      const std::string message = message_of(call);
      CHECK(message.find(part) != std::string::npos);
      note(bits, message);
      t.note_values(bits);
    };
    for (const std::int32_t wrong : {-1, 10}) {
      const auto labels = placed<std::int32_t, Invariant>(
          backend, t.pool, label_shape, place_of(ranks),
          [&](std::size_t i) { return i == 4 || i == 6 ? wrong : 1; });
      const std::string what = "label " + std::to_string(wrong) + " of row 4 is no class";
      note_message([&] { t.step(labels, CrossEntropy{}); }, what);
      note_message([&] { count_correct(t.model, t.x.view(), labels.view()); }, what);
    }

    LossScaler scaler(DynamicLossScale{.initial = 0x1p127});
    Step step(t.optimizer, samples, {.scaler = &scaler});
    step.add(t.x.view(), t.target.view(), MeanSquaredError{});
    CHECK(step.finish().skipped);
    t.note_values(bits);

    Tensor<float, Invariant> weight = t.model.gather("2.weight");
    weight[5] = std::nanf("");
    t.model.set("2.weight", weight.view());
    note_message([&] { t.step(t.labels, CrossEntropy{}); }, "ByFeature / 2");
    return bits;
  }
};

}  // namespace

TEST_CASE("steps with whole logits, on one rank and on several") {
  same_alone(WholeLogits{});
  for (const int size : {2, 3}) same_on_threads(size, WholeLogits{});
}

TEST_CASE("steps with logits that are split by class, in bf16") {
  for (const int size : {2, 3}) same_on_threads(size, SplitClasses{});
}

TEST_CASE("steps with logits that are split by row") {
  for (const int size : {2, 3}) same_on_threads(size, SplitRows{});
}

TEST_CASE("wrong labels, a step that overflows and a loss that is no number") {
  same_alone(Refusals{});
  same_on_threads(2, Refusals{});
}

TEST_CASE("labels and targets of the host are refused before anything is done") {
  Far backend;
  SingleRank ranks;
  Training<ByFeature, float, Ends<Invariant, Invariant>, AdamW, Far, SingleRank> t(backend, ranks,
                                                                                   AdamW{});
  const Tensor<std::int32_t, Invariant> labels(label_shape, place_of(ranks));
  const Tensor<float, Invariant> target(t.target.view().global(), place_of(ranks));
  CHECK(detail::fingerprint_of(t.model.run(), labels.view()) == 0);
  CHECK(detail::fingerprint_of(t.model.run(), t.labels.view()) != 0);
  Bits before, after;
  t.note_values(before);
  const std::string what = "lies in memory that the model's device does not reach";
  const auto refused = [&](auto&& call, const std::string& who) {
    const std::string message = message_of(call);
    CAPTURE(message);
    CHECK(message.find(who + what) != std::string::npos);
  };
  const auto x = t.x.view();
  refused([&] { train_step(t.model, x, labels.view(), CrossEntropy{}, t.optimizer); },
          "cross-entropy: the labels ");
  refused([&] { train_step(t.model, x, target.view(), MeanSquaredError{}, t.optimizer); },
          "mean squared error: the target ");
  const Tensor<double, Invariant> weights(Shape{{Axis::feature, classes}}, place_of(ranks));
  const MaskedCrossEntropy weighted{.class_weights = weights.view()};
  refused([&] { train_step(t.model, x, t.labels.view(), weighted, t.optimizer); },
          "cross-entropy: the class weights ");
  refused([&] { count_correct(t.model, x, labels.view()); }, "count_top_k: the labels ");
  t.note_values(after);
  CHECK(after == before);
}
