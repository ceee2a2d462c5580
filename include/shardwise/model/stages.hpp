#pragma once
// The models that a rank trains together: one model, or those of all stages of a pipeline that the
// rank has.

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "shardwise/comm/mark.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/model/collective_list.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/shares.hpp"

namespace shardwise::detail {

/// The runs of such models, in the order of the stages.
template <class Context, std::size_t N>
struct Runs {
  Run<Context>* of[N];  ///< the models
  Shares* shares[N]{};  ///< what optimizers update, or null

  Run<Context>& first() const { return *of[0]; }
};

/// Whether this is one model, and no stages of a pipeline.
template <class M>
concept OneModel = requires(M& models) {
  models.run();
};

/// Calls f(Model&) for a model, or for that of each stage.
template <class M, class F>
void for_each_model(M& models, F&& f) {
  if constexpr (OneModel<M>) {
    f(models);
  } else {
    models.for_each([&](auto& stage) { f(stage.model()); });
  }
}

/// The runs of a model, or of those of all stages.
template <class M>
auto runs_of(M& models) {
  if constexpr (OneModel<M>) {
    return Runs<typename M::context, 1>{{&models.run()}};
  } else {
    return models.runs();
  }
}

/// Throws argument_error unless these are all stages that the rank has of a pipeline.
template <class Context, std::size_t N>
void require_all_stages(const Runs<Context, N>& runs, const char* who) {
  const std::size_t on_rank = runs.first().stage.on_rank;
  if (on_rank == N) return;
  throw argument_error({"pipeline: each rank has ", on_rank, " stages, but ", who, " was given ", N,
                        " of them; give it the PipelineChunks"});
}

/// While it lives, the rank is in a phase of all these models.
template <Phase P, class Context, std::size_t N>
class InPhases {
 public:
  explicit InPhases(const Runs<Context, N>& runs) : InPhases(runs, std::make_index_sequence<N>{}) {}

 private:
  template <std::size_t... Is>
  InPhases(const Runs<Context, N>& runs, std::index_sequence<Is...>)
      : phases_{InPhase<P, Context>(*runs.of[Is])...} {}

  InPhase<P, Context> phases_[N];
};

/// numbers = their reduction over the ranks along `pipeline`; they are in the backend's memory.
/// Nothing if the model is no stage.
template <class Context, class T>
void reduce_over_stages(Run<Context>& run, std::string (*name)(), std::span<T> numbers,
                        Reduction reduction) {
  if (run.stage.all_ranks == nullptr) return;
  observed(run, name, shardwise::all_reduce(numbers.size(), dtype_v<T>).over(MeshAxis::pipeline),
           [&] {
             run.stage.all_ranks->along(MeshAxis::pipeline)
                 .all_reduce(std::span<const T>(numbers), numbers, reduction);
           });
}

}  // namespace shardwise::detail
