#pragma once
// Collectives that a model will call, as values to compare and add up.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "shardwise/comm/call.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/layout/window.hpp"

namespace shardwise {

namespace detail {

/// The window of a halo, and the number of units of its axis.
struct HaloOf {
  Window window;          ///< slides along the axis
  std::size_t units = 0;  ///< of the whole axis

  /// Units that the ranks hold; a unit on several ranks counts once for each.
  constexpr std::size_t held(int ranks) const {
    std::size_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += window.held_by({rank, ranks}, units).size;
    return sum;
  }

  /// Units that ranks hold beyond their own blocks: neighbours must send them.
  constexpr std::size_t beyond(int ranks) const {
    std::size_t own = 0;
    for (int rank = 0; rank < ranks; ++rank)
      own += overlap(window.held_by({rank, ranks}, units), block_of(units, {rank, ranks})).size;
    return held(ranks) - own;
  }

  friend constexpr bool operator==(const HaloOf&, const HaloOf&) = default;
};

/// Some axes of a mesh.
struct MeshAxisSet {
  std::uint8_t bits = 0;  ///< bit I for axis I

  /// Whether this axis is one of them.
  constexpr bool has(MeshAxis axis) const {
    return ((bits >> static_cast<unsigned>(axis)) & 1U) != 0;
  }
  friend constexpr bool operator==(const MeshAxisSet&, const MeshAxisSet&) = default;
};

}  // namespace detail

/// One collective: its operation, and its number of elements of the *global* tensor. On a mesh each
/// group of ranks along `axis` calls it.
struct Collective {
  Operation operation = Operation::all_reduce;  ///< what is called
  std::size_t elements = 0;                     ///< of the global tensor
  Dtype dtype = Dtype::float32;                 ///< of the elements
  detail::HaloOf halo{};                        ///< of a halo_exchange or halo_sum
  MeshAxis axis = MeshAxis::tensor;             ///< along which ranks call it
  detail::MeshAxisSet
      split{};  ///< other axes over which the tensor is split; over the rest it is copied

  /// The same call, along another axis.
  constexpr Collective over(MeshAxis along) const {
    Collective other = *this;
    other.axis = along;
    return other;
  }
  /// The same call, of a tensor that is also split over another axis.
  constexpr Collective split_over(MeshAxis other_axis) const {
    Collective other = *this;
    other.split.bits =
        static_cast<std::uint8_t>(other.split.bits | (1U << static_cast<unsigned>(other_axis)));
    return other;
  }

  friend constexpr bool operator==(const Collective&, const Collective&) = default;

  /// Elements that all ranks pass in together: a summand counts on every rank that holds it, a
  /// block counts once.
  constexpr std::size_t elements_passed_in(int ranks) const {
    if (operation == Operation::halo_sum) return halo.held(ranks) * elements_per_unit();
    const bool summands =
        operation == Operation::all_reduce || operation == Operation::reduce_scatter;
    return summands ? elements * static_cast<std::size_t>(ranks) : elements;
  }
  /// The same on a mesh.
  constexpr std::size_t elements_passed_in(const mesh& sizes) const {
    return elements_passed_in(sizes[axis]) * copies(sizes);
  }

  /// Bytes that all ranks together send by the ring algorithm (Patarasu and Yuan 2009): n (P - 1)
  /// for a gather or scatter, twice that for an all-reduce; an all-to-all sends n (P - 1) / P. A
  /// halo sends the elements that ranks hold beyond their own blocks, in each direction; a send is
  /// one message.
  constexpr std::size_t bytes_sent(int ranks) const {
    const auto p = static_cast<std::size_t>(ranks);
    const std::size_t bytes = elements * size_of(dtype);
    if (operation == Operation::halo_exchange || operation == Operation::halo_sum)
      return halo.beyond(ranks) * elements_per_unit() * size_of(dtype);
    if (operation == Operation::all_to_all) return bytes * (p - 1) / p;
    if (operation == Operation::send) return bytes;
    return bytes * (p - 1) * (operation == Operation::all_reduce ? 2 : 1);
  }
  /// The same on a mesh.
  constexpr std::size_t bytes_sent(const mesh& sizes) const {
    return bytes_sent(sizes[axis]) * copies(sizes);
  }

  /// The number of groups of ranks that call it on copies of one tensor, along the other axes.
  constexpr std::size_t copies(const mesh& sizes) const {
    std::size_t number = 1;
    for (const MeshAxis other : mesh_axes)
      if (other != axis && !split.has(other)) number *= static_cast<std::size_t>(sizes[other]);
    return number;
  }

 private:
  constexpr std::size_t elements_per_unit() const {
    return halo.units == 0 ? 0 : elements / halo.units;
  }
};

///@{
/// One collective on `elements` elements of the global tensor, for comparison with plans.
constexpr Collective all_reduce(std::size_t elements, Dtype dtype = Dtype::float32) {
  return {Operation::all_reduce, elements, dtype};
}
constexpr Collective all_gather(std::size_t elements, Dtype dtype = Dtype::float32) {
  return {Operation::all_gather, elements, dtype};
}
constexpr Collective reduce_scatter(std::size_t elements, Dtype dtype = Dtype::float32) {
  return {Operation::reduce_scatter, elements, dtype};
}
constexpr Collective all_to_all(std::size_t elements, Dtype dtype = Dtype::float32) {
  return {Operation::all_to_all, elements, dtype};
}
///@}

/// Collectives in the order in which they are called. Usable inside a constant expression, such as
/// `static_assert(plan<Mlp, 4>(batch{64}).forward == CollectiveList{all_reduce(640)})`.
class CollectiveList {
 public:
  constexpr CollectiveList() = default;
  /// In the order in which they are called.
  constexpr CollectiveList(std::initializer_list<Collective> entries) : entries_(entries) {}

  /// Appends a collective that is called after all others.
  constexpr void add(const Collective& entry) { entries_.add(entry); }
  ///@{
  /// Their number, and each of them, first to last.
  constexpr std::size_t size() const { return entries_.size(); }
  constexpr bool empty() const { return entries_.empty(); }
  constexpr const Collective& operator[](std::size_t i) const { return entries_[i]; }
  constexpr auto begin() const { return entries_.begin(); }
  constexpr auto end() const { return entries_.end(); }
  ///@}

  ///@{
  /// The sum of `Collective::bytes_sent`.
  constexpr std::size_t bytes_sent(const mesh& sizes) const {
    std::size_t sum = 0;
    for (const Collective& entry : entries_) sum += entry.bytes_sent(sizes);
    return sum;
  }
  constexpr std::size_t bytes_sent(int ranks) const { return bytes_sent({.tensor = ranks}); }
  ///@}

  friend constexpr bool operator==(const CollectiveList& a, const CollectiveList& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (!(a[i] == b[i])) return false;
    }
    return true;
  }

 private:
  detail::GrowingList<Collective> entries_;
};

/// "all_reduce(640 x float32)", and behind it " over data" along another axis than `tensor`.
std::string to_string(const Collective& entry);

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE std::string to_string(const Collective& entry) {
  const std::string call = std::string(name(entry.operation)) + '(' +
                           std::to_string(entry.elements) + " x " + std::string(name(entry.dtype)) +
                           ')';
  return entry.axis == MeshAxis::tensor ? call : call + " over " + std::string(name(entry.axis));
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
