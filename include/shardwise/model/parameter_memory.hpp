#pragma once
// The memory of a rank's parameters and of their gradients.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/precision.hpp"

namespace shardwise {

/// Whether the gradient of a parameter is one summand on each rank until it is settled.
template <class Use>
inline constexpr bool owes_reduction = Use::debt::movement == Movement::all_reduce;

/// How the ranks hold a parameter and its gradient.
enum class Holding : std::uint8_t {
  owing,  ///< whole on every rank; the gradient is one summand on each rank until it is settled
  alike,  ///< whole on every rank, the gradient too
  split   ///< one block on each rank
};

/// In the order of their parameters in memory.
inline constexpr std::array holdings{Holding::owing, Holding::alike, Holding::split};

/// How the ranks hold a parameter that is used as `Use`, a ParameterUse.
template <class Use>
inline constexpr Holding holding_of = ShardedLayout<typename Use::stored> ? Holding::split
                                      : owes_reduction<Use>               ? Holding::owing
                                                                          : Holding::alike;

/// The place of a parameter in the memory of all parameters.
struct ParameterSlot {
  Holding holding = Holding::alike;  ///< its group
  bool decays = true;                ///< its half of the group, see ParameterSpec::decays
  std::size_t offset = 0;            ///< elements before it in its half
};

namespace detail {

/// to = from, or to += from.
template <class From, class To>
struct Collect {
  const From* from;
  To* to;
  bool adds;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<To>;
    const A before = adds ? static_cast<A>(to[i]) : A(0);
    to[i] = static_cast<To>(before + rounded<A>(from[i]));
  }
};

}  // namespace detail

/// All parameters of a rank in one piece of memory, and all gradients in another, in the same
/// order: first those with an owed reduction, without gaps, so that they are settled together; then
/// those that all ranks hold alike; then the split ones. In each group, those that decay come
/// first, see ParameterSpec::decays. Each parameter of the last two groups is
/// padded with zeros to whole cache lines, unless they are made dense.
///
/// Layers read and write this memory, or other memory in the compute dtype if dtypes differ:
/// `copies` of all parameters, and the gradients of one batch. These gradients are collected only
/// when they are needed or when another batch is added. So in a step of one batch, an optimizer's
/// read is the only further pass over them.
template <class P>
class ParameterMemory {
 public:
  ///@{
  /// As Precision says.
  using compute = typename P::compute;
  using parameter = typename P::parameter;
  using gradient = typename P::gradient;
  ///@}

  /// Whether layers read rounded copies of the parameters.
  static constexpr bool copies = !std::same_as<compute, parameter>;
  /// Whether layers write gradients to separate memory, from which they are collected.
  static constexpr bool collects = !std::same_as<compute, gradient>;

  /// Reserves memory for a parameter of `elements` local elements, while a model is bound.
  ParameterSlot reserve(std::size_t elements, Holding holding, bool decays) {
    Group& group = groups_[static_cast<std::size_t>(holding)];
    std::size_t& end = decays ? group.decaying : group.others;
    const ParameterSlot slot{holding, decays, end};
    end += holding == Holding::owing || is_dense_ ? elements : padded(elements);
    return slot;
  }

  /// Leaves no gaps between the parameters of a group, so that all can be settled together. Called
  /// before any is reserved.
  void make_dense() { is_dense_ = true; }

  /// Allocates all reserved memory, and fills it with zeros.
  template <class Backend>
  void allocate(Backend& backend, Pool& pool, bool trains) {
    const auto take = [&](auto*& memory, Buffer& buffer) {
      buffer = pool.take(size() * sizeof(*memory));
      memory = static_cast<std::remove_reference_t<decltype(memory)>>(buffer.data());
      detail::fill(backend, memory, size(), std::remove_reference_t<decltype(*memory)>{});
    };
    take(values_, value_memory_);
    if constexpr (copies) take(used_, copy_memory_);
    collected_ = size();
    if (!trains) return;
    take(gradients_, gradient_memory_);
    if constexpr (collects) take(of_batch_, batch_memory_);
  }

  /// Elements of all parameters, gaps included.
  std::size_t size() const { return begin_of(Holding::split) + group(Holding::split).size(); }

  /// Calls f(first, last, decays) for runs of the elements [first, last) of parameters that decay,
  /// or that do not.
  template <class F>
  void for_each_decay(F&& f) const {
    for (const Holding holding : holdings) {
      const std::size_t begin = begin_of(holding), middle = begin + group(holding).decaying;
      f(begin, middle, true);
      f(middle, begin + group(holding).size(), false);
    }
  }

  /// The elements of one group.
  Interval elements_of(Holding holding) const { return {begin_of(holding), group(holding).size()}; }

  /// All parameters.
  std::span<parameter> values() const { return {values_, size()}; }
  /// All gradients, valid after they are collected; empty in a model that only goes forward.
  std::span<gradient> gradients() const { return {gradients_, size()}; }

