#pragma once
// The collectives of ranks that read each other's memory: who reads what of whom.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/detail/block_mismatch.hpp"
#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// Moves every collective but the all_reduce for `Self`, which derives from this and has
///
///     with_peers(call, mine, f)            f(std::span<const T* const>): the `mine` of all ranks
///     together(call, m, f)                 f(std::span<const M* const>): the `m` of all ranks
///     copy(from, to)                       to = the elements at `from`, unless they are the same
///     sum(inputs, first, out, reduction)   out = inputs from `first` on, reduced in rank order
///     world_rank(rank)                     the number of a rank in the text of an error
///
/// The first two call f when all ranks have agreed on `call`, and end when none reads any more.
template <class Self>
class PeerMoves : public Collectives<Self> {
 protected:
  template <class T>
  void move(const Call& call, const moves::AllGather<T>& m) {
    self().with_peers(call, m.in, [&](Pointers<T> blocks) { collect(blocks, m.counts, m.out); });
  }

  template <class T>
  void move(const Call& call, const moves::ReduceScatter<T>& m) {
    const std::size_t begin = offset(m.counts, self().rank());
    self().with_peers(call, m.in,
                      [&](Pointers<T> inputs) { self().sum(inputs, begin, m.out, m.reduction); });
  }

  template <class T>
  void move(const Call& call, const moves::Broadcast<T>& m) {
    const bool is_root = self().rank() == m.root;
    self().with_peers(call, is_root ? InputOf<T>(m.out) : InputOf<T>(), [&](Pointers<T> all) {
      if (!is_root) self().copy(all[index(m.root)], m.out);
    });
  }

  template <class T>
  void move(const Call& call, const moves::Gather<T>& m) {
    self().with_peers(call, m.in, [&](Pointers<T> blocks) {
      if (self().rank() == m.root) collect(blocks, m.counts, m.out);
    });
  }

  template <class T>
  void move(const Call& call, const moves::Scatter<T>& m) {
    const bool is_root = self().rank() == m.root;
    const std::size_t begin = offset(m.counts, self().rank());
    self().with_peers(call, is_root ? m.in : InputOf<T>(), [&](Pointers<T> all) {
      if (!m.out.empty()) self().copy(all[index(m.root)] + begin, m.out);
    });
  }

  /// Counts differ from rank to rank, so all ranks compare them here.
  template <class T>
  void move(const Call& call, const moves::AllToAll<T>& m) {
    std::optional<BlockMismatch> mismatch;
    self().together(call, m, [&](std::span<const moves::AllToAll<T>* const> all) {
      mismatch = first_block_mismatch(all);
      for (std::size_t r = 0, begin = 0; !mismatch && r < all.size(); begin += m.received[r++])
        if (m.received[r] != 0)
          self().copy(all[r]->in.data() + offset(all[r]->sent, self().rank()),
                      m.out.subspan(begin, m.received[r]));
    });
    if (!mismatch) return;
    const auto name = [&](std::size_t rank) { return self().world_rank(static_cast<int>(rank)); };
    throw collective_error(describe_block_mismatch(*mismatch, name));
  }

  void move(const Call& call, const moves::Barrier&) {
    self().with_peers(call, InputOf<std::uint8_t>(), [](Pointers<std::uint8_t>) {});
  }

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

 private:
  template <class T>
  using Pointers = std::span<const T* const>;

  Self& self() { return static_cast<Self&>(*this); }

  template <class T>
  void collect(Pointers<T> blocks, std::span<const std::size_t> counts, std::span<T> out) {
    for (std::size_t r = 0, begin = 0; r < blocks.size(); begin += counts[r++])
      if (counts[r] != 0) self().copy(blocks[r], out.subspan(begin, counts[r]));
  }
};

}  // namespace shardwise::detail
