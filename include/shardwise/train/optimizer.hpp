#pragma once
// Updates parameters from their gradients, by a rule.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "shardwise/backend/detail/changing.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/model/parameter_memory.hpp"
#include "shardwise/model/shares.hpp"
#include "shardwise/model/stages.hpp"
#include "shardwise/train/update_rule.hpp"

namespace shardwise {

namespace detail {

/// Throws argument_error unless the gradients are whole and no step has applied them.
void require_new_gradients(std::uint64_t step, GradientState gradients);

}  // namespace detail

/// Updates a rank's parts of all parameters of a model by one rule:
///
///     Optimizer optimizer(model, Sgd{.learning_rate = 0.1, .momentum = 0.9});
///     Optimizer optimizer(model, AdamW{}, Keep::state_over_data);
///
/// Computes in accumulate_t of the dtype of the model's parameters, and stores moments in it.
/// Parameters are rounded to their dtype once a step. The model must outlive the optimizer.
///
/// With `Keep::state_over_data`, for a model on MeshRanks, each rank updates a share of the
/// parameters that ranks along `data` hold alike, keeps the moments of that share only, and gathers
/// the other parameters. A `Step` then gives each rank the sums of gradients of its share only.
/// Results have the same bits as with `Keep::whole`; `updated_parameters_of_rank` tells the size of
/// shares. So it is with a model that was made with `Keep::gradients_over_data`, but for the bits
/// of steps of several batches. Of one that was made with `Keep::all_over_data`, each rank updates
/// what it stores.
/// sends    nothing with Keep::whole; else `plan_step(model, in, loss, options, keep).update` in
/// each step
template <class Rule, class M>
class Optimizer {
  static_assert(UpdateRule<Rule>,
                "Rule is no rule by which an Optimizer could change parameters: take Sgd{} or "
                "AdamW{}, or write learning_rate, check, moments and update as "
                "train/update_rule.hpp says.");
  static_assert(M::use::trains,
                "an Optimizer needs gradients, and a model for ForwardOnly has none: make the "
                "Model with Train or TrainWithInputGradient.");
  using T = typename M::parameter_dtype;
  using A = accumulate_t<T>;

 public:
  using trained = M;  ///< what it trains

  ///@{
  /// On a mesh all ranks make it, with the same `keep`; it is the model's if it is left out.
  /// sends    on a mesh an all-gather of one byte of each rank
  /// throws   argument_error for options of the rule, for a Keep other than `whole` of a model that
  ///          is on no mesh, and for another one than the model's if one of the two cuts gradients;
  ///          collective_error on every rank if they are given different ones; memory_error
  Optimizer(M& model, const Rule& rule) : Optimizer(model, rule, model.keep()) {}
  Optimizer(M& model, const Rule& rule, Keep keep)
      : model_(&model),
        rule_(checked(rule)),
        keep_(detail::agreed_keep(model.run(), keep)),
        shares_(detail::shares_of(model.run(), keep)),
        pool_(detail::memory_of(model.backend())),
        update_(model.backend(), pool_, rule_.template update<A>(1)),
        update_undecayed_(model.backend(), pool_, rule_.template update<A>(1)) {
    std::size_t elements = 0;
    for (const detail::Share& one : shares_.of) elements += one.mine.size;
    const std::size_t count = elements * rule_.moments();
    memory_ = pool_.take(count * sizeof(A));
    moments_ = {static_cast<A*>(memory_.data()), count};
    detail::fill(model.backend(), moments_.data(), count, A(0));
  }
  ///@}

  /// Applies the model's gradients, which must be settled, or written by the program and told by
  /// `gradients_written`. Call the model's `next_step` after it. A collective if the Keep is not
  /// `whole`.
  /// throws   argument_error without a backward since the model's last step, after one without a
  ///          `settle_gradients`, and for a second step by the same gradients
  void step() {
    begin_update();
    update_values([this](std::size_t n, const auto& loop) { model_->backend().for_each(n, loop); });
    model_->run().step.gradients = GradientState::applied;
    ++steps_;
  }