  ///@{
  /// The gradients with an owed reduction, those that are split over the ranks, and those of any
  /// group. Valid after they are collected.
  std::span<gradient> owing() const { return {gradients_, group(Holding::owing).size()}; }
  std::span<gradient> split() const {
    return {gradients_ + begin_of(Holding::split), group(Holding::split).size()};
  }
  std::span<gradient> of(Holding holding) const {
    return {gradients_ + begin_of(holding), group(holding).size()};
  }
  ///@}

  ///@{
  /// The first element of a parameter, and of its gradient; null if there are no gradients.
  parameter* value(const ParameterSlot& slot) const { return values_ + position(slot); }
  gradient* gradient_of(const ParameterSlot& slot) const {
    return gradients_ == nullptr ? nullptr : gradients_ + position(slot);
  }
  ///@}

  /// The values that a layer reads.
  const compute* used(const ParameterSlot& slot) const {
    if constexpr (copies)
      return used_ + position(slot);
    else
      return value(slot);
  }

  ///@{
  /// Where a layer writes its gradient, and how.
  compute* written(const ParameterSlot& slot) const {
    if constexpr (collects)
      return of_batch_ + position(slot);
    else
      return gradients_ + position(slot);
  }
  static constexpr Write written_how(Write write) { return collects ? Write::replace : write; }
  ///@}

  /// Rounds parameters again for layers, if they have changed since the last time.
  template <class Backend>
  void update_copies([[maybe_unused]] Backend& backend, [[maybe_unused]] std::uint64_t version) {
    if constexpr (copies) {
      if (copied_version_ == version) return;
      backend.for_each(size(), detail::RoundTo<compute, parameter>{values_, used_});
      copied_version_ = version;
    }
  }

  ///@{
  /// The memory that layers read, for code that changes parameters and rounds them in the same
  /// pass; and a note that this was done for `version`.
  compute* rounded_copies() const requires copies { return used_; }
  void copied(std::uint64_t version) { copied_version_ = version; }
  ///@}

  ///@{
  /// Calls before and after the backward of a batch, whose gradients replace or are added to
  /// earlier ones.
  template <class Backend>
  void begin_batch([[maybe_unused]] Backend& backend, [[maybe_unused]] Write write) {
    if constexpr (collects) {
      if (write == Write::add) collect(backend);
      collected_ = size();
    }
  }
  template <class Backend>
  void end_batch([[maybe_unused]] Backend& backend, [[maybe_unused]] Write write) {
    if constexpr (collects) {
      collected_ = 0;
      if (write == Write::add) collect_to(backend, size(), write);
    }
  }
  ///@}

  ///@{
  /// Copies what layers wrote to the gradients: all of it, or only those with an owed reduction.
  template <class Backend>
  void collect(Backend& backend) {
    collect_to(backend, size(), Write::replace);
  }
  template <class Backend>
  void collect_owing(Backend& backend) {
    collect_to(backend, group(Holding::owing).size(), Write::replace);
  }
  ///@}

  ///@{
  /// The number of collected gradients, from the first on; the others are still in `of_batch()`, at
  /// the same positions.
  std::size_t collected() const { return collected_; }
  const compute* of_batch() const requires collects { return of_batch_; }
  ///@}

 private:
  static constexpr std::size_t padded(std::size_t elements) {
    constexpr std::size_t line =
        64 / std::min({sizeof(compute), sizeof(parameter), sizeof(gradient)});
    return (elements + line - 1) / line * line;
  }

  /// Collects the gradients before `end` that are not collected yet.
  template <class Backend>
  void collect_to([[maybe_unused]] Backend& backend, [[maybe_unused]] std::size_t end,
                  [[maybe_unused]] Write write) {
    if constexpr (collects) {
      if (end <= collected_) return;
      backend.for_each(end - collected_,
                       detail::Collect<compute, gradient>{
                           of_batch_ + collected_, gradients_ + collected_, write == Write::add});
      collected_ = end;
    }
  }

  /// Elements of the parameters of one group, with what they are padded by.
  struct Group {
    std::size_t decaying = 0;
    std::size_t others = 0;

    std::size_t size() const { return decaying + others; }
  };

  const Group& group(Holding holding) const { return groups_[static_cast<std::size_t>(holding)]; }
  std::size_t begin_of(Holding holding) const {
    if (holding == Holding::owing) return 0;
    return padded(group(Holding::owing).size()) +
           (holding == Holding::split ? padded(group(Holding::alike).size()) : 0);
  }
  std::size_t position(const ParameterSlot& slot) const {
    return begin_of(slot.holding) + (slot.decays ? 0 : group(slot.holding).decaying) + slot.offset;
  }

  std::array<Group, 3> groups_{};  // by Holding
  bool is_dense_ = false;
  std::size_t collected_ = 0;
  std::uint64_t copied_version_ = 0;
  parameter* values_ = nullptr;
  compute* used_ = nullptr;
  gradient* gradients_ = nullptr;
  compute* of_batch_ = nullptr;
  Buffer value_memory_;
  Buffer copy_memory_;
  Buffer gradient_memory_;
  Buffer batch_memory_;
};

}  // namespace shardwise
