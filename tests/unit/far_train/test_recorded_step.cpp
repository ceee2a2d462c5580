// A step that was recorded once comes to the same bits, launch for launch, as one that is called.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/recorded_step.hpp"
#include "shardwise/train/sgd.hpp"
#include "unit/far_train/machine.hpp"
#include "unit/far_train/ten_steps.hpp"

using namespace testing;

namespace {

/// On the host, and on a device, on which steps are called and launched.
template <class Run>
void check_steps(const Run& run) {
  {
    SingleRank alone;
    Reference near;
    const Bits expected = run.called(near, alone);
    Far far;
    CHECK(run.called(far, alone) == expected);
    CHECK(run.launched(far, alone) == expected);
  }
  for (const int size : {2, 3, 8}) {
    CAPTURE(size);
    run_ranks(size, [&](ThreadCommunicator& threads) {
      Far far;
      FarCommunicator ranks(threads, far);
      const Bits expected = run.called(far, ranks);
      CHECK(run.launched(far, ranks) == expected);
    });
  }
}

using Ahead = Ends<Invariant, Invariant>;

}  // namespace

TEST_CASE("launches of AdamW with a schedule and dropout") {
  check_steps(
      TenSteps<Dropping, float, Ahead, AdamW, CrossEntropy>{AdamW{.weight_decay = 0.1}, {0.1}});
}

TEST_CASE("launches of Sgd with momentum, with logits split by class") {
  check_steps(TenSteps<Dropping, double, Ends<Invariant, Feature>, Sgd, CrossEntropy>{
      Sgd{.momentum = 0.9, .nesterov = true}, {}});
}

TEST_CASE("launches with narrow layers and wide parameters, with rows of each rank") {
  check_steps(
      TenSteps<ByFeature, Precision<bf16, float>, Ends<Invariant, Batch>, AdamW, CrossEntropy>{
          AdamW{}, {}});
  check_steps(TenSteps<ByFeature, Precision<fp16, float, float>, Ends<Invariant, Batch>, Sgd,
                       MeanSquaredError>{Sgd{}, {}});
}

TEST_CASE("launches that clip gradients, of every dtype and by both norms") {
  const StepOptions by_root{.clip_norm = 0.5};
  check_steps(TenSteps<Dropping, float, Ahead, AdamW, CrossEntropy>{AdamW{}, {}, by_root});
  check_steps(TenSteps<Dropping, double, Ends<Invariant, Feature>, Sgd, CrossEntropy>{
      Sgd{.momentum = 0.9, .dampening = 0.5}, {}, {.clip_norm = 0.05, .norm = Norm::infinity}});
  check_steps(
      TenSteps<ByFeature, Precision<bf16, float>, Ends<Invariant, Batch>, AdamW, CrossEntropy>{
          AdamW{}, {}, by_root});
  const StepOptions high_norm{.clip_norm = 1e3};
  check_steps(TenSteps<ByFeature, Precision<fp16, float, fp16>, Ahead, Sgd, MeanSquaredError>{
      Sgd{}, {}, high_norm});
}

namespace {

using Far1 = Training<Dropping, float, Ahead, AdamW, Far, SingleRank>;

}  // namespace

