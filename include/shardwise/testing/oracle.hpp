#pragma once
// A second, naive implementation of the layouts: one element at a time, from the list of the owners
// of all units. It shares no code with the library's boxes, blocks and packing, so the two can be
// compared.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layout.hpp"

/// A second implementation of layouts and redistributions, for comparison with the library.
namespace shardwise::detail::oracle {

/// Elements of a tensor: small integers, which every dtype represents exactly.
using Values = std::vector<float>;
/// The part of each rank.
using PerRank = std::vector<Values>;

/// A layout as a value.
struct Meaning {
  /// How the global value follows from the ranks' parts: every rank has all of it, and uses it for
  /// its own share (`same`) or not (`once`); it is their sum; each rank has a block.
  enum class Kind { same, once, sum, block };

  Kind kind;                ///< the kind
  Axis axis = Axis::batch;  ///< for a block
  std::string name;         ///< of the layout, for messages
};

/// The meaning of L.
template <Layout L>
Meaning meaning_of() {
  Meaning meaning{Meaning::Kind::same, Axis::batch, layout_name<L>()};
  if constexpr (std::same_as<L, Invariant>) meaning.kind = Meaning::Kind::once;
  if constexpr (std::same_as<L, Partial>) meaning.kind = Meaning::Kind::sum;
  if constexpr (ShardedLayout<L>) {
    meaning.kind = Meaning::Kind::block;
    meaning.axis = L::axis;
  }
  return meaning;
}

/// The rank that owns each unit: units are dealt in turn to count each rank's, then given in order.
inline std::vector<std::size_t> owners_of_units(std::size_t units, int ranks) {
  std::vector<std::size_t> held(static_cast<std::size_t>(ranks));
  for (std::size_t unit = 0; unit < units; ++unit) ++held[unit % held.size()];
  std::vector<std::size_t> owners;
  for (std::size_t rank = 0; rank < held.size(); ++rank)
    owners.insert(owners.end(), held[rank], rank);
  return owners;
}

/// The rank that owns each element of a tensor, in row-major order, if `axis` is split.
inline std::vector<std::size_t> owners(const Shape& shape, Axis axis, int ranks) {
  std::size_t inner = 1;
  for (std::size_t i = shape.rank(); shape[i - 1].axis != axis; --i) inner *= shape[i - 1].extent();
  const Dim split = shape[shape.find(axis)];
  const std::vector<std::size_t> of_unit = owners_of_units(split.units, ranks);
  std::vector<std::size_t> result(shape.elements());
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = of_unit[i / inner % split.extent() / split.grain];
  return result;
}

/// 31 bits that depend on all bits of `seed` and `index`.
inline std::uint32_t scrambled(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t bits = (seed + 1) * 0x9e3779b97f4a7c15U + index * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 29)) * 0x94d049bb133111ebU;
  return static_cast<std::uint32_t>(bits >> 33);
}

/// An integer in [-15, 15] made of `scrambled` bits.
inline float small_integer(std::uint64_t seed, std::uint64_t index) {
  return static_cast<float>(scrambled(seed, index) % 31) - 15.F;
}

/// The numbers `small_integer(seed, i)` for i below `count`.
inline Values small_integers(std::uint64_t seed, std::size_t count) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = small_integer(seed, i);
  return values;
}

/// The parts of `value` on each rank. For a sum: other integers on the other ranks, and the rest on
/// rank 0; for 8 ranks no summand exceeds 120 and no partial sum 225, which bf16 represents
/// exactly. `seed` chooses those integers.
inline PerRank lay_out(const Meaning& layout, const Shape& shape, int ranks, const Values& value,
                       std::uint64_t seed = 1000) {
  PerRank held(static_cast<std::size_t>(ranks));
  if (layout.kind == Meaning::Kind::block) {
    const std::vector<std::size_t> owner = owners(shape, layout.axis, ranks);
    for (std::size_t i = 0; i < value.size(); ++i) held[owner[i]].push_back(value[i]);
    return held;
  }
  for (Values& part : held) part = value;
  if (layout.kind == Meaning::Kind::sum) {
    for (std::size_t rank = 1; rank < held.size(); ++rank) {
      held[rank] = small_integers(seed + rank, value.size());
      for (std::size_t i = 0; i < value.size(); ++i) held[0][i] -= held[rank][i];
    }
  }
  return held;
}

/// Whether `held` represents `value`: for a sum the total is compared, else every element of every
/// rank.
inline bool means(const Meaning& layout, const Shape& shape, const PerRank& held,
                  const Values& value) {
  if (layout.kind != Meaning::Kind::sum)
    return held == lay_out(layout, shape, static_cast<int>(held.size()), value);
  Values sum(value.size());
  for (const Values& part : held) {
    if (part.size() != sum.size()) return false;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum == value;
}

/// The inner product on the global tensor of `a`, in the layout `layout`, and `b`, in its dual,
/// from the ranks' parts. Invariant with Invariant counts once. Replicated with Partial is <a, b_0
/// + b_1 + ...>, and blocks tile the tensor, so both are sums over the ranks. NaN if the ranks'
/// parts differ in size.
inline double inner_product(const Meaning& layout, const PerRank& a, const PerRank& b) {
  double sum = 0;
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    if (layout.kind == Meaning::Kind::once && rank > 0) break;
    if (a[rank].size() != b[rank].size()) return std::numeric_limits<double>::quiet_NaN();
    for (std::size_t i = 0; i < a[rank].size(); ++i) sum += double{a[rank][i]} * b[rank][i];
  }
  return sum;
}

}  // namespace shardwise::detail::oracle
