#pragma once
// Ten steps of a training that are called, or recorded and launched.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/recorded_step.hpp"
#include "unit/far_train/machine.hpp"

namespace testing {

/// Dropout on a shard, on the whole, statistics beside the parameters, and products that do the
/// work of an activation between them.
struct Dropping : Sequential<ColumnParallelLinear<inputs, 13>, BatchNorm<13>, Relu, Dropout<1, 4>,
                             RowParallelLinear<13, 13>, Dropout<1, 3>, ColumnParallelLinear<13, 5>,
                             GeluTanh, RowParallelLinear<5, 7>, ColumnParallelLinear<7, classes>> {
};

/// The next batch, where the last one lay.
template <class Training>
void go_to_batch(Training& t, int step) {
  using T = typename Training::T;
  Tensor<T, typename Training::In> x(inputs_shape, t.x.place());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<T>(static_cast<accumulate_t<T>>(witness::made(step, std::int64_t(i))));
  detail::to_device(t.backend, x.data(), x.size(), t.x.writable().data());
  std::array<std::int32_t, samples> labels{};
  for (std::size_t i = 0; i < samples; ++i)
    labels[i] = witness::made_label(std::int64_t(i) + step, std::int64_t(classes));
  detail::to_device(t.backend, labels.data(), samples, t.labels.writable().data());
}

/// All that a run leaves behind.
template <class Training>
void note_all(Bits& bits, Training& t) {
  t.note_values(bits);
  note(bits, t.backend, std::as_const(t.optimizer).moments());
  t.model.visit_buffers([&](auto buffer) {
    const auto numbers = buffer.value.span();
    note(bits, t.backend, std::span<const typename decltype(numbers)::value_type>(numbers));
  });
  bits.push_back(t.optimizer.steps());
  bits.push_back(t.model.step());
}

/// Ten batches, each with a learning rate of its own: step(bits, number) is called for each.
/// Returns what it notes, and all that the run leaves behind.
template <class Training, class Step>
Bits ten_steps(Training& t, Step&& step) {
  Bits bits;
  for (int i = 0; i < 10; ++i) {
    go_to_batch(t, i);
    t.optimizer.set_learning_rate(0.05 / (1 + i));
    step(bits, i);
  }
  note_all(bits, t);
  return bits;
}

template <class Net, class P, class E, class Rule, class Loss>
struct TenSteps {
  Rule rule;
  Loss loss;
  StepOptions options{};

  /// On the host, and on a device that is called for each step.
  template <class B, class C>
  Bits called(B& backend, C& ranks) const {
    Training<Net, P, E, Rule, B, C> t(backend, ranks, rule);
    return with_target(t, [&](const auto& target) {
      return ten_steps(t, [&](Bits& bits, int) { note(bits, t.step(target, loss, options)); });
    });
  }

  /// Launched; the loss is read now and then, the model is used in between, and so is its memory.
  template <class B, class C>
  Bits launched(B& backend, C& ranks) const {
    Training<Net, P, E, Rule, B, C> t(backend, ranks, rule);
    return with_target(t, [&](const auto& target) {
      RecordedStep recorded(t.model, t.optimizer, loss, t.x.view(), target.view(), options);
      return ten_steps(t, [&](Bits& bits, int i) {
        recorded.launch();
        if (i % 3 == 2) {
          const Tensor<typename decltype(t)::T, typename E::offered> other(inputs_shape,
                                                                           t.x.place());
          const auto there = t.model.to_device(other.view());
          t.model.evaluate(there.view());
        }
        CHECK(t.optimizer.steps() == std::uint64_t(i) + 1);
        note(bits, recorded.loss());
      });
    });
  }

 private:
  template <class Training, class F>
  Bits with_target(Training& t, F&& f) const {
    if constexpr (std::is_same_v<Loss, CrossEntropy>)
      return f(t.labels);
    else
      return f(t.target);
  }
};

}  // namespace testing
