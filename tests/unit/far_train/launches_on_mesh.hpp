#pragma once
// Steps of training with two outputs on a mesh that are called, or recorded and launched.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/model/composition.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/recorded_step.hpp"
#include "unit/far_train/machine.hpp"

namespace testing {

/// Parameters that are split, that are whole, and whose gradients are summands.
struct TwoOutputs
    : Graph<1,
            At<Sequential<ColumnParallelLinear<6, 7>, Relu, Dropout<1, 4>, RowParallelLinear<7, 5>,
                          To<Batch>, LayerNorm<5>, To<Invariant>>,
               0>,
            Output<RowParallelLinear<5, 4>, 1>, Output<Linear<split::none, 5, 3>, 1>> {};

/// Six steps on batches of five samples of three tokens, with other ranks' samples and tokens on a
/// mesh.
template <class P, class B, class Ranks>
class OnMesh {
  using M = Model<TwoOutputs, Context<P, B, Ranks>, Ends<Invariant, Layouts<Invariant, Invariant>>>;
  using T = typename M::dtype;
  using Slices = SamplesOverMesh<Invariant>;

 public:
  OnMesh(B& backend, Ranks& ranks, Keep keep, const StepOptions& options)
      : backend_(backend),
        model_(TwoOutputs{}, ranks, Seed{5}, tokens_of(6), backend,
               {.keep = cuts_gradients(keep) ? keep : Keep::whole}),
        optimizer_(model_, AdamW{.weight_decay = 0.1}, keep),
        options_(options),
        x_(pool_, tokens_of(6), ranks.place()),
        target_(pool_, tokens_of(3), ranks.place()),
        labels_(pool_, label_shape_, place_for<Invariant>(ranks.place())) {}

  /// By a Step.
  Bits called() {
    return six_steps([&](Bits& bits, int) {
      Step step(optimizer_, 5, options_);
      note(bits, step.add(x_.view(), targets(), losses()));
      note(bits, step.finish().norm.value_or(0));
    });
  }

  /// By a RecordedStep; the model is used in between.
  Bits launched() {
    RecordedStep recorded(model_, optimizer_, losses(), x_.view(), targets(), options_);
    return six_steps([&](Bits& bits, int i) {
      recorded.launch();
      if (i % 2 == 1) model_.evaluate(x_.view());
      note(bits, recorded.loss());
      note(bits, recorded.norm().value_or(0));
    });
  }

  /// A label that is no class, in the first sample: launches change nothing on any rank, until the
  /// loss is read.
  void check_stops() {
    RecordedStep recorded(model_, optimizer_, losses(), x_.view(), targets(), options_);
    put_batch(0);
    for (int i = 0; i < 3; ++i) recorded.launch();
    const Bits before = left();
    put(labels_, [](std::size_t k) { return k == 1 ? 4 : 0; });
    recorded.launch();
    recorded.launch();
    const std::string message = message_of([&] { recorded.loss(); });
    CAPTURE(message);
    CHECK(message.find("in the first of the last 2 launches") != std::string::npos);
    CHECK(left() == before);
    put_batch(1);
    recorded.launch();
    recorded.loss();
    CHECK(optimizer_.steps() == 4);
  }

 private:
  static constexpr Shape tokens_of(std::size_t features) {
    return {{Axis::batch, 5}, {Axis::sequence, 3}, {Axis::feature, features}};
  }
  static constexpr Shape label_shape_{{Axis::batch, 5}, {Axis::sequence, 3}};

  static auto losses() {
    return std::tuple{CrossEntropy{.label_smoothing = 0.1}, Weighted{MeanSquaredError{}, -0.5}};
  }
  auto targets() const { return std::tuple{labels_.view(), target_.view()}; }

  /// Fills `there` with number(global element).
  template <class E, Layout L, class F>
  void put(Value<E, L>& there, F number) {
    const auto here = filled<E, L>(there.global(), there.place(), number);
    detail::to_device(backend_, here.data(), here.size(), there.writable().data());
  }

  void put_batch(int number) {
    const auto made = [&](std::size_t k) {
      return static_cast<accumulate_t<T>>(witness::made(number, static_cast<std::int64_t>(k)));
    };
    put(x_, made);
    put(target_, made);
    put(labels_, [&](std::size_t k) {
      return witness::made_label(static_cast<std::int64_t>(k) + number, 4);
    });
  }

  template <class F>
  Bits six_steps(F&& step) {
    Bits bits;
    for (int i = 0; i < 6; ++i) {
      put_batch(i);
      optimizer_.set_learning_rate(0.05 / (1 + i));
      step(bits, i);
    }
    for (const std::uint64_t number : left()) bits.push_back(number);
    return bits;
  }

  /// All that steps change.
  Bits left() {
    Bits bits;
    note(bits, backend_, std::span<const typename M::parameter_dtype>(model_.values()));
    note(bits, backend_, std::as_const(optimizer_).moments());
    bits.push_back(optimizer_.steps());
    bits.push_back(model_.step());
    return bits;
  }

  B& backend_;
  Pool pool_{detail::memory_of(backend_)};
  M model_;
  Optimizer<AdamW, M> optimizer_;
  StepOptions options_;
  Value<T, Slices> x_;
  Value<T, Slices> target_;
  Value<std::int32_t, Invariant> labels_;
};

}  // namespace testing
