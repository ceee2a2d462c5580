#pragma once
// The order of a rank's parameters in one piece of memory.

#include <array>
#include <cstddef>
#include <cstdint>

#include "shardwise/core/partition.hpp"
#include "shardwise/layers/layer.hpp"

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

/// The order of all parameters of a rank, and of their gradients: first those with an owed
/// reduction, without gaps, so that they are settled together; then those that all ranks hold
/// alike; then the split ones. In each group, those that decay come first, see
/// ParameterSpec::decays. Each parameter of the last two groups is padded to whole cache lines,
/// unless they are made dense.
class ParameterLayout {
 public:
  /// For elements of at least `bytes` bytes.
  explicit constexpr ParameterLayout(std::size_t bytes) : line_(64 / bytes) {}

  /// The place of a parameter of `elements` local elements, behind the others of its half.
  constexpr ParameterSlot reserve(std::size_t elements, Holding holding, bool decays) {
    Group& group = groups_[static_cast<std::size_t>(holding)];
    std::size_t& end = decays ? group.decaying : group.others;
    const ParameterSlot slot{holding, decays, end};
    end += holding == Holding::owing || is_dense_ ? elements : padded(elements);
    return slot;
  }

  /// Leaves no gaps between the parameters of a group, so that all can be settled together. Called
  /// before any is reserved.
  constexpr void make_dense() { is_dense_ = true; }

  /// Elements of all parameters, gaps included.
  constexpr std::size_t size() const { return elements_of(Holding::split).end(); }

  /// The elements of one group.
  constexpr Interval elements_of(Holding holding) const {
    return {begin_of(holding), group(holding).size()};
  }

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

  /// The first element of a parameter.
  constexpr std::size_t position(const ParameterSlot& slot) const {
    return begin_of(slot.holding) + (slot.decays ? 0 : group(slot.holding).decaying) + slot.offset;
  }

 private:
  constexpr std::size_t padded(std::size_t elements) const {
    return (elements + line_ - 1) / line_ * line_;
  }

  /// Elements of the parameters of one group, with what they are padded by.
  struct Group {
    std::size_t decaying = 0;
    std::size_t others = 0;

    constexpr std::size_t size() const { return decaying + others; }
  };

  constexpr const Group& group(Holding holding) const {
    return groups_[static_cast<std::size_t>(holding)];
  }
  constexpr std::size_t begin_of(Holding holding) const {
    if (holding == Holding::owing) return 0;
    return padded(group(Holding::owing).size()) +
           (holding == Holding::split ? padded(group(Holding::alike).size()) : 0);
  }

  std::size_t line_;
  std::array<Group, 3> groups_{};  // by Holding
  bool is_dense_ = false;
};

}  // namespace shardwise
