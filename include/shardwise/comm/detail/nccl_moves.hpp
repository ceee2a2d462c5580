#pragma once
// The collectives of a group by calls of NCCL, with arguments that are already checked. Blocks may
// have any sizes.

#include <algorithm>
#include <cstddef>
#include <span>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/comm/detail/nccl_agreement.hpp"
#include "shardwise/comm/detail/nccl_group.hpp"
#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/comm/detail/split.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::nccl {

/// Whether one call of NCCL can move these blocks.
inline bool all_equal(std::span<const std::size_t> counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

/// Calls f(rank, offset, count) for each block that is not empty. All ranks of a group skip the
/// same blocks.
template <class F>
void for_each_block(std::span<const std::size_t> counts, F&& f) {
  std::size_t offset = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] > 0) f(static_cast<int>(r), offset, counts[r]);
    offset += counts[r];
  }
}

/// Where a call is enqueued, within one group call of NCCL.
struct StreamCall {
  int rank;  ///< which makes the call
  Results& results;
  ncclComm_t comm;
  cudaStream_t stream;

  /// Copies a block that the rank sends to itself.
  template <class T>
  void copy_own(const T* from, T* to, std::size_t count) const {
    if (from != to)
      results(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToDevice, stream));
  }
};

template <class T>
void move(const StreamCall& call, const moves::AllReduce<T>& m) {
  if (m.in.empty()) return;
  call.results(ncclAllReduce(m.in.data(), m.out.data(), m.in.size(), type_of(dtype_v<T>),
                             operation_of(m.reduction), call.comm, call.stream));
}

/// Unequal blocks: each rank broadcasts its own.
template <class T>
void move(const StreamCall& call, const moves::AllGather<T>& m) {
  constexpr ncclDataType_t type = type_of(dtype_v<T>);
  if (m.out.empty()) return;
  if (all_equal(m.counts)) {
    call.results(
        ncclAllGather(m.in.data(), m.out.data(), m.counts[0], type, call.comm, call.stream));
    return;
  }
  for_each_block(m.counts, [&](int rank, std::size_t offset, std::size_t count) {
    T* const block = m.out.data() + offset;
    call.results(ncclBroadcast(rank == call.rank ? m.in.data() : block, block, count, type, rank,
                               call.comm, call.stream));
  });
}

/// Unequal blocks: each is reduced onto its own rank.
template <class T>
void move(const StreamCall& call, const moves::ReduceScatter<T>& m) {
  constexpr ncclDataType_t type = type_of(dtype_v<T>);
  const ncclRedOp_t operation = operation_of(m.reduction);
  if (m.in.empty()) return;
  if (all_equal(m.counts)) {
    call.results(ncclReduceScatter(m.in.data(), m.out.data(), m.counts[0], type, operation,
                                   call.comm, call.stream));
    return;
  }
  for_each_block(m.counts, [&](int rank, std::size_t offset, std::size_t count) {
    call.results(ncclReduce(m.in.data() + offset, rank == call.rank ? m.out.data() : nullptr, count,
                            type, operation, rank, call.comm, call.stream));
  });
}

template <class T>
void move(const StreamCall& call, const moves::Broadcast<T>& m) {
  if (m.out.empty()) return;
  call.results(ncclBroadcast(m.out.data(), m.out.data(), m.out.size(), type_of(dtype_v<T>), m.root,
                             call.comm, call.stream));
}

template <class T>
void move(const StreamCall& call, const moves::Send<T>& m) {
  if (m.in.empty()) return;
  call.results(
      ncclSend(m.in.data(), m.in.size(), type_of(dtype_v<T>), m.to, call.comm, call.stream));
}

template <class T>
void move(const StreamCall& call, const moves::Receive<T>& m) {
  if (m.out.empty()) return;
  call.results(
      ncclRecv(m.out.data(), m.out.size(), type_of(dtype_v<T>), m.from, call.comm, call.stream));
}

template <class T>
void move(const StreamCall& call, const moves::Gather<T>& m) {
  if (call.rank != m.root) return move(call, moves::Send<T>{m.in, m.root, 0});
  for_each_block(m.counts, [&](int rank, std::size_t offset, std::size_t count) {
    const std::span<T> block = m.out.subspan(offset, count);
    if (rank == m.root)
      call.copy_own(m.in.data(), block.data(), count);
    else
      move(call, moves::Receive<T>{block, rank, 0});
  });
}

template <class T>
void move(const StreamCall& call, const moves::Scatter<T>& m) {
  if (call.rank != m.root) return move(call, moves::Receive<T>{m.out, m.root, 0});
  for_each_block(m.counts, [&](int rank, std::size_t offset, std::size_t count) {
    const std::span<const T> block = m.in.subspan(offset, count);
    if (rank == m.root)
      call.copy_own(block.data(), m.out.data(), count);
    else
      move(call, moves::Send<T>{block, rank, 0});
  });
}

template <class T>
void move(const StreamCall& call, const moves::AllToAll<T>& m) {
  const T* const own = m.in.data() + offset(m.sent, call.rank);
  for_each_block(m.sent, [&](int rank, std::size_t begin, std::size_t count) {
    if (rank != call.rank) move(call, moves::Send<T>{m.in.subspan(begin, count), rank, 0});
  });
  for_each_block(m.received, [&](int rank, std::size_t begin, std::size_t count) {
    if (rank != call.rank)
      move(call, moves::Receive<T>{m.out.subspan(begin, count), rank, 0});
    else
      call.copy_own(own, m.out.data() + begin, count);
  });
}

/// It is done on the stream when all ranks have called.
inline void barrier(NcclGroup& group, const Call& call) {
  group.issue(call, [&](Results& results, ncclComm_t comm, cudaStream_t stream) {
    results(ncclAllReduce(group.scratch(), group.scratch(), 1, ncclInt32, ncclMax, comm, stream));
  });
}

/// The arguments of ncclCommSplit, instead of the color and key of a split.
struct SplitArguments {
  int color;  ///< the first rank with the color of the split, because NCCL refuses negative colors
  int key;    ///< the rank in the new group
};

/// A collective, for which the host waits.
inline SplitArguments split_arguments(NcclGroup& group, int color, int key) {
  const Call call{Operation::split};
  agree(group, call);
  const auto all = gathered(group, call, SplitChoice{color, key});

  SplitArguments arguments{-1, 0};
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].color != color) continue;
    if (arguments.color < 0) arguments.color = static_cast<int>(r);
    const bool is_before =
        all[r].key != key ? all[r].key < key : r < static_cast<std::size_t>(group.rank());
    arguments.key += is_before ? 1 : 0;
  }
  return arguments;
}

}  // namespace shardwise::detail::nccl
