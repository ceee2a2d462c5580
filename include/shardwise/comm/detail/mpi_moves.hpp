#pragma once
// The collectives, with arguments that are already checked. Each is made of exchanges, and not of
// MPI's own collectives: those that wait cannot be given up, and those that do not are slower.

#include <algorithm>
#include <cstddef>
#include <span>

#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/comm/detail/mpi_group.hpp"
#include "shardwise/comm/detail/mpi_rounds.hpp"
#include "shardwise/comm/detail/sum_tree.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::mpi {

using Counts = std::span<const std::size_t>;

/// A block for exchange(), which only reads blocks that it sends.
template <class T>
Block block_of(const T* data, std::size_t count) {
  return {reinterpret_cast<std::byte*>(const_cast<T*>(data)), count};
}

/// Contiguous blocks from `data` on, one for each rank.
template <class T>
void set_blocks(std::span<Block> blocks, const T* data, Counts counts) {
  for (std::size_t r = 0; r < blocks.size(); data += counts[r++])
    blocks[r] = block_of(data, counts[r]);
}

/// This rank's block of `data`, which has one of these counts for each rank.
template <class T>
std::span<T> own_block(const MpiGroup& group, std::span<T> data, Counts counts) {
  return data.subspan(offset(counts, group.rank()), counts[static_cast<std::size_t>(group.rank())]);
}

template <class T>
void copy_own(std::span<const T> from, T* to) {
  if (!from.empty() && from.data() != to) std::copy(from.begin(), from.end(), to);
}

template <class Move>
requires requires(Rounds& rounds, const Move& m) { rounds.begin(m); }
void move(MpiGroup& group, const Move& m) { group.make(m); }

template <class T>
void move(MpiGroup& group, const moves::Gather<T>& m) {
  Exchange& exchange = group.exchange();
  if (group.rank() == m.root) {
    copy_own(m.in, m.out.data() + offset(m.counts, m.root));
    set_blocks(exchange.incoming(), m.out.data(), m.counts);
  } else {
    exchange.outgoing()[static_cast<std::size_t>(m.root)] = block_of(m.in.data(), m.in.size());
  }
  exchange.run(dtype_v<T>);
}

template <class T>
void move(MpiGroup& group, const moves::Scatter<T>& m) {
  Exchange& exchange = group.exchange();
  if (group.rank() == m.root) {
    copy_own(m.in.subspan(offset(m.counts, m.root), m.out.size()), m.out.data());
    set_blocks(exchange.outgoing(), m.in.data(), m.counts);
  } else {
    exchange.incoming()[static_cast<std::size_t>(m.root)] = block_of(m.out.data(), m.out.size());
  }
  exchange.run(dtype_v<T>);
}

/// A broadcast in which the root sends each rank a share, and the ranks send those to each other,
/// so that no rank sends more than twice the data. In a direct group the root receives nothing.
template <class T>
void broadcast_shares(MpiGroup& group, const moves::Broadcast<T>& m) {
  const Counts shares = group.shares(m.out.size());
  const std::span<T> mine = own_block(group, m.out, shares);
  move(group, moves::Scatter<T>{m.out, mine, shares, m.root});
  Exchange& exchange = group.exchange();
  if (!exchange.is_direct()) return group.make(moves::AllGather<T>{mine, m.out, shares});
  std::ranges::fill(exchange.outgoing(), block_of(mine.data(), mine.size()));
  if (group.rank() != m.root) {
    exchange.outgoing()[static_cast<std::size_t>(m.root)] = {};
    set_blocks(exchange.incoming(), m.out.data(), shares);
  }
  exchange.run(dtype_v<T>);
}

/// The root sends small data whole to each rank.
template <class T>
void move(MpiGroup& group, const moves::Broadcast<T>& m) {
  if (m.out.size_bytes() > gathered_bytes) return broadcast_shares(group, m);
  Exchange& exchange = group.exchange();
  const Block all = block_of(m.out.data(), m.out.size());
  if (group.rank() == m.root)
    std::ranges::fill(exchange.outgoing(), all);
  else
    exchange.incoming()[static_cast<std::size_t>(m.root)] = all;
  exchange.run(dtype_v<T>);
}

template <class T>
void move(MpiGroup& group, const moves::AllToAll<T>& m) {
  group.agree_on_blocks(m.sent, m.received);
  const auto rank = static_cast<std::size_t>(group.rank());
  copy_own(m.in.subspan(offset(m.sent, group.rank()), m.sent[rank]),
           m.out.data() + offset(m.received, group.rank()));
  set_blocks(group.exchange().outgoing(), m.in.data(), m.sent);
  set_blocks(group.exchange().incoming(), m.out.data(), m.received);
  group.exchange().run(dtype_v<T>);
}

inline void move(MpiGroup& group, const moves::Barrier&) { group.barrier(); }

}  // namespace shardwise::detail::mpi
