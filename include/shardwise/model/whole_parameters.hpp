#pragma once
// Whole parameters on ranks that store a share of them, gathered while they are used; and gradients
// of whole parameters on ranks that store a share of these, reduced to it.

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "shardwise/backend/backend.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/model/collective_list.hpp"
#include "shardwise/model/parameter_memory.hpp"
#include "shardwise/model/precision.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/redistribute/packed.hpp"

namespace shardwise::detail {

/// How many elements of a parameter, or of its gradient, each rank along `data` stores: `layout` is
/// that of the parameters, or that of the gradients.
template <class Context>
Counts stored_counts(Run<Context>& run, const ParameterLayout& layout, const ParameterSlot& slot) {
  const int ranks = run.all_ranks.sizes().data;
  return Counts(run.pool, ranks, [&](int rank) { return layout.stored(slot, {rank, ranks}).size; });
}

/// Calls gather(mine, whole) for a parameter that is not empty, or for its gradient: it gathers all
/// elements of it, or begins that. `stored` are those of this rank.
template <class Context, class T, class Gather>
void gather_stored_by(Run<Context>& run, const ParameterLayout& layout, const ParameterSlot& slot,
                      const T* stored, T* whole, Gather&& gather) {
  if (slot.size == 0) return;
  const MarkedGiven without_slice(run.step.given_to_all);
  const std::span<const T> mine(stored, layout.stored(slot).size);
  observed(
      run, [] { return std::string("parameters"); },
      shardwise::all_gather(slot.size, dtype_v<T>).over(MeshAxis::data),
      [&] { gather(mine, std::span(whole, slot.size)); });
}

/// whole = all elements of a parameter or of its gradient. `stored` are those of this rank.
template <class Context, class T>
void gather_stored(Run<Context>& run, const ParameterLayout& layout, const ParameterSlot& slot,
                   const T* stored, T* whole) {
  gather_stored_by(
      run, layout, slot, stored, whole, [&](std::span<const T> mine, std::span<T> all) {
        run.all_ranks.along(MeshAxis::data).all_gather(mine, all, stored_counts(run, layout, slot));
      });
}

/// Elements of memory for so many whole parameters, of which each begins at a cache line.
std::size_t room_for(const ParameterLayout& layout, const ParameterSlot* slots, std::size_t count);

/// to[i] = from[i], rounded to Via before.
template <Real To, Real Via, Real From>
struct RoundTwice {
  const From* from;
  To* to;
  constexpr void operator()(std::size_t i) const { to[i] = rounded<To>(rounded<Via>(from[i])); }
};

/// A parameter's gradient in the dtype in which ranks along `data` send it, and the sums of this
/// rank's share of it. Rounds as `settle` does.
template <class Context>
class ShareOfSums {
  using Reduce = typename Context::precision::reduce;
  using Gradient = typename Context::precision::gradient;
  using Compute = typename Context::dtype;

 public:
  using Move = moves::ReduceScatter<Reduce>;  ///< that makes the sums

  /// Whether what is sent is not the gradient itself.
  static constexpr bool is_rounded =
      !std::same_as<Compute, Reduce> || !std::same_as<Compute, Gradient>;

  /// For the gradient `whole`, which outlives the sum if it is sent itself.
  ShareOfSums(Run<Context>& run, const ParameterSlot& slot, std::span<const Compute> whole)
      : to_(run.parameters.gradient_of(slot)),
        size_(run.parameters.gradient_layout().stored(slot).size),
        memory_(run.pool.take(size_ * sizeof(Reduce))) {
    if constexpr (is_rounded) {
      rounded_ = run.pool.take(whole.size() * sizeof(Reduce));
      auto* const to_send = static_cast<Reduce*>(rounded_.data());
      run.backend.for_each(whole.size(),
                           RoundTwice<Reduce, Gradient, Compute>{whole.data(), to_send});
      sent_ = {to_send, whole.size()};
    } else {
      sent_ = whole;
    }
  }

  /// What makes the sums; each rank has so many of them.
  Move move(std::span<const std::size_t> counts) const {
    return {sent_, {static_cast<Reduce*>(memory_.data()), size_}, counts};
  }
  /// Stores the sums as this rank's share of the gradient, or adds them to it.
  void store(Run<Context>& run, Write write) const {
    run.backend.for_each(size_,
                         Collect<Reduce, Gradient>{static_cast<const Reduce*>(memory_.data()), to_,
                                                   write == Write::add});
  }