  /// `step` and the model's `next_step` together. Layers then read the parameters that were rounded
  /// in the same pass, so nothing else may change values in between.
  void end_step() {
    step();
    end_model_step();
  }

  ///@{
  /// `end_step` in three parts; the second can be recorded. begin_update stores the update of the
  /// next step where loops find it, update_values calls run(n, loop) for the loops that change
  /// values and gathers what other ranks have changed, and end_update counts the step.
  /// throws   as step
  void begin_update() {
    detail::require_new_gradients(steps_ + 1, model_->run().step.gradients);
    update_.set(model_->backend(), rule_.template update<A>(steps_ + 1));
    if (detail::decays_chosen(rule_))
      update_undecayed_.set(model_->backend(),
                            detail::without_decay(rule_).template update<A>(steps_ + 1));
  }
  template <class Run>
  void update_values(Run&& run) {
    const detail::OneThread::Call call(model_->run().one_thread);
    auto& memory = model_->run().parameters;
    apply(0, memory.collected(), memory.gradients().data(), run);
    if constexpr (Memory::collects)
      apply(memory.collected(), memory.size(), memory.of_batch(), run);
    detail::gather_shares(model_->run(), shares_);
  }
  void end_update() {
    ++steps_;
    end_model_step();
  }
  ///@}

  /// The model whose parameters it changes.
  M& model() const { return *model_; }

  /// The rule and its options, with the learning rate of the next step.
  const Rule& rule() const { return rule_; }

  /// What it keeps on this rank.
  Keep keep() const { return keep_; }

  /// Sets the learning rate from the next step on.
  /// throws   argument_error for a rate that is negative or NaN
  void set_learning_rate(double rate) {
    Rule changed = rule_;
    changed.learning_rate = rate;
    rule_ = checked(changed);
  }

  ///@{
  /// Number of steps so far. Set it to continue another optimizer's count, as from a checkpoint.
  std::uint64_t steps() const { return steps_; }
  void set_steps(std::uint64_t steps) { steps_ = steps; }
  ///@}

  /// What this rank updates; for Step.
  detail::Shares& shares() { return shares_; }

  ///@{
  /// All moments that this rank keeps, in the backend's memory.
  std::span<A> moments() { return moments_; }
  std::span<const A> moments() const { return moments_; }
  ///@}

  /// The elements of the rank's part of a parameter whose moments this rank keeps. They follow each
  /// other, and are all of them with `Keep::whole`.
  Interval kept_of(const detail::ParameterSlot& slot) const {
    const auto& memory = model_->run().parameters;
    const Interval stored = memory.stored(slot);
    const std::size_t begin = memory.position(slot);
    for (const detail::Share& one : shares_.of) {
      const Interval kept = detail::overlap({begin, stored.size}, one.mine);
      if (kept.size > 0) return {stored.offset + kept.offset - begin, kept.size};
    }
    return {};
  }

  /// The moments of the first element in `kept_of(slot)`; those of the next element follow,
  /// `rule().moments()` for each element. Null if there is none.
  A* moments_of(const detail::ParameterSlot& slot) {
    const auto& memory = model_->run().parameters;
    const Interval kept = kept_of(slot);
    const std::size_t first = memory.position(slot) + kept.offset - memory.stored(slot).offset;
    for (const detail::Share& one : shares_.of)
      if (kept.size > 0 && first - one.mine.offset < one.mine.size)
        return moments_.data() + place_of_moments(one, first);
    return nullptr;
  }

 private:
  using Memory = detail::ParameterMemory<typename M::precision>;
  using Update = decltype(std::declval<const Rule&>().template update<A>(1));
  using Count = decltype(detail::moments_of(std::declval<const Rule&>()));
  using Changing = detail::Changing<typename M::backend_type, Update>;

  std::size_t place_of_moments(const detail::Share& in, std::size_t position) const {
    return (in.before + position - in.mine.offset) * rule_.moments();
  }

