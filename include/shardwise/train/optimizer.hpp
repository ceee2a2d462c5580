#pragma once
// Turns gradients into new parameters, by a rule.

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"

namespace shardwise {

/// How one parameter changes: options in a struct, and arithmetic for one element.
///
///     rule.learning_rate                    may change from step to step
///     rule.check()                          throws argument_error for options that make no sense
///     rule.moments()                        numbers that are kept for each element
///     rule.update<A>(step)                  what happens in that step, counted from 1: an object
///     update(value, gradient, moments)      that returns the new value, and changes the moments
///
/// valid: `Sgd`, `AdamW`
template <class R>
concept UpdateRule = requires(R rule, const R& constant, float* moments) {
  { rule.learning_rate } -> std::convertible_to<double>;
  constant.check();
  { constant.moments() } -> std::same_as<std::size_t>;
  { constant.template update<float>(std::uint64_t{1})(1.0F, 1.0F, moments) } -> std::same_as<float>;
};

namespace detail {

/// Throws argument_error unless `value` is a number of at least 0 (and below `end`).
inline void check_option(const char* rule, const char* option, double value, double end) {
  if (std::isfinite(value) && value >= 0 && value < end) return;
  throw argument_error(std::string(rule) + ": " + option + " is " + std::to_string(value) +
                       "; it must be at least 0" +
                       (std::isfinite(end) ? " and below " + std::to_string(end) : std::string()));
}

}  // namespace detail

/// Changes all parameters of a model by one rule, on the rank's own part of them:
///
///     Optimizer optimizer(model, Sgd{.learning_rate = 0.1, .momentum = 0.9});
///
/// Computes in accumulate_t of the dtype of the model's parameters and keeps moments in it;
/// parameters are rounded to their dtype once a step. The model must outlive the optimizer's last
/// step.
/// sends    nothing
template <class Rule, class M>
class Optimizer {
  static_assert(UpdateRule<Rule>,
                "Rule is no rule by which an Optimizer could change parameters: take Sgd{} or "
                "AdamW{}, or write learning_rate, check, moments and update as "
                "train/optimizer.hpp says.");
  static_assert(M::use::trains,
                "an Optimizer needs gradients, and a model for ForwardOnly has none: make the "
                "Model with Train or TrainWithInputGradient.");
  using T = typename M::parameter_dtype;
  using A = accumulate_t<T>;

 public:
  /// throws   argument_error for options of the rule, memory_error
  Optimizer(M& model, const Rule& rule) : model_(&model), rule_(checked(rule)) {
    const std::size_t count = model.values().size() * rule_.moments();
    memory_ = pool_.take(count * sizeof(A));
    moments_ = static_cast<A*>(memory_.data());
    std::fill_n(moments_, count, A(0));
  }

  /// Applies the model's gradients, which must be settled. The model's `next_step` comes after it.
  void step() {
    ++steps_;
    const auto update = rule_.template update<A>(steps_);
    model_->backend().for_each(
        model_->values().size(),
        [update, per_element = rule_.moments(), moments = moments_,
         values = model_->values().data(), gradients = model_->gradients().data()](std::size_t i) {
          values[i] = static_cast<T>(update(static_cast<A>(values[i]), static_cast<A>(gradients[i]),
                                            moments + i * per_element));
        });
  }

  /// The model whose parameters it changes.
  const M& model() const { return *model_; }

  /// The rule and its options, with the learning rate of the next step.
  const Rule& rule() const { return rule_; }

  /// For the steps from the next one on.
  /// throws   argument_error for a rate that is negative or no number
  void set_learning_rate(double rate) {
    Rule changed = rule_;
    changed.learning_rate = rate;
    rule_ = checked(changed);
  }

  ///@{
  /// Steps done so far. Setting them continues another optimizer's count, as from a checkpoint.
  std::uint64_t steps() const { return steps_; }
  void set_steps(std::uint64_t steps) { steps_ = steps; }
  ///@}

  /// The numbers kept for the element `value` of the model's `values()`; those of the next element
  /// follow, `rule().moments()` for each.
  A* moments_of(const T* value) {
    return moments_ + (value - model_->values().data()) * std::ptrdiff_t(rule_.moments());
  }

 private:
  static const Rule& checked(const Rule& rule) {
    rule.check();
    return rule;
  }

  M* model_;
  Rule rule_;
  Pool pool_;
  Buffer memory_;
  A* moments_ = nullptr;
  std::uint64_t steps_ = 0;
};

}  // namespace shardwise
