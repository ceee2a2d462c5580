#pragma once
// The state that all parts of a model share while it runs, and the conversion of values between
// layouts.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "shardwise/backend/backend.hpp"
#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/model/collective_of.hpp"
#include "shardwise/model/compared_steps.hpp"
#include "shardwise/model/finite.hpp"
#include "shardwise/model/flight.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/model_options.hpp"
#include "shardwise/model/observer.hpp"
#include "shardwise/model/one_thread.hpp"
#include "shardwise/model/parameter_memory.hpp"
#include "shardwise/model/pass_state.hpp"
#include "shardwise/model/sending.hpp"
#include "shardwise/model/step_state.hpp"
#include "shardwise/model/tied_parameters.hpp"
#include "shardwise/model/traffic.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/redistribute/number.hpp"
#include "shardwise/redistribute/run.hpp"

namespace shardwise {

namespace detail {

/// Which stage of a pipeline a model is; one that is no stage is alone.
template <class Communicator>
struct StageOfPipeline {
  std::size_t number = 0;             ///< counted from 0
  std::size_t count = 1;              ///< of all ranks
  std::size_t on_rank = 1;            ///< of this rank, each with a model of its own
  bool counts_tied = true;            ///< whether norms count here what stages share
  Communicator* all_ranks = nullptr;  ///< of all stages; null if there are none
  /// Of the ranks along `pipeline`, those with whose stages this one shares parameters; null if
  /// there are none.
  ranks_of_layers_t<Communicator>* tied_ranks = nullptr;
};

}  // namespace detail

/// The state of one model on one rank.
template <class Context>
struct Run {
  using dtype = typename Context::dtype;  ///< of the values between layers

  detail::ranks_of_layers_t<typename Context::communicator>& ranks;  ///< that share the layers
  typename Context::communicator& all_ranks;                         ///< of the model
  typename Context::backend& backend;                                ///< that computes the tensors
  detail::StageOfPipeline<typename Context::communicator> stage{};   ///< if it is the model of one
  detail::OneThread one_thread{};         ///< that is in a call of the model
  Pool pool{detail::memory_of(backend)};  ///< for memory that is reused in later calls
  ModelOptions options{};                 ///< what the model was told
  /// The dtypes and bucket size of its messages.
  Sending sending{dtype_v<dtype>, dtype_v<typename Context::precision::reduce>,
                  default_bucket_bytes, dtype_v<typename Context::precision::parameter>};
  Seed seed{};  ///< of initial weights and dropout masks
  detail::ParameterMemory<typename Context::precision> parameters{};  ///< and their gradients
  std::uint64_t version = 1;      ///< counts changes of the parameters
  detail::TiedParameters tied{};  ///< those that several layers use
  detail::GrowingList<detail::ParametersOfLayer>
      of_layers{};                         ///< on a mesh, in the order of forward
  bool counts_tokens_as_bound = false;     ///< whether layers change the number of tokens
  detail::Traffic* traffic = nullptr;      ///< beside the layers; null if there is none
  detail::ComparedSteps compared_steps{};  ///< in which ranks compare what they are given
  detail::StepState<typename Context::backend> step{backend, pool};  ///< that is under way
  detail::PassState pass{};                                          ///< that runs
  double layer_losses = 0;  ///< what layers added here to the loss of this step, or the one before
  [[no_unique_address]] typename Context::observer observer{};  ///< of the work of a rank

  /// Adds the loss of a layer for this batch, of which it is given this share, to `layer_losses`,
  /// by its share of the step. A mean over no samples is nothing.
  void add_layer_loss(double loss, double share_of_batch) {
    const double share = share_of_batch * step.batch_share();
    if (share > 0) layer_losses += loss * share;
  }

  /// All ranks of the training: those of all stages, if this is the model of one.
  typename Context::communicator& ranks_of_all_stages() const {
    return stage.all_ranks == nullptr ? all_ranks : *stage.all_ranks;
  }

  /// The number of this rank among those that share the layers, and their number.
  Place place() const { return place_of(ranks); }

