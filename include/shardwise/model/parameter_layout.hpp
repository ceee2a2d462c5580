#pragma once
// The order of a rank's parameters in one piece of memory.

#include <array>
#include <cstddef>
#include <cstdint>

#include "shardwise/core/partition.hpp"
#include "shardwise/layers/layer.hpp"

namespace shardwise::detail {

/// Whether the gradient of a parameter is one summand on each rank until it is settled.
template <class Use>
inline constexpr bool owes_reduction = Use::debt::movement == Movement::all_reduce;

/// How the ranks hold a parameter and its gradient.
enum class Holding : std::uint8_t {
  owing,  ///< whole on every rank; the gradient is one summand on each rank until it is settled
  owing_on_stages,  ///< the same of a parameter that several stages of a pipeline have
  alike,            ///< whole on every rank, the gradient too
  alike_on_stages,  ///< the same of a parameter that several stages have
  split,            ///< one block on each rank
  split_on_stages   ///< the same of a parameter that several stages have
};

/// In the order of their parameters in memory.
inline constexpr std::array holdings{Holding::owing, Holding::owing_on_stages,
                                     Holding::alike, Holding::alike_on_stages,
                                     Holding::split, Holding::split_on_stages};

///@{
/// What a Holding says: whether the gradient is owed, whether each rank has a block, and whether
/// several stages of a pipeline have the parameter.
constexpr bool is_owing(Holding holding) { return holding <= Holding::owing_on_stages; }
constexpr bool is_split(Holding holding) { return holding >= Holding::split; }
constexpr bool is_on_stages(Holding holding) { return static_cast<int>(holding) % 2 == 1; }
///@}

/// The Holding of a parameter of one stage, if several stages have it.
constexpr Holding on_stages(Holding of_one) {
  return static_cast<Holding>(static_cast<int>(of_one) + 1);
}

/// How the ranks hold a parameter that is used as `Use`, a ParameterUse.
template <class Use>
inline constexpr Holding holding_of = ShardedLayout<typename Use::stored> ? Holding::split
                                      : owes_reduction<Use>               ? Holding::owing
                                                                          : Holding::alike;

/// The place of a parameter in the memory of all parameters.
struct ParameterSlot {
  Holding holding = Holding::alike;  ///< its group
  bool decays = true;                ///< its part of the group, see ParameterSpec::decays
  std::size_t offset = 0;            ///< elements before it in its part
  std::size_t size = 0;              ///< its own elements
};

/// The order of all parameters of a rank, and of their gradients: first those with an owed
/// reduction, without gaps, so that they are settled together; then those that all ranks hold
/// alike; then the split ones. Of each of these, those that several stages of a pipeline have are a
/// group of their own, so that it has the same order on all of these stages. Each parameter without
/// an owed reduction is padded to whole cache lines, unless they are made dense. In each group,
/// those that fill whole lines come first, and so begin at one, too; those that decay are the first
/// and the last ones, see ParameterSpec::decays. Of each group, memory may have only a share, see
/// `store_share`.
class ParameterLayout {
 public:
  /// For elements of at least `bytes` bytes.
  explicit constexpr ParameterLayout(std::size_t bytes) : line_(64 / bytes) {}

  /// The place of a parameter of `elements` local elements, behind the others of its part.
  constexpr ParameterSlot reserve(std::size_t elements, Holding holding, bool decays) {
    ParameterSlot slot{holding, decays, 0, elements};
    std::size_t& end = groups_[static_cast<std::size_t>(holding)].parts[part_of(slot)];
    slot.offset = end;
    const std::size_t before = stored_size(holding);
    end += has_gaps(holding) ? padded(elements) : elements;
    const std::size_t more = stored_size(holding) - before;
    for (std::size_t i = static_cast<std::size_t>(holding) + 1; i < begins_.size(); ++i)
      begins_[i] += more;
    return slot;
  }

  /// So many elements, padded to whole cache lines.
  constexpr std::size_t padded(std::size_t elements) const {
    return (elements + line_ - 1) / line_ * line_;
  }

  /// Leaves no gaps between the parameters of a group, so that all can be settled together. Called
  /// before any is reserved.
  constexpr void make_dense() { is_dense_ = true; }

