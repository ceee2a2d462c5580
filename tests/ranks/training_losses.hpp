#pragma once
// A model that learns the same made-up batch in every step, for tests that compare losses.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/step.hpp"
#include "support/filled.hpp"
#include "witness/formula.hpp"

namespace testing {

/// The losses of `steps` steps, as this rank sees them. Calls after_step(step) after each.
template <class Architecture, class P, class Backend, class C, class Rule, class F>
std::vector<double> training_losses(C& ranks, const shardwise::Shape& in, const Rule& rule,
                                    std::size_t steps, F&& after_step) {
  using namespace shardwise;
  using M = Model<Architecture, Context<P, Backend, C>>;
  using T = typename M::dtype;
  M model(Architecture{}, ranks, Seed{1}, in);
  const auto classes = static_cast<std::int64_t>(model.layers().output_shape(in).back().extent());
  const auto x = filled<T, Invariant>(in, place_of(ranks), [](std::size_t i) {
    return detail::rounded<T>(witness::made(1, static_cast<std::int64_t>(i)));
  });
  const auto labels = filled<std::int32_t, Invariant>(
      Shape{in[0]}, place_of(ranks),
      [&](std::size_t i) { return witness::made_label(static_cast<std::int64_t>(i), classes); });
  Optimizer optimizer(model, rule);
  std::vector<double> losses(steps);
  for (std::size_t step = 0; step < steps; ++step) {
    losses[step] =
        static_cast<double>(train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer));
    after_step(step);
  }
  return losses;
}

}  // namespace testing