  /// The place of this rank in a view at an end of the model.
  auto place_at_ends() const {
    if constexpr (detail::MeshCommunicator<typename Context::communicator>) {
      return all_ranks.place();
    } else {
      return place();
    }
  }
};

namespace detail {

///@{
/// The `sliced_axes`, in a batch of a mesh, of tensors of a layer that is bound to `bound`: they
/// have as many tokens as that only if layers change the number of tokens. The batch is that of
/// `flight`, or the one that runs.
template <class Context>
Shape sliced_axes(const Run<Context>& run, const FlightState& flight, const Shape& bound) {
  const Shape& axes = flight.batch;
  if (axes.rank() == 1 || bound.rank() == 0) return axes;
  const Axis cut = axis_over_context(bound);
  if (cut == Axis::batch) return axes.without_back();
  const bool is_as_bound = cut == Axis::height || run.counts_tokens_as_bound;
  return is_as_bound ? axes.with_back({cut, extent_of(bound, cut)}) : axes;
}
template <class Context>
Shape sliced_axes(const Run<Context>& run, const Shape& bound) {
  return sliced_axes(run, *run.pass.flight, bound);
}
///@}

/// The shape, over all ranks of the model, of a tensor that has this shape over the ranks that
/// share the layers, where a layer was bound to `bound`.
template <class Context>
Shape over_all_slices([[maybe_unused]] const Run<Context>& run, const Shape& shape,
                      [[maybe_unused]] const Shape& bound) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    return over_all_slices(shape, sliced_axes(run, bound));
  } else {
    return shape;
  }
}

/// While it lives, the rank is in a call of the model, in one of its phases: the observer sees it,
/// and calls have its mark. When gradients are settled, ranks that have other samples call each
/// other.
template <Phase P, class Context>
class InPhase {
 public:
  explicit InPhase(Run<Context>& run)
      : call_(run.one_thread),
        marked_(static_cast<std::uint32_t>(run.step.number), run.step.batch.number, P,
                P < Phase::settle ? run.step.given : run.step.given_to_all),
        seen_(run.observer, work_of<P>()) {}

 private:
  OneThread::Call call_;
  MarkedPhase marked_;
  [[no_unique_address]] Observation<typename Context::observer> seen_;
};

/// The same, without its context being named.
template <Phase P, class Context>
InPhase<P, Context> in_phase(Run<Context>& run) {
  return InPhase<P, Context>(run);
}

/// While it lives, the rank is in a part of the model.
template <class Context>
class InNumberedPart {
 public:
  InNumberedPart(Run<Context>& run, const NumberedPart& part)
      : marked_(part), seen_(run.observer, Work{Work::Kind::part, part.name, part.number, {}}) {}

 private:
  MarkedPart marked_;
  [[no_unique_address]] Observation<typename Context::observer> seen_;
};

/// Sets a variable while it lives.
template <class T>
class SetMeanwhile {
 public:
  SetMeanwhile(T& variable, T now) noexcept
      : variable_(variable), before_(std::exchange(variable, now)) {}
  SetMeanwhile(const SetMeanwhile&) = delete;
  SetMeanwhile& operator=(const SetMeanwhile&) = delete;
  ~SetMeanwhile() { variable_ = before_; }

 private:
  T& variable_;
  T before_;
};

/// The same tensor in the layout To. While ranks sum a gradient, this one writes those of
/// parameters that layers have left until then; before it where that sum does not go on by itself.
template <Layout To, class Context, class T, Layout From>
Value<T, To> moved(Run<Context>& run, Value<T, From>&& value) {
  using R = Redistribute<From, To>;
  if constexpr (std::same_as<From, To>) {
    return std::move(value);
  } else if constexpr (moves_nothing<R, typename Context::communicator>) {
    return Value<T, To>(std::move(value));
  } else {
    if (stays_in_place<R>(value.global(), run.place().size)) return Value<T, To>(std::move(value));
    const Observation here(run.observer,
                           [&] { return redistributing<R>(value.global(), dtype_v<T>); });
    const View<const T, From> in = value.view();
    Value<T, To> result = R::movement == Movement::all_reduce && value.may_write()
                              ? Value<T, To>(std::move(value))
                              : Value<T, To>(run.pool, in.global(), run.place());
    if constexpr (std::same_as<From, Partial> &&
                  CollectivesGoOn<std::remove_reference_t<decltype(run.ranks)>>) {
      if constexpr (R::movement != Movement::all_reduce) {
        run.pass.left_until_sum.write(&run);
      } else if (!run.pass.left_until_sum.empty()) {
        auto sum = run.ranks.begin_all_reduce(in.span(), result.writable().span());
        run.pass.left_until_sum.write(&run);
        sum.finish();
        return result;
      }
    }
    redistribute(run.backend, run.ranks, run.pool, in, result.writable());
    value = {};  // otherwise its owner may hold it until the whole model has run
    return result;
  }
}