 private:
  Gradient* to_;
  std::size_t size_;
  Buffer memory_;
  Buffer rounded_{};
  std::span<const Reduce> sent_{};
};

/// Calls reduce(share, move) for the gradient `whole` of a parameter, if it is not empty: it sums
/// the gradient over the ranks along `data` by `move`, or begins that.
template <class Context, class Reduce>
void reduce_to_stored_by(Run<Context>& run, const ParameterSlot& slot,
                         std::span<const typename Context::dtype> whole, Reduce&& reduce) {
  if (slot.size == 0) return;
  const MarkedGiven without_slice(run.step.given_to_all);
  ShareOfSums<Context> share(run, slot, whole);
  const Counts counts = stored_counts(run, run.parameters.gradient_layout(), slot);
  const auto move = share.move(counts);
  using Sent = typename Context::precision::reduce;
  observed(run, name_of_gradients,
           shardwise::reduce_scatter(slot.size, dtype_v<Sent>).over(MeshAxis::data),
           [&] { reduce(std::move(share), move); });
}

/// Sums the gradients `whole` of a parameter over the ranks along `data`, and stores this rank's
/// share of the sums, or adds it to what is stored.
template <class Context>
void reduce_to_stored(Run<Context>& run, const ParameterSlot& slot,
                      std::span<const typename Context::dtype> whole, Write write) {
  reduce_to_stored_by(run, slot, whole, [&](const ShareOfSums<Context>& share, const auto& move) {
    move.on(run.all_ranks.along(MeshAxis::data));
    share.store(run, write);
  });
}

/// The parameters of a layer during one call of it, gathered from the ranks along `data`, and
/// memory for their gradients: each where ranks store a share of it. `Gathers` is false for a
/// layer without parameters, and for ranks that are no mesh.
template <class Context, bool Gathers>
class WholeParameters {
  using T = typename Context::dtype;

 public:
  /// Gathers the parameters of layer `number` of `Run::of_layers`, or takes them from the traffic.
  /// `is_last` says whether no other layer adds to their gradients in a backward after it.
  WholeParameters(Run<Context>& run, std::size_t number, bool is_last)
      : run_(run),
        slots_(run.of_layers[number].slots, run.of_layers[number].count),
        is_last_(is_last) {
    if (run.traffic != nullptr) run.traffic->progress();
    if (!run.parameters.stores_share()) return;
    if (run.traffic != nullptr && run.options.layers_ahead > 0) {
      values_ = run.traffic->take(number);
      return;
    }
    values_ = room();
    for (std::size_t i = 0; i < slots_.size(); ++i)
      gather_stored(run, run.parameters, slots_[i], run.parameters.used(slots_[i]), at(values_, i));
  }
  WholeParameters(const WholeParameters&) = delete;
  WholeParameters& operator=(const WholeParameters&) = delete;

  /// Makes room for the gradients, before the layer's backward.
  void begin_gradients() {
    if (run_.parameters.stores_share_of_gradients()) gradients_ = room();
  }
  /// Sums the gradients that the layer has written, and stores this rank's share of them, or adds
  /// it; or lets the traffic do so. Where the rank stores all of them, the traffic hears of it.
  void end_gradients(Write write) {
    if (!run_.parameters.stores_share_of_gradients()) {
      if (run_.traffic != nullptr && is_last_) run_.traffic->written(slots_);
      return;
    }
    if (run_.traffic != nullptr && run_.options.sums_meanwhile)
      return run_.traffic->sum_shares(slots_, std::move(gradients_), write);
    for (std::size_t i = 0; i < slots_.size(); ++i)
      reduce_to_stored(run_, slots_[i], std::span<const T>(at(gradients_, i), slots_[i].size),
                       write);
    gradients_ = {};
  }

  ///@{
  /// The first element of parameter `i`, and of its gradient.
  const T* value(std::size_t i) const { return at(values_, i); }
  T* gradient(std::size_t i) const { return at(gradients_, i); }
  ///@}

 private:
  Buffer room() { return run_.pool.take(before(slots_.size()) * sizeof(T)); }
  T* at(const Buffer& memory, std::size_t i) const {
    return static_cast<T*>(memory.data()) + before(i);
  }
  std::size_t before(std::size_t i) const { return room_for(run_.parameters, slots_.data(), i); }

  Run<Context>& run_;
  std::span<const ParameterSlot> slots_;
  bool is_last_;
  Buffer values_;
  Buffer gradients_;
};

template <class Context>
class WholeParameters<Context, false> {
 public:
  WholeParameters([[maybe_unused]] Run<Context>& run, std::size_t /*number*/, bool /*is_last*/) {
    if constexpr (MeshCommunicator<typename Context::communicator>)
      if (run.traffic != nullptr) run.traffic->progress();
  }
  void begin_gradients() {}
  void end_gradients(Write) {}
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE std::size_t room_for(const ParameterLayout& layout, const ParameterSlot* slots,
                                      std::size_t count) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += layout.padded(slots[i].size);
  return sum;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
