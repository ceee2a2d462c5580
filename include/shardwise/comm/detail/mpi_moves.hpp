#pragma once
// The collectives, with arguments that are already checked. Each is made of exchanges, and not of
// MPI's own collectives: those that wait cannot be given up, and those that do not are slower.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/comm/detail/mpi_group.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/sum_tree.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/ordered_sum.hpp"
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

/// Blocks with these counts, of which each rank has put its own into `out`.
template <class T>
void gather_blocks(MpiGroup& group, std::span<T> out, Counts counts) {
  group.exchange().gather(
      block_of(out.data(), 0).data, [&](int rank) { return offset(counts, rank); }, dtype_v<T>);
}

template <class T>
void move(MpiGroup& group, const moves::AllGather<T>& m) {
  copy_own(m.in, m.out.data() + offset(m.counts, group.rank()));
  gather_blocks(group, m.out, m.counts);
}

/// Along a SumTree, in accumulate_t, rounded at the end.
template <class T>
void scatter_sums_of_tree(MpiGroup& group, const moves::ReduceScatter<T>& m) {
  using A = accumulate_t<T>;
  const SumTree tree(group.size());
  const int rank = group.rank();
  const int place = tree.place_of(rank);
  const std::size_t n = m.in.size();
  A* const sums = group.scratch<A>(2 * n);
  A* const others = sums + n;
  Exchange& exchange = group.exchange();
  const auto blocks = [&](A* data, const BlockRange& range) {
    const std::size_t begin = offset(m.counts, range.begin);
    return block_of(data + begin, offset(m.counts, range.end) - begin);
  };
  const BlockRange all{0, group.size()};
  const auto add = [&](const BlockRange& range, bool others_first) {
    const Block at = blocks(sums, range);
    const std::size_t begin = offset(m.counts, range.begin);
    std::array<const A*, 2> terms{sums + begin, others + begin};
    if (others_first) std::swap(terms[0], terms[1]);
    ordered_sum<A>(terms, 0, at.count, std::array{sums + begin}, m.reduction);
  };

  std::ranges::transform(m.in, sums, [](T x) { return static_cast<A>(x); });
  if (tree.is_second(rank)) {
    exchange.send(rank - 1, blocks(sums, all));
    exchange.run_transfers(dtype_v<A>);
    exchange.receive(rank - 1, blocks(sums, {rank, rank + 1}));
    exchange.run_transfers(dtype_v<A>);
  } else {
    if (tree.shares_place(rank)) {
      exchange.receive(rank + 1, blocks(others, all));
      exchange.run_transfers(dtype_v<A>);
      add(all, false);
    }
    for (int distance = tree.places() / 2; distance > 0; distance /= 2) {
      const int partner = place ^ distance;
      const BlockRange kept = tree.kept(place, distance);
      exchange.receive(tree.rank_at(partner), blocks(others, kept));
      exchange.send(tree.rank_at(partner), blocks(sums, tree.kept(partner, distance)));
      exchange.run_transfers(dtype_v<A>);
      add(kept, partner < place);
    }
    if (tree.shares_place(rank)) {
      exchange.send(rank + 1, blocks(sums, {rank + 1, rank + 2}));
      exchange.run_transfers(dtype_v<A>);
    }
  }
  const A* const mine = sums + offset(m.counts, rank);
  std::transform(mine, mine + m.out.size(), m.out.begin(), [](A x) { return static_cast<T>(x); });
}

/// Blocks are exchanged and then added in rank order.
template <class T>
void move(MpiGroup& group, const moves::ReduceScatter<T>& m) {
  if (!group.exchange().is_direct()) return scatter_sums_of_tree(group, m);
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  T* const others = group.scratch<T>(ranks * m.out.size());
  set_blocks(group.exchange().outgoing(), m.in.data(), m.counts);
  const std::span<const T*> blocks = group.pointers<T>();
  for (std::size_t r = 0; r < ranks; ++r) {
    blocks[r] = others + r * m.out.size();
    group.exchange().incoming()[r] = block_of(blocks[r], m.out.size());
  }
  blocks[rank] = m.in.data() + offset(m.counts, group.rank());
  group.exchange().run(dtype_v<T>);
  ordered_sum<T>(blocks, 0, m.out.size(), std::array{m.out.data()}, m.reduction);
}

/// An all_reduce in which each rank adds a share of the elements and sends the sums to all.
template <class T>
void sum_shares(MpiGroup& group, const moves::AllReduce<T>& m) {
  const Counts shares = group.shares(m.in.size());
  const std::span<T> mine = own_block(group, m.out, shares);
  move(group, moves::ReduceScatter<T>{m.in, mine, shares, m.reduction});
  move(group, moves::AllGather<T>{mine, m.out, shares});
}

/// An all_reduce in which each rank gathers all inputs and adds them itself.
template <class T>
void sum_gathered(MpiGroup& group, const moves::AllReduce<T>& m) {
  const std::size_t n = m.in.size();
  const std::size_t total = n * static_cast<std::size_t>(group.size());
  T* const all = group.scratch<T>(total);
  move(group, moves::AllGather<T>{m.in, std::span(all, total), group.shares(total)});
  const std::span<const T*> inputs = group.pointers<T>();
  for (std::size_t r = 0; r < inputs.size(); ++r) inputs[r] = all + r * n;
  ordered_sum<T>(inputs, 0, n, std::array{m.out.data()}, m.reduction);
}

template <class T>
void move(MpiGroup& group, const moves::AllReduce<T>& m) {
  if (group.exchange().is_direct() && m.in.size_bytes() <= gathered_bytes)
    sum_gathered(group, m);
  else
    sum_shares(group, m);
}

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
  if (!exchange.is_direct()) return gather_blocks(group, m.out, shares);
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

/// A byte from each rank to all others.
inline void move(MpiGroup& group, const moves::Barrier&) {
  const auto ranks = static_cast<std::size_t>(group.size());
  auto* const all = group.scratch<std::uint8_t>(ranks);
  const std::uint8_t mine = 0;
  group.exchange().gather_bytes(&mine, all, sizeof(mine));
}

}  // namespace shardwise::detail::mpi