inline std::string name_of_gradients() { return "gradients"; }

/// Reports a collective to the observer, under the name `name`; for numbers of the run itself, not
/// for a tensor between layers.
template <class Context, class Call>
auto observed(Run<Context>& run, std::string (*name)(), const Collective& made, Call&& call) {
  if constexpr (AloneByType<typename Context::communicator>) {
    return call();
  } else {
    const Observation here(run.observer, Work{Work::Kind::collective, name, 0, made});
    return call();
  }
}

/// numbers = their reduction over the ranks; they are in the backend's memory.
template <class Context, class T>
void all_reduce(Run<Context>& run, std::string (*name)(), std::span<T> numbers,
                Reduction reduction = Reduction::sum) {
  observed(run, name, shardwise::all_reduce(numbers.size(), dtype_v<T>),
           [&] { run.ranks.all_reduce(std::span<const T>(numbers), numbers, reduction); });
}

/// numbers = their reduction over the ranks along one axis of a mesh; they are in the backend's
/// memory. An axis with one rank sends nothing.
template <class Context, class T>
void reduce_along(Run<Context>& run, MeshAxis axis, std::string (*name)(), std::span<T> numbers,
                  Reduction reduction = Reduction::sum) {
  if (run.all_ranks.sizes()[axis] == 1) return;
  observed(run, name, shardwise::all_reduce(numbers.size(), dtype_v<T>).over(axis), [&] {
    run.all_ranks.along(axis).all_reduce(std::span<const T>(numbers), numbers, reduction);
  });
}

/// numbers = their reduction over the ranks that have other samples of the batch, which must be a
/// mesh's.
template <class Context, class T>
void reduce_over_samples(Run<Context>& run, std::string (*name)(), std::span<T> numbers,
                         Reduction reduction = Reduction::sum) {
  const MarkedGiven without_slice(run.step.given_to_all);
  for (const MeshAxis axis : sample_axes) reduce_along(run, axis, name, numbers, reduction);
}

/// The sum of a number on the host of every rank over those that have other samples of the batch.
template <class Context>
double sum_over_samples(Run<Context>& run, std::string (*name)(), double number) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    for (const MeshAxis axis : sample_axes)
      if (run.all_ranks.sizes()[axis] > 1)
        number = observed(run, name, shardwise::all_reduce(1, Dtype::float64).over(axis), [&] {
          return all_reduced(run.backend, run.pool, run.all_ranks.along(axis), number,
                             Reduction::sum);
        });
  }
  return number;
}

/// A number on the host of every rank, reduced over these ranks.
template <class Context, Communicator C, class T>
T all_reduced(Run<Context>& run, C& ranks, std::string (*name)(), T number,
              Reduction reduction = Reduction::sum) {
  return observed(run, name, shardwise::all_reduce(1, dtype_v<T>),
                  [&] { return all_reduced(run.backend, run.pool, ranks, number, reduction); });
}

/// The same tensor in the layout To. Reuses its memory if nothing moves, or for a sum in place if
/// no other value shares it.
/// throws   numeric_error if the run finds non-finite values and a sum over ranks has one
template <Layout To, class Context, class T, Layout From>
Value<T, To> converted(Run<Context>& run, Value<T, From>&& value) {
  Value<T, To> result = detail::moved<To>(run, std::move(value));
  if constexpr (std::same_as<From, Partial> && !std::same_as<To, Partial>) {
    if (run.pass.finds_non_finite())
      detail::require_finite(run.backend, run.pool, run.all_ranks, result.view().span(),
                             "the sum over the ranks of what the layer before gives");
  }
  return result;
}

}  // namespace detail

}  // namespace shardwise