TEST_CASE("a launch computes with its own numbers, not with those of the recording") {
  Far far;
  SingleRank alone;
  Far1 t(far, alone, AdamW{.learning_rate = 0.01});
  RecordedStep recorded(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
  for (int i = 0; i < 3; ++i) recorded.launch();

  Bits before;
  t.note_values(before);
  t.optimizer.set_learning_rate(0);
  recorded.launch();
  Bits after;
  t.note_values(after);
  CHECK(after == before);

  // Nothing but dropout's masks tells these launches apart.
  const double first = recorded.loss();
  recorded.launch();
  CHECK(recorded.loss() != first);
  t.model.set_step(t.model.step() - 2);
  recorded.launch();
  CHECK(recorded.loss() == first);
}

TEST_CASE("a rank that changed its learning rate between launches is told, and can go on") {
  run_ranks(3, [](ThreadCommunicator& threads) {
    Far far;
    FarCommunicator ranks(threads, far);
    Training<Dropping, float, Ahead, AdamW, Far, FarCommunicator> t(far, ranks, AdamW{});
    RecordedStep recorded(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
    for (int i = 0; i < 3; ++i) recorded.launch();
    if (ranks.rank() == 1) t.optimizer.set_learning_rate(0.5);
    Bits before;
    t.note_values(before);
    CHECK(contains(message_of([&] { recorded.launch(); }),
                   "learning_rate is 0.001 on ranks 0, 2, and 0.5 on rank 1; found at step 4"));
    Bits after;
    t.note_values(after);
    CHECK(after == before);
    CHECK(t.optimizer.steps() == 3);
    t.optimizer.set_learning_rate(0.5);
    recorded.launch();
    CHECK(std::isfinite(recorded.loss()));
    CHECK(t.optimizer.steps() == 4);
  });
}

TEST_CASE("launches leave memory alone that was taken after the recording") {
  Far far;
  SingleRank alone;
  Far1 t(far, alone, AdamW{});
  RecordedStep recorded(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
  const Tensor<float, Invariant> zeros(output_shape);
  std::vector<Value<float, Invariant>> held;  // some of what a step would use otherwise
  for (int i = 0; i < 4; ++i) {
    recorded.launch();
    held.push_back(t.model.to_device(zeros.view()));
  }
  for (const Shape& shape : {inputs_shape, output_shape, label_shape}) {
    Tensor<float, Invariant> ones(shape);
    for (std::size_t i = 0; i < ones.size(); ++i) ones[i] = 1;
    const View<const float, Invariant> view(ones.view());
    std::vector<Value<float, Invariant>> taken;
    for (int i = 0; i < 16; ++i) taken.push_back(t.model.to_device(view));
    recorded.launch();
    for (const auto& one : taken) {
      const Tensor<float, Invariant> here = t.model.to_host(one.view());
      CHECK(std::equal(here.data(), here.data() + here.size(), ones.data()));
    }
  }
}

TEST_CASE("parameters that are set between launches reach layers that read rounded copies") {
  Far far;
  SingleRank alone;
  using T = Training<ByFeature, Precision<bf16, float>, Ahead, Sgd, Far, SingleRank>;
  const auto loss_after_set = [&](bool is_launched) {
    T t(far, alone, Sgd{});
    RecordedStep recorded(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
    const auto step = [&] {
      if (is_launched)
        recorded.launch();
      else
        t.step(t.labels, CrossEntropy{});
    };
    for (int i = 0; i < 4; ++i) step();
    Tensor<float, Invariant> weight = t.model.gather("2.weight");
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 0.25F;
    t.model.set("2.weight", weight.view());
    if (!is_launched) return t.step(t.labels, CrossEntropy{});
    step();
    return recorded.loss();
  };
  CHECK(loss_after_set(true) == loss_after_set(false));
}

TEST_CASE("a loss that is no number stops all launches until it is read") {
  for (const bool wrong_label : {true, false}) {
    CAPTURE(wrong_label);
    Far far;
    SingleRank alone;
    Training<ByFeature, float, Ahead, AdamW, Far, SingleRank> t(far, alone, AdamW{});
    RecordedStep recorded(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
    for (int i = 0; i < 4; ++i) recorded.launch();
    Bits before;
    note_all(before, t);

    if (wrong_label) {
      const std::int32_t none = 10;
      far.to_device(&none, 1, t.labels.writable().data() + 5);
    } else {
      const float none = std::numeric_limits<float>::infinity();
      far.to_device(&none, 1, t.x.writable().data() + 20);
    }
    recorded.launch();
    go_to_batch(t, 1);
    recorded.launch();
    recorded.launch();
    const std::string message = message_of([&] { recorded.loss(); });
    CHECK(message.find("in the first of the last 3 launches") != std::string::npos);
    Bits after;
    note_all(after, t);
    CHECK(after == before);
    CHECK(message_of([&] { recorded.loss(); }).find("no loss yet") != std::string::npos);

    recorded.launch();
    CHECK(std::isfinite(recorded.loss()));
    CHECK(t.optimizer.steps() == 5);
  }
}

TEST_CASE("launches of weighted labels are told what the labels add up to") {
  Far far;
  SingleRank alone;
  Far1 called(far, alone, AdamW{});
  Far1 launched(far, alone, AdamW{});
  const auto weights =
      placed<double, Invariant>(far, called.pool, Shape{{Axis::feature, classes}}, {},
                                [](std::size_t k) { return static_cast<double>(k) / 4; });
  MaskedCrossEntropy loss{.label_smoothing = 0.1, .counted = 7, .class_weights = weights.view()};
  RecordedStep recorded(launched.model, launched.optimizer, loss, launched.x.view(),
                        launched.labels.view());
  for (int i = 0; i < 4; ++i) {
    recorded.launch();
    CHECK(recorded.loss() == called.step(called.labels, loss));
  }
  loss.counted = 0;
  RecordedStep uncounted(launched.model, launched.optimizer, loss, launched.x.view(),
                         launched.labels.view());
  uncounted.launch();
  CHECK(message_of([&] {
          uncounted.launch();
        }).find("a recorded step cannot read which: set `counted`") != std::string::npos);
}

TEST_CASE("the norm of a launch is that of its gradients before they were clipped") {
  Far far;
  SingleRank alone;
  Far1 called(far, alone, AdamW{});
  Far1 launched(far, alone, AdamW{});
  const StepOptions options{.clip_norm = 0.01};
  RecordedStep recorded(launched.model, launched.optimizer, CrossEntropy{}, launched.x.view(),
                        launched.labels.view(), options);
  for (int i = 0; i < 5; ++i) {
    Step step(called.optimizer, samples, options);
    step.add(called.x.view(), called.labels.view(), CrossEntropy{});
    const StepEnd end = step.finish();
    recorded.launch();
    CHECK(recorded.norm() == end.norm);
    CHECK(*recorded.norm() > 0.01);
  }
  RecordedStep unclipped(called.model, called.optimizer, CrossEntropy{}, called.x.view(),
                         called.labels.view());
  unclipped.launch();
  CHECK(!unclipped.norm());
}

TEST_CASE("a norm that is no number stops all launches until the loss is read") {
  Far far;
  SingleRank alone;
  using T = Training<ByFeature, fp16, Ahead, Sgd, Far, SingleRank>;
  T t(far, alone, Sgd{.learning_rate = 1e-6});
  RecordedStep recorded(t.model, t.optimizer, MeanSquaredError{}, t.x.view(), t.target.view(),
                        {.clip_norm = 1});
  for (int i = 0; i < 4; ++i) recorded.launch();
  Bits before;
  note_all(before, t);

  const auto put = [&](auto& there, float number) {
    const auto rounded = static_cast<fp16>(number);
    for (fp16& element : there.writable().span()) far.to_device(&rounded, 1, &element);
  };
  put(t.x, 200);  // finite, as its products are with gradients of this target, but not their sums
  put(t.target, 6e4F);
  recorded.launch();
  recorded.launch();
  const std::string message = message_of([&] { recorded.loss(); });
  CAPTURE(message);
  CHECK(message.find("the norm of all gradients was inf in the first of the last 2 launches") !=
        std::string::npos);
  Bits after;
  note_all(after, t);
  CHECK(after == before);
}

TEST_CASE("what a launch refuses, it refuses before it does anything") {
  Far far;
  SingleRank alone;
  Far1 t(far, alone, AdamW{});
  Far1 other(far, alone, AdamW{});
  CHECK(message_of([&] {
          RecordedStep(t.model, other.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
        }).find("of another model") != std::string::npos);
  LossScaler scaler(DynamicLossScale{});
  CHECK(message_of([&] {
          RecordedStep(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view(),
                       {.scaler = &scaler});
        }).find("a loss scaler decides on the host") != std::string::npos);
  t.model.run().options.sums_meanwhile = true;
  CHECK(message_of([&] {
          RecordedStep(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
        }).find("a recording has its own order of calls") != std::string::npos);
  t.model.run().options.sums_meanwhile = false;
  CHECK(message_of([&] {
          RecordedStep(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view(),
                       {.clip_norm = 0});
        }).find("the norm to cut down to is 0") != std::string::npos);
  t.model.run().stage.count = 2;
  CHECK(message_of([&] {
          RecordedStep(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
        }).find("this model is a stage of a pipeline") != std::string::npos);
  t.model.run().stage.count = 1;

  RecordedStep recorded(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
  CHECK(message_of([&] { recorded.loss(); }).find("no loss yet") != std::string::npos);
  for (int i = 0; i < 4; ++i) {
    {
      Step step(t.optimizer, samples);
      CHECK(message_of([&] { recorded.launch(); }).find("is under way") != std::string::npos);
      step.add(t.x.view(), t.labels.view(), CrossEntropy{});
      CHECK(message_of([&] { recorded.launch(); }).find("is under way") != std::string::npos);
    }
    recorded.launch();
  }
  CHECK(t.optimizer.steps() == 4);
}

TEST_CASE("work that waits for the device is not recorded, and all is as before") {
  Far far;
  float number = 7;
  CHECK_THROWS_AS(Far::Recording(far, [&] { far.to_device(&number, 1, &number); }), backend_error);
  Pool pool(far.memory());
  const Buffer memory = pool.take(sizeof number);
  auto* const there = static_cast<float*>(memory.data());
  far.to_device(&number, 1, there);
  float back = 0;
  far.to_host(there, 1, &back);
  CHECK(back == number);
}