  /// Updates the values [first, last), as far as this rank does. `gradients` has the gradients of
  /// the model.
  template <class Given, class Run>
  void apply(std::size_t first, std::size_t last, const Given* gradients, Run& run) {
    for (const detail::Share& one : shares_.of) {
      const std::size_t begin = std::max(first, one.mine.offset);
      const std::size_t end = std::min(last, one.mine.end());
      if (!detail::decays_chosen(rule_)) {
        apply(one, begin, end, gradients, run, update_);
        continue;
      }
      model_->run().parameters.for_each_decay([&](std::size_t from, std::size_t to, bool decays) {
        apply(one, std::max(begin, from), std::min(end, to), gradients, run,
              decays ? update_ : update_undecayed_);
      });
    }
  }
  template <class Given, class Run>
  [[gnu::noinline]] void apply(const detail::Share& in, std::size_t first, std::size_t last,
                               const Given* gradients, Run& run, const Changing& update) {
    if (first >= last) return;
    const auto& memory = model_->run().parameters;
    detail::UpdateElement<typename M::precision, decltype(update.here()), Given, Count> loop{
        update.here(), detail::moments_of(rule_), moments_.data() + place_of_moments(in, first),
        memory.values().data() + first, gradients + in.gradients.offset + (first - in.mine.offset)};
    if constexpr (Memory::copies) loop.copies = memory.rounded_copies() + first;
    run(last - first, loop);
  }

  void end_model_step() {
    model_->next_step();
    auto& run = model_->run();
    if (!shares_.are_cut) run.parameters.copied(run.version);
  }

  static const Rule& checked(const Rule& rule) {
    rule.check();
    return rule;
  }

  M* model_;
  Rule rule_;
  Keep keep_;
  detail::Shares shares_;
  Pool pool_;
  Changing update_;
  Changing update_undecayed_;  // for parameters without weight decay
  Buffer memory_;
  std::span<A> moments_{};
  std::uint64_t steps_ = 0;
};

namespace detail {

/// Calls f(Optimizer&) for an optimizer, or for those of all stages of a rank.
template <class O, class F>
void for_each_optimizer(O& optimizers, F&& f) {
  if constexpr (requires { optimizers.model(); }) {
    f(optimizers);
  } else {
    optimizers.for_each(f);
  }
}

/// Whether O is an Optimizer of the model M, or a PipelineOptimizer of the PipelineChunks M.
template <class O, class M>
concept OptimizerOf = std::same_as<typename O::trained, M>;

/// Throws argument_error for another model's optimizer.
template <class M, OptimizerOf<M> O>
void require_own(M& model, O& optimizer, const char* who) {
  const auto runs = runs_of(model);
  std::size_t number = 0;
  for_each_optimizer(optimizer, [&](auto& one) {
    if (runs.of[number++] == &one.model().run()) return;
    throw argument_error({who,
                          ": the optimizer is of another model: give the one that was made for "
                          "this model"});
  });
}

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void require_new_gradients(std::uint64_t step, GradientState gradients) {
  if (gradients == GradientState::whole) return;
  if (gradients == GradientState::none) {
    throw argument_error(
        {"Optimizer: step ", step,
         " without gradients: no backward ran since the last step of the model ended or was "
         "discarded, and the gradients before it would be applied once more. Call model.backward "
         "and model.settle_gradients() before each step; a program that writes "
         "model.gradients() itself calls model.gradients_written() after it"});
  }
  if (gradients == GradientState::applied) {
    throw argument_error(
        {"Optimizer: step ", step,
         " by gradients that the step before has applied already. Call model.next_step() after "
         "each step(), or end_step(), which does both"});
  }
  throw argument_error(
      {"Optimizer: step ", step,
       " before settle_gradients: of some gradients each rank has only its summand, so ranks would "
       "go on with different parameters. Call model.settle_gradients() after the last backward of "
       "a step"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