  /// Leaves in memory, of each group, only the share of the rank at `along`.
  constexpr void store_share(Place along) {
    along_ = along;
    for (std::size_t i = 1; i < begins_.size(); ++i)
      begins_[i] = begins_[i - 1] + stored_size(holdings[i - 1]);
  }
  /// The same order with only that share in memory.
  constexpr ParameterLayout share_at(Place along) const {
    ParameterLayout share = *this;
    share.store_share(along);
    return share;
  }
  /// Whether other ranks have the rest of each group.
  constexpr bool stores_share() const { return along_.size > 1; }
  /// The place that store_share was given.
  constexpr Place along() const { return along_; }

  /// Elements in memory of all parameters, gaps included.
  constexpr std::size_t size() const { return elements_of(holdings.back()).end(); }

  /// Elements in memory of the parameters with an owed reduction.
  constexpr std::size_t owing_size() const {
    const Interval last = elements_of(Holding::owing_on_stages);
    return last.size > 0 ? last.end() : elements_of(Holding::owing).size;
  }

  /// Elements of one group, of all ranks along `data` together.
  constexpr std::size_t size_of(Holding holding) const { return group(holding).size(); }
  /// The elements in memory of one group.
  constexpr Interval elements_of(Holding holding) const {
    return {begin_of(holding), share(holding, along_).size};
  }

  ///@{
  /// The elements of a parameter, counted from its first one, that are in this memory, and those in
  /// that of the rank at `along`.
  constexpr Interval stored(const ParameterSlot& slot) const { return stored(slot, along_); }
  constexpr Interval stored(const ParameterSlot& slot, Place along) const {
    const std::size_t first = first_in_group(slot);
    const Interval here = overlap({first, slot.size}, share(slot.holding, along));
    return {here.size == 0 ? 0 : here.offset - first, here.size};
  }
  ///@}

  /// Calls f(first, last, decays) for runs of the elements [first, last) of parameters that decay,
  /// or that do not.
  template <class F>
  void for_each_decay(F&& f) const {
    for (const Holding holding : holdings) {
      const Interval here = share(holding, along_);
      const auto& parts = group(holding).parts;
      std::size_t end = 0;
      const auto add = [&](std::size_t elements, bool decays) {
        const Interval run = overlap({end, elements}, here);
        const std::size_t first = begin_of(holding) + run.offset - here.offset;
        f(first, first + run.size, decays);
        end += elements;
      };
      add(parts[0], true);
      add(parts[1] + parts[2], false);
      add(parts[3], true);
    }
  }

  /// The first element in memory of a parameter; of one that has none there, any.
  [[gnu::noinline]] constexpr std::size_t position(const ParameterSlot& slot) const {
    const std::size_t first = first_in_group(slot), begin = begin_of(slot.holding);
    if (!stores_share()) return begin + first;
    const Interval here = overlap({first, slot.size}, share(slot.holding, along_));
    return here.size == 0 ? begin : begin + here.offset - share(slot.holding, along_).offset;
  }

 private:
  /// Elements of the parameters of one group, with what they are padded by.
  struct Group {
    std::size_t parts[4]{};

    constexpr std::size_t size() const { return parts[0] + parts[1] + parts[2] + parts[3]; }
  };

  constexpr bool has_gaps(Holding holding) const { return !is_owing(holding) && !is_dense_; }
  /// The part of its group in which a parameter is: first those that fill whole lines.
  constexpr std::size_t part_of(const ParameterSlot& slot) const {
    if (has_gaps(slot.holding) || slot.size % line_ == 0) return slot.decays ? 0 : 1;
    return slot.decays ? 3 : 2;
  }

  constexpr const Group& group(Holding holding) const {
    return groups_[static_cast<std::size_t>(holding)];
  }
  constexpr std::size_t first_in_group(const ParameterSlot& slot) const {
    std::size_t first = slot.offset;
    for (std::size_t i = part_of(slot); i-- > 0;) first += group(slot.holding).parts[i];
    return first;
  }
  /// Of a group, the elements in the memory of the rank at `along`.
  constexpr Interval share(Holding holding, Place along) const {
    const std::size_t size = group(holding).size();
    return stores_share() ? block_of(size, along) : Interval{0, size};
  }
  constexpr std::size_t begin_of(Holding holding) const {
    return begins_[static_cast<std::size_t>(holding)];
  }
  /// Elements in memory of a group, with the gap behind it.
  constexpr std::size_t stored_size(Holding holding) const {
    return padded(share(holding, along_).size);
  }

  std::size_t line_;
  std::array<Group, holdings.size()> groups_;          // by Holding
  std::array<std::size_t, holdings.size()> begins_{};  // in memory, of each group
  Place along_{};
  bool is_dense_ = false;
};

}  // namespace shardwise::detail
