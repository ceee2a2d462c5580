#pragma once
// What all parts of a model share while it runs, and how values go from one layout to another.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/changing.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/model/collective_of.hpp"
#include "shardwise/model/finite.hpp"
#include "shardwise/model/observer.hpp"
#include "shardwise/model/parameter_memory.hpp"
#include "shardwise/model/sending.hpp"
#include "shardwise/model/shared_parameters.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/redistribute/number.hpp"
#include "shardwise/redistribute/run.hpp"

namespace shardwise {

/// How far the gradients of a step are.
enum class GradientState : std::uint8_t {
  none,      ///< no batch went backward
  summands,  ///< some did; what owes a reduction is one summand on each rank
  whole      ///< settled, and nothing may be added any more
};

/// What a forward is for.
enum class Pass : std::uint8_t {
  evaluate,        ///< to be used: saves nothing, drops nothing
  train,           ///< a backward may follow
  find_non_finite  ///< as train, and stops at the first layer that gives a NaN or an infinity
};

/// What a model knows of the `Step` (train/step.hpp) that it is in.
struct StepUnderWay {
  double loss_scale = 1;  ///< what its gradients are multiplied by
};

/// The state of one model on one rank.
template <class Context>
struct Run {
  using dtype = typename Context::dtype;  ///< of what goes from layer to layer

  typename Context::communicator& ranks;  ///< who talks
  typename Context::backend& backend;     ///< who computes
  Pool pool{detail::memory_of(backend)};  ///< for what lives from one call to the next
  ParameterMemory<typename Context::precision> parameters{};  ///< and their gradients
  SharedParameters shared{};                                  ///< those that several layers use
  Seed seed{};                                                ///< of initial weights and of masks
  std::uint64_t step = 1;  ///< keys the randomness of layers; 0 is for initial weights
  /// The step as loops of a device find it.
  detail::Changing<typename Context::backend, std::uint32_t> step_there{backend, pool, 1};
  std::uint64_t first_sample = 0;  ///< samples of this step that went forward before this batch
  std::uint64_t version = 1;       ///< counts changes of the parameters
  GradientState gradients = GradientState::none;  ///< of this step
  const StepUnderWay* under_way = nullptr;  ///< null between Steps, and if a program uses none
  std::size_t bucket_bytes = default_bucket_bytes;              ///< of gradients, settled at a time
  Pass pass = Pass::train;                                      ///< what this forward is for
  [[no_unique_address]] typename Context::observer observer{};  ///< who looks on

  /// Goes to that step, for what the backend is called for from now on.
  void begin_step(std::uint64_t number) {
    step_there.set(backend, RandomStream::step_word(number));
    step = number;
  }

  /// Goes back to before the first batch of the step.
  void forget_step() {
    gradients = GradientState::none;
    under_way = nullptr;
    first_sample = 0;
    pass = Pass::train;
  }

  ///@{
  /// What the pass asks of layers.
  bool trains() const { return pass != Pass::evaluate; }
  bool finds_non_finite() const { return pass == Pass::find_non_finite; }
  ///@}

  /// Whether gradients of a batch replace what is there or are added to it.
  Write write() const { return gradients == GradientState::none ? Write::replace : Write::add; }

  /// Which rank this is.
  Place place() const { return place_of(ranks); }
};

namespace detail {

template <Layout To, class Context, class T, Layout From>
Value<T, To> moved(Run<Context>& run, Value<T, From>&& value) {
  using R = Redistribute<From, To>;
  if constexpr (std::same_as<From, To>) {
    return std::move(value);
  } else if constexpr (moves_nothing<R, typename Context::communicator>) {
    return Value<T, To>(std::move(value));
  } else {
    const Observation here(run.observer,
                           [&] { return redistributing<R>(value.global(), dtype_v<T>); });
    if constexpr (R::movement == Movement::all_reduce) {
      if (value.may_write()) {
        const View<const T, From> in = value.view();
        Value<T, To> sum(std::move(value));
        redistribute(run.backend, run.ranks, run.pool, in, sum.writable());
        return sum;
      }
    }
    Value<T, To> result(run.pool, value.global(), run.place());
    redistribute(run.backend, run.ranks, run.pool, value.view(), result.writable());
    value.release();  // whose owner may live until the whole model has run
    return result;
  }
}

/// The same for an all-reduce, by ranks that can start one, of what may be written to. They add
/// while meanwhile() is called.
template <Layout To, class Context, class T, Layout From, class Meanwhile>
Value<T, To> moved_while(Run<Context>& run, Value<T, From>&& value, Meanwhile&& meanwhile) {
  const Observation here(run.observer, [&] {
    return redistributing<Redistribute<From, To>>(value.global(), dtype_v<T>);
  });
  const View<const T, From> in = value.view();
  Value<T, To> sum(std::move(value));
  const auto started = run.ranks.start_all_reduce(in.span(), sum.writable().span());
  meanwhile();
  return sum;
}

/// Tells the observer of an all-reduce of `elements` numbers of the run's own, which `name` names,
/// and not of a tensor on its way.
template <class T, class Context, class Call>
auto observed(Run<Context>& run, std::string (*name)(), std::size_t elements, Call&& call) {
  if constexpr (AloneByType<typename Context::communicator>) {
    return call();
  } else {
    const Observation here(run.observer, Work{Work::Kind::collective, name, 0,
                                              shardwise::all_reduce(elements, dtype_v<T>)});
    return call();
  }
}

/// numbers = what they come to over the ranks; they lie where the backend's tensors do.
template <class Context, class T>
void all_reduce(Run<Context>& run, std::string (*name)(), std::span<T> numbers,
                Reduction reduction = Reduction::sum) {
  observed<T>(run, name, numbers.size(),
              [&] { run.ranks.all_reduce(std::span<const T>(numbers), numbers, reduction); });
}

/// A number that every rank has on the host, reduced over the ranks.
template <class Context, class T>
T all_reduced(Run<Context>& run, std::string (*name)(), T number,
              Reduction reduction = Reduction::sum) {
  return observed<T>(run, name, 1, [&] {
    return all_reduced(run.backend, run.pool, run.ranks, number, reduction);
  });
}

}  // namespace detail

/// The same tensor laid out as To; its memory is reused where nothing moves, or in place where
/// nobody else holds it.
/// throws   numeric_error, while a value that is no number is looked for, if a sum makes one
template <Layout To, class Context, class T, Layout From>
Value<T, To> converted(Run<Context>& run, Value<T, From>&& value) {
  Value<T, To> result = detail::moved<To>(run, std::move(value));
  if constexpr (std::same_as<From, Partial> && !std::same_as<To, Partial>) {
    if (run.finds_non_finite())
      detail::require_finite(run.backend, run.pool, run.ranks, result.view().span(),
                             "the sum over the ranks of what the layer before gives");
  }
  return result;
}

}  // namespace shardwise
