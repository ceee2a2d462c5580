#pragma once
// The collectives themselves, of arguments that are right: each is a collective of MPI where its
// counts hold the data, and an exchange in pieces beyond.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/comm/detail/mpi_group.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/ordered_sum.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::mpi {

using Counts = std::span<const std::size_t>;

/// A block for exchange, which only reads those that go out.
template <class T>
Block block_of(const T* data, std::size_t count) {
  return {reinterpret_cast<std::byte*>(const_cast<T*>(data)), count};
}

/// Blocks that lie end to end from `data` on, one for each rank.
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
void all_gather(Group& group, std::span<const T> in, std::span<T> out, Counts counts) {
  T* const mine = out.data() + offset(counts, group.rank());
  if (group.fits(out.size())) {
    const auto layout = group.layout(counts);
    const bool in_place = in.data() == mine;
    check(MPI_Allgatherv(in_place ? MPI_IN_PLACE : in.data(), static_cast<int>(in.size()),
                         group.type<T>(), out.data(), layout.counts, layout.offsets,
                         group.type<T>(), group.comm()),
          "MPI_Allgatherv");
    return;
  }
  copy_own(in, mine);
  std::fill(group.outgoing().begin(), group.outgoing().end(), block_of(in.data(), in.size()));
  set_blocks(group.incoming(), out.data(), counts);
  group.exchange(dtype_v<T>);
}

/// out = block `rank` of the sum of all inputs: blocks are exchanged and added up in rank order.
template <class T>
void reduce_scatter(Group& group, std::span<const T> in, std::span<T> out, Counts counts,
                    Reduction reduction) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  T* const others = group.scratch<T>(ranks * out.size());
  set_blocks(group.outgoing(), in.data(), counts);
  const std::span<const T*> blocks = group.pointers<T>();
  for (std::size_t r = 0; r < ranks; ++r) {
    blocks[r] = others + r * out.size();
    group.incoming()[r] = block_of(blocks[r], out.size());
  }
  blocks[rank] = in.data() + offset(counts, group.rank());
  group.exchange(dtype_v<T>);
  ordered_sum<T>(blocks, 0, out.size(), std::array{out.data()}, reduction);
}

/// An all_reduce in which each rank adds up a share of the elements and hands it out.
template <class T>
void sum_shares(Group& group, std::span<const T> in, std::span<T> out, Reduction reduction) {
  const Counts shares = group.shares(in.size());
  const std::span<T> mine =
      out.subspan(offset(shares, group.rank()), shares[static_cast<std::size_t>(group.rank())]);
  reduce_scatter<T>(group, in, mine, shares, reduction);
  all_gather<T>(group, mine, out, shares);
}

/// An all_reduce in which each rank gathers all inputs and adds them up itself.
template <class T>
void sum_gathered(Group& group, std::span<const T> in, std::span<T> out, Reduction reduction) {
  const std::size_t n = in.size();
  T* const all = group.scratch<T>(n * static_cast<std::size_t>(group.size()));
  check(MPI_Allgather(in.data(), static_cast<int>(n), group.type<T>(), all, static_cast<int>(n),
                      group.type<T>(), group.comm()),
        "MPI_Allgather");
  const std::span<const T*> inputs = group.pointers<T>();
  for (std::size_t r = 0; r < inputs.size(); ++r) inputs[r] = all + r * n;
  ordered_sum<T>(inputs, 0, n, std::array{out.data()}, reduction);
}

template <class T>
void broadcast(Group& group, std::span<T> data, int root) {
  while (!data.empty()) {
    const std::span<T> piece = data.first(std::min(data.size(), group.job()->largest_piece));
    check(MPI_Bcast(piece.data(), static_cast<int>(piece.size()), group.type<T>(), root,
                    group.comm()),
          "MPI_Bcast");
    data = data.subspan(piece.size());
  }
}

template <class T>
void gather(Group& group, std::span<const T> in, std::span<T> out, Counts counts, int root) {
  const bool is_root = group.rank() == root;
  T* const mine = is_root ? out.data() + offset(counts, root) : nullptr;
  if (group.fits(total(counts))) {
    const auto layout = group.layout(counts);
    const bool in_place = is_root && in.data() == mine;
    check(MPI_Gatherv(in_place ? MPI_IN_PLACE : in.data(), static_cast<int>(in.size()),
                      group.type<T>(), out.data(), layout.counts, layout.offsets, group.type<T>(),
                      root, group.comm()),
          "MPI_Gatherv");
    return;
  }
  if (is_root) {
    copy_own(in, mine);
    set_blocks(group.incoming(), out.data(), counts);
  } else {
    group.outgoing()[static_cast<std::size_t>(root)] = block_of(in.data(), in.size());
  }
  group.exchange(dtype_v<T>);
}

template <class T>
void scatter(Group& group, std::span<const T> in, std::span<T> out, Counts counts, int root) {
  if (group.fits(total(counts))) {
    const auto layout = group.layout(counts);
    check(MPI_Scatterv(in.data(), layout.counts, layout.offsets, group.type<T>(), out.data(),
                       static_cast<int>(out.size()), group.type<T>(), root, group.comm()),
          "MPI_Scatterv");
    return;
  }
  if (group.rank() == root) {
    copy_own(in.subspan(offset(counts, root), out.size()), out.data());
    set_blocks(group.outgoing(), in.data(), counts);
  } else {
    group.incoming()[static_cast<std::size_t>(root)] = block_of(out.data(), out.size());
  }
  group.exchange(dtype_v<T>);
}

/// Always an exchange: no rank knows whether all the others' counts fit into one call of MPI.
template <class T>
void all_to_all(Group& group, std::span<const T> in, Counts sent, std::span<T> out,
                Counts received) {
  const auto rank = static_cast<std::size_t>(group.rank());
  copy_own(in.subspan(offset(sent, group.rank()), sent[rank]),
           out.data() + offset(received, group.rank()));
  set_blocks(group.outgoing(), in.data(), sent);
  set_blocks(group.incoming(), out.data(), received);
  group.exchange(dtype_v<T>);
}

}  // namespace shardwise::detail::mpi
