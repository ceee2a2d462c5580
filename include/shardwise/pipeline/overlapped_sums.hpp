#pragma once
// Sums of gradients over the ranks while backward goes on, of several stages of a pipeline on one
// rank.

#include "shardwise/pipeline/stage.hpp"
#include "shardwise/train/overlapped_sums.hpp"
#include "shardwise/train/step_options.hpp"

namespace shardwise {

/// An OverlappedSums for each of the stages of a rank: the sums of each stage begin in its last
/// backward of a step, and go on while other stages go backward.
///
///     PipelineOverlappedSums sums(chunks);  // once, beside the optimizer
///     train_pipeline_step(chunks, interleaved_one_f_one_b(2, 8, 2), inputs, labels,
///                         CrossEntropy{}, optimizer, {.overlap = &sums});
///
/// Every rank makes one, before its first step, and the chunks outlive it.
template <class... Stages>
class PipelineOverlappedSums final
    : public SumsOfModels,
      detail::OfStage<Stages, OverlappedSums<typename Stages::model_type>>... {
 public:
  /// sends, throws    as OverlappedSums, for each stage
  explicit PipelineOverlappedSums(PipelineChunks<Stages...>& chunks)
      : detail::OfStage<Stages, OverlappedSums<typename Stages::model_type>>{
            OverlappedSums(chunks.template stage<Stages>().model())}... {}

  /// That of the stage whose model has this run; null if it is another model.
  detail::SumsMeanwhile* of(const void* run) override {
    detail::SumsMeanwhile* found = nullptr;
    ((found = found == nullptr ? sums<Stages>().of(run) : found), ...);
    return found;
  }

 private:
  template <class Stage>
  auto& sums() {
    return static_cast<detail::OfStage<Stage, OverlappedSums<typename Stage::model_type>>&>(*this)
        .member;
  }
};

}  // namespace shardwise
