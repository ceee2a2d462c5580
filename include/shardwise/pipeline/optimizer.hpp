#pragma once
// The optimizers of several stages of a pipeline on one rank.

#include <cstdint>
#include <tuple>

#include "shardwise/model/keep.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/train/optimizer.hpp"

namespace shardwise {

/// An Optimizer for each of the stages of a rank, with the same rule; a step of training updates
/// all of them.
///
///     PipelineOptimizer optimizer(chunks, AdamW{}, Keep::state_over_data);
///
/// The chunks must outlive it.
template <class Rule, class... Stages>
class PipelineOptimizer : detail::OfStage<Stages, Optimizer<Rule, typename Stages::model_type>>... {
  using First = std::tuple_element_t<0, std::tuple<Stages...>>;

 public:
  using trained = PipelineChunks<Stages...>;  ///< what it trains

  ///@{
  /// Every rank of the mesh makes it, with the same arguments; `keep` is that of the models if it
  /// is left out. sends, throws    as `Optimizer`, for each stage
  PipelineOptimizer(PipelineChunks<Stages...>& chunks, const Rule& rule)
      : PipelineOptimizer(chunks, rule, chunks.of_rank().options().keep) {}
  PipelineOptimizer(PipelineChunks<Stages...>& chunks, const Rule& rule, Keep keep)
      : detail::OfStage<Stages, Optimizer<Rule, typename Stages::model_type>>{
            {chunks.template stage<Stages>().model(), rule, keep}}... {}
  ///@}

  /// That of a stage.
  template <class Stage>
  auto& stage() {
    return static_cast<detail::OfStage<Stage, Optimizer<Rule, typename Stage::model_type>>&>(*this)
        .member;
  }
  /// Calls f(Optimizer) for each stage.
  template <class F>
  void for_each(F&& f) {
    (f(stage<Stages>()), ...);
  }

  ///@{
  /// As those of an Optimizer; the same for all stages.
  const Rule& rule() { return stage<First>().rule(); }
  Keep keep() { return stage<First>().keep(); }
  std::uint64_t steps() { return stage<First>().steps(); }
  void set_learning_rate(double rate) { (stage<Stages>().set_learning_rate(rate), ...); }
  void set_steps(std::uint64_t steps) { (stage<Stages>().set_steps(steps), ...); }
  ///@}
};

}  // namespace shardwise
