#pragma once
// The memory of a rank's parameters and of their gradients.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/precision.hpp"

namespace shardwise {

/// Whether the gradient of a parameter is one summand on each rank until it is settled.
template <class Use>
inline constexpr bool owes_reduction = Use::debt::movement == Movement::all_reduce;

/// How the ranks hold a parameter and its gradient.
enum class Holding : std::uint8_t {
  owing,  ///< all of it on every rank, the gradient one summand on each until it is settled
  alike,  ///< all of it on every rank, the gradient too
  split   ///< a block each
};

/// How the ranks hold a parameter that is used as `Use`, a ParameterUse, says.
template <class Use>
inline constexpr Holding holding_of = ShardedLayout<typename Use::stored> ? Holding::split
                                      : owes_reduction<Use>               ? Holding::owing
                                                                          : Holding::alike;

/// Where a parameter lies in the memory of all parameters.
struct ParameterSlot {
  Holding holding = Holding::alike;  ///< among which others it lies
  std::size_t offset = 0;            ///< elements in front of it among those of its holding
  std::size_t in_layer = 0;          ///< elements in front of it among those of its layer
  std::size_t elements = 0;          ///< of this rank's part
};

/// All parameters of a rank in one piece of memory, and all gradients in another, in the same
/// order: those that owe a reduction, without gaps, so that they are settled together; those that
/// all ranks hold alike; those that are split. The latter two are each padded with zeros to whole
/// cache lines.
///
/// What layers read and write are these pieces themselves, or others in the compute dtype: then
/// `copies` of all parameters, and room for the gradients of one layer.
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
  /// Whether layers write gradients to memory of their own, from which `collect` brings them.
  static constexpr bool collects = !std::same_as<compute, gradient>;

  /// Room for a parameter of `elements` local elements, while a model is bound. `in_layer` counts
  /// what the parameters of the same layer take, and begins as 0.
  ParameterSlot reserve(std::size_t elements, Holding holding, std::size_t& in_layer) {
    std::size_t& end = holding == Holding::owing   ? owing_
                       : holding == Holding::alike ? alike_
                                                   : split_;
    const ParameterSlot slot{holding, end, in_layer, elements};
    end += holding == Holding::owing ? elements : padded(elements);
    in_layer += padded(elements);
    largest_layer_ = std::max(largest_layer_, in_layer);
    return slot;
  }

  /// Takes memory for all that was reserved, and fills it with zeros.
  void allocate(Pool& pool, bool trains) {
    const auto take = [&](auto*& memory, Buffer& buffer, std::size_t elements) {
      buffer = pool.take(elements * sizeof(*memory));
      memory = static_cast<std::remove_reference_t<decltype(memory)>>(buffer.data());
      std::fill_n(memory, elements, std::remove_reference_t<decltype(*memory)>{});
    };
    take(values_, value_memory_, size());
    if constexpr (copies) take(used_, copy_memory_, size());
    if (!trains) return;
    take(gradients_, gradient_memory_, size());
    if constexpr (collects) take(of_layer_, layer_memory_, largest_layer_);
  }

  /// Elements of all parameters, gaps included.
  std::size_t size() const { return padded(owing_) + alike_ + split_; }

  /// All parameters.
  std::span<parameter> values() const { return {values_, size()}; }
  /// All gradients; of no memory in a model that only goes forward.
  std::span<gradient> gradients() const { return {gradients_, size()}; }

  ///@{
  /// The gradients that owe a reduction; those that every rank has alike once they are settled;
  /// and those of which each rank has its own.
  std::span<gradient> owing() const { return {gradients_, owing_}; }
  std::span<gradient> alike() const { return {gradients_, padded(owing_) + alike_}; }
  std::span<gradient> split() const { return {gradients_ + padded(owing_) + alike_, split_}; }
  ///@}

  ///@{
  /// Where a parameter begins, and its gradient; null if there are no gradients.
  parameter* value(const ParameterSlot& slot) const { return values_ + position(slot); }
  gradient* gradient_of(const ParameterSlot& slot) const {
    return gradients_ == nullptr ? nullptr : gradients_ + position(slot);
  }
  ///@}

  /// What a layer reads.
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
      return of_layer_ + slot.in_layer;
    else
      return gradients_ + position(slot);
  }
  static constexpr Write written_how(Write write) { return collects ? Write::replace : write; }
  ///@}

  /// Rounds parameters anew for layers, if they changed since that was done last.
  template <class Backend>
  void update_copies([[maybe_unused]] Backend& backend, [[maybe_unused]] std::uint64_t version) {
    if constexpr (copies) {
      if (copied_version_ == version) return;
      backend.for_each(size(), [from = values_, to = used_](std::size_t i) {
        to[i] = detail::rounded<compute>(from[i]);
      });
      copied_version_ = version;
    }
  }

  /// Brings what a layer wrote to the gradients.
  template <class Backend>
  void collect([[maybe_unused]] Backend& backend, [[maybe_unused]] const ParameterSlot& slot,
               [[maybe_unused]] Write write) {
    if constexpr (collects) {
      using A = accumulate_t<gradient>;
      backend.for_each(slot.elements, [from = of_layer_ + slot.in_layer, to = gradient_of(slot),
                                       adds = write == Write::add](std::size_t i) {
        const A before = adds ? static_cast<A>(to[i]) : A(0);
        to[i] = static_cast<gradient>(before + detail::rounded<A>(from[i]));
      });
    }
  }

 private:
  static constexpr std::size_t padded(std::size_t elements) {
    constexpr std::size_t line =
        64 / std::min({sizeof(compute), sizeof(parameter), sizeof(gradient)});
    return (elements + line - 1) / line * line;
  }

  std::size_t position(const ParameterSlot& slot) const {
    return slot.offset + (slot.holding == Holding::owing ? 0 : padded(owing_)) +
           (slot.holding == Holding::split ? alike_ : 0);
  }

  std::size_t owing_ = 0;
  std::size_t alike_ = 0;
  std::size_t split_ = 0;
  std::size_t largest_layer_ = 0;
  std::uint64_t copied_version_ = 0;
  parameter* values_ = nullptr;
  compute* used_ = nullptr;
  gradient* gradients_ = nullptr;
  compute* of_layer_ = nullptr;
  Buffer value_memory_;
  Buffer copy_memory_;
  Buffer gradient_memory_;
  Buffer layer_memory_;
};

}  // namespace shardwise
