#pragma once
// The collectives, with arguments that are already checked. Each is a collective of MPI if the data
// is small enough for its counts, and an exchange in pieces if not.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/comm/detail/mpi_group.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/ordered_sum.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::mpi {

using Counts = std::span<const std::size_t>;

/// Bytes of the largest all_reduce in which each rank sends its whole input to all others.
inline constexpr std::size_t gathered_bytes = 4096;

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

template <class T>
void copy_own(std::span<const T> from, T* to) {
  if (!from.empty() && from.data() != to) std::copy(from.begin(), from.end(), to);
}

template <class T>
void move(MpiGroup& group, const moves::AllGather<T>& m) {
  T* const mine = m.out.data() + offset(m.counts, group.rank());
  if (group.fits(m.out.size())) {
    const auto blocks = group.displacements(m.counts);
    const bool in_place = m.in.data() == mine;
    check(MPI_Allgatherv(in_place ? MPI_IN_PLACE : m.in.data(), static_cast<int>(m.in.size()),
                         group.type<T>(), m.out.data(), blocks.counts, blocks.displacements,
                         group.type<T>(), group.comm()),
          "MPI_Allgatherv");
    return;
  }
  copy_own(m.in, mine);
  std::fill(group.outgoing().begin(), group.outgoing().end(), block_of(m.in.data(), m.in.size()));
  set_blocks(group.incoming(), m.out.data(), m.counts);
  group.exchange(dtype_v<T>);
}

/// Blocks are exchanged and then added in rank order.
template <class T>
void move(MpiGroup& group, const moves::ReduceScatter<T>& m) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  T* const others = group.scratch<T>(ranks * m.out.size());
  set_blocks(group.outgoing(), m.in.data(), m.counts);
  const std::span<const T*> blocks = group.pointers<T>();
  for (std::size_t r = 0; r < ranks; ++r) {
    blocks[r] = others + r * m.out.size();
    group.incoming()[r] = block_of(blocks[r], m.out.size());
  }
  blocks[rank] = m.in.data() + offset(m.counts, group.rank());
  group.exchange(dtype_v<T>);
  ordered_sum<T>(blocks, 0, m.out.size(), std::array{m.out.data()}, m.reduction);
}

/// An all_reduce in which each rank adds a share of the elements and sends the sums to all.
template <class T>
void sum_shares(MpiGroup& group, const moves::AllReduce<T>& m) {
  const Counts shares = group.shares(m.in.size());
  const std::span<T> mine =
      m.out.subspan(offset(shares, group.rank()), shares[static_cast<std::size_t>(group.rank())]);
  move(group, moves::ReduceScatter<T>{m.in, mine, shares, m.reduction});
  move(group, moves::AllGather<T>{mine, m.out, shares});
}

/// An all_reduce in which each rank gathers all inputs and adds them itself.
template <class T>
void sum_gathered(MpiGroup& group, const moves::AllReduce<T>& m) {
  const std::size_t n = m.in.size();
  T* const all = group.scratch<T>(n * static_cast<std::size_t>(group.size()));
  check(MPI_Allgather(m.in.data(), static_cast<int>(n), group.type<T>(), all, static_cast<int>(n),
                      group.type<T>(), group.comm()),
        "MPI_Allgather");
  const std::span<const T*> inputs = group.pointers<T>();
  for (std::size_t r = 0; r < inputs.size(); ++r) inputs[r] = all + r * n;
  ordered_sum<T>(inputs, 0, n, std::array{m.out.data()}, m.reduction);
}

template <class T>
void move(MpiGroup& group, const moves::AllReduce<T>& m) {
  if (m.in.size_bytes() <= gathered_bytes)
    sum_gathered(group, m);
  else
    sum_shares(group, m);
}

template <class T>
void move(MpiGroup& group, const moves::Broadcast<T>& m) {
  for (std::span<T> data = m.out; !data.empty();) {
    const std::span<T> piece = data.first(std::min(data.size(), group.world()->largest_piece));
    check(MPI_Bcast(piece.data(), static_cast<int>(piece.size()), group.type<T>(), m.root,
                    group.comm()),
          "MPI_Bcast");
    data = data.subspan(piece.size());
  }
}

template <class T>
void move(MpiGroup& group, const moves::Gather<T>& m) {
  const bool is_root = group.rank() == m.root;
  T* const mine = is_root ? m.out.data() + offset(m.counts, m.root) : nullptr;
  if (group.fits(total(m.counts))) {
    const auto blocks = group.displacements(m.counts);
    const bool in_place = is_root && m.in.data() == mine;
    check(MPI_Gatherv(in_place ? MPI_IN_PLACE : m.in.data(), static_cast<int>(m.in.size()),
                      group.type<T>(), m.out.data(), blocks.counts, blocks.displacements,
                      group.type<T>(), m.root, group.comm()),
          "MPI_Gatherv");
    return;
  }
  if (is_root) {
    copy_own(m.in, mine);
    set_blocks(group.incoming(), m.out.data(), m.counts);
  } else {
    group.outgoing()[static_cast<std::size_t>(m.root)] = block_of(m.in.data(), m.in.size());
  }
  group.exchange(dtype_v<T>);
}

template <class T>
void move(MpiGroup& group, const moves::Scatter<T>& m) {
  if (group.fits(total(m.counts))) {
    const auto blocks = group.displacements(m.counts);
    check(MPI_Scatterv(m.in.data(), blocks.counts, blocks.displacements, group.type<T>(),
                       m.out.data(), static_cast<int>(m.out.size()), group.type<T>(), m.root,
                       group.comm()),
          "MPI_Scatterv");
    return;
  }
  if (group.rank() == m.root) {
    copy_own(m.in.subspan(offset(m.counts, m.root), m.out.size()), m.out.data());
    set_blocks(group.outgoing(), m.in.data(), m.counts);
  } else {
    group.incoming()[static_cast<std::size_t>(m.root)] = block_of(m.out.data(), m.out.size());
  }
  group.exchange(dtype_v<T>);
}

/// Always an exchange: no rank knows whether the counts of all others fit into one call of MPI.
template <class T>
void move(MpiGroup& group, const moves::AllToAll<T>& m) {
  group.agree_on_blocks(m.sent, m.received);
  const auto rank = static_cast<std::size_t>(group.rank());
  copy_own(m.in.subspan(offset(m.sent, group.rank()), m.sent[rank]),
           m.out.data() + offset(m.received, group.rank()));
  set_blocks(group.outgoing(), m.in.data(), m.sent);
  set_blocks(group.incoming(), m.out.data(), m.received);
  group.exchange(dtype_v<T>);
}

inline void move(MpiGroup& group, const moves::Barrier&) {
  check(MPI_Barrier(group.comm()), "MPI_Barrier");
}

}  // namespace shardwise::detail::mpi
