#pragma once
// The memory of a rank's parameters and of their gradients.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/model/parameter_layout.hpp"
#include "shardwise/model/precision.hpp"

namespace shardwise::detail {

/// to = from, or to += from.
template <class From, class To>
struct Collect {
  const From* from;
  To* to;
  bool adds;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<To>;
    const A before = select(adds, static_cast<A>(to[i]), A(0));
    to[i] = static_cast<To>(before + rounded<A>(from[i]));
  }
};

/// All parameters of a rank in one piece of memory, and all gradients in another, in the order of a
/// ParameterLayout.
///
/// Layers read and write this memory, or other memory in the compute dtype if dtypes differ:
/// `copies` of all parameters, and the gradients of one batch. These gradients are collected only
/// when they are needed or when another batch is added. So in a step of one batch, an optimizer's
/// read is the only further pass over them.
///
/// Memory may have only a share of the parameters or of the gradients, as a Keep says. Where it has
/// a share of the parameters, layers get whole ones from WholeParameters; where it has a share of
/// the gradients, layers give them to WholeParameters, which adds to the share.
template <class P>
class ParameterMemory : public ParameterLayout {
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

  /// The order of no parameters yet, with gaps.
  static constexpr ParameterLayout empty_layout() {
    return ParameterLayout(std::min({sizeof(compute), sizeof(parameter), sizeof(gradient)}));
  }

  ParameterMemory() : ParameterLayout(empty_layout()) {}

  /// Leaves in memory, of what this Keep cuts, only the share of the rank at `along`. Called before
  /// memory is allocated.
  void store_shares(Keep keep, Place along) {
    if (cuts_parameters(keep)) store_share(along);
    if (cuts_gradients(keep)) gradient_layout_.store_share(along);
  }

  /// Allocates all reserved memory, and fills it with zeros.
  template <class Backend>
  void allocate(Backend& backend, Pool& pool, bool trains) {
    const auto take = [&](auto*& memory, Buffer& buffer, std::size_t elements) {
      buffer = pool.take(elements * sizeof(*memory));
      if constexpr (!DeviceBackend<Backend>)
        ask_for_huge_pages(buffer.data(), elements * sizeof(*memory));
      memory = static_cast<std::remove_reference_t<decltype(memory)>>(buffer.data());
      detail::fill(backend, memory, elements, std::remove_reference_t<decltype(*memory)>{});
    };
    take(values_, value_memory_, size());
    if constexpr (copies) take(used_, copy_memory_, size());
    gradient_layout_ = share_at(gradient_layout_.along());
    collected_ = size();
    if (!trains) return;
    take(gradients_, gradient_memory_, gradient_layout_.size());
    if (collects && !stores_share_of_gradients()) take(of_batch_, batch_memory_, size());
  }

  /// In place of `allocate`: the memory of another model, whose order is the same, and whose copies
  /// are those of `version`. It must live longer.
  void share(const ParameterMemory& other, [[maybe_unused]] std::uint64_t version) {
    values_ = other.values_;
    used_ = other.used_;
    copied_version_ = version;
    gradient_layout_ = share_at(gradient_layout_.along());
    collected_ = size();
  }

  /// The order of the gradients: that of the parameters, where a rank has a share of both or of
  /// none. Valid after memory is allocated.
  const ParameterLayout& gradient_layout() const { return gradient_layout_; }
  /// Whether other ranks have the rest of the gradients of each group.
  bool stores_share_of_gradients() const { return gradient_layout_.stores_share(); }

  /// All parameters.
  std::span<parameter> values() const { return {values_, size()}; }
  /// All gradients, valid after they are collected; empty in a model that only goes forward.
  std::span<gradient> gradients() const { return {gradients_, gradient_layout_.size()}; }

  ///@{
  /// The gradients with an owed reduction, those that are split over the ranks, and those of any
  /// group. Valid after they are collected.
  std::span<gradient> owing() const { return of(Holding::owing); }
  std::span<gradient> split() const { return of(Holding::split); }
  std::span<gradient> of(Holding holding) const {
    const Interval here = gradient_layout_.elements_of(holding);
    return {gradients_ + here.offset, here.size};
  }
  ///@}

  ///@{
  /// The first element in memory of a parameter, and of its gradient; null if there are no
  /// gradients.
  parameter* value(const ParameterSlot& slot) const { return values_ + position(slot); }
  gradient* gradient_of(const ParameterSlot& slot) const {
    return gradients_ == nullptr ? nullptr : gradients_ + gradient_layout_.position(slot);
  }
  ///@}

  /// The values that a layer reads, from the first one in memory on.
  const compute* used(const ParameterSlot& slot) const {
    if constexpr (copies)
      return used_ + position(slot);
    else
      return value(slot);
  }

  ///@{
  /// Where a layer writes its gradient, and how, if the rank stores all gradients.
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
  /// The same before a part of the backward of a batch, in which only some layers write: all
  /// gradients are then there, and are added to.
  template <class Backend>
  void begin_part(Backend& backend, Write write) {
    begin_batch(backend, write);
    if (write == Write::replace)
      detail::fill(backend, gradients_, gradient_layout_.size(), gradient{});
    if (collects && !stores_share_of_gradients())
      detail::fill(backend, of_batch_, size(), compute{});
  }
  template <class Backend>
  void end_batch([[maybe_unused]] Backend& backend, [[maybe_unused]] Write write) {
    if constexpr (collects) {
      if (stores_share_of_gradients() || collects_in_parts_) return;
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
    collect_to(backend, owing_size(), Write::replace);
  }
  ///@}

  ///@{
  /// For a backward whose gradients are collected while it goes on: says so before it, and collects
  /// some of them, once they are written. After it, all have to be.
  void collect_in_parts(bool now) { collects_in_parts_ = now; }
  template <class Backend>
  void collect_part([[maybe_unused]] Backend& backend, [[maybe_unused]] const Interval& part,
                    [[maybe_unused]] Write write) {
    if constexpr (collects)
      backend.for_each(part.size,
                       detail::Collect<compute, gradient>{
                           of_batch_ + part.offset, gradients_ + part.offset, write == Write::add});
  }
  ///@}

  ///@{
  /// The number of parameters whose gradients are collected, from the first on; the gradients of
  /// the others are still in `of_batch()`, at the positions of their parameters.
  std::size_t collected() const { return collected_; }
  const compute* of_batch() const requires collects { return of_batch_; }
  ///@}

 private:
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

  ParameterLayout gradient_layout_ = empty_layout();
  std::size_t collected_ = 0;
  bool collects_in_parts_ = false;
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

}  // namespace shardwise::detail
