#pragma once
// Checks that all ranks of a group are about to make the same call, by an all-gather of NCCL before
// it.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/block_mismatch.hpp"
#include "shardwise/comm/detail/call_record.hpp"
#include "shardwise/comm/detail/mismatch.hpp"
#include "shardwise/comm/detail/nccl_group.hpp"
#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::nccl {

/// The T of each rank, on the host. A collective, for which the host waits; the watchdog names it
/// as `call`.
template <class T>
std::vector<T> gathered(NcclGroup& group, const Call& call, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= NcclGroup::scratch_bytes);
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  std::byte* const there = group.scratch();
  std::byte* const own = there + all.size() * sizeof(T);
  group.issue(call, [&](Results& results, ncclComm_t comm, cudaStream_t stream) {
    results(cudaMemcpyAsync(own, &mine, sizeof(T), cudaMemcpyHostToDevice, stream));
    results(ncclAllGather(own, there, sizeof(T), ncclUint8, comm, stream));
  });
  group.wait();
  check(cudaMemcpyAsync(all.data(), there, all.size() * sizeof(T), cudaMemcpyDeviceToHost,
                        group.settings().stream),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(group.settings().stream), "cudaStreamSynchronize");
  return all;
}

/// At `communicating`, returns if all ranks are about to make this collective, and throws a
/// collective_error on all ranks if their calls differ. A call that is captured is not compared.
inline void agree(NcclGroup& group, const Call& call) {
  if (!group.compares_calls() || group.is_capturing()) return;
  const std::vector<CallRecord> records = gathered(group, call, CallRecord(call));
  const auto same = [&](std::size_t q, std::size_t r) { return records[q] == records[r]; };
  bool agreed = true;
  for (std::size_t r = 1; r < records.size(); ++r) agreed &= same(0, r);
  const std::uint64_t number = group.next_compared();
  if (agreed) return;
  const std::vector<int> ranks = gathered(group, call, group.settings().world_rank);
  throw collective_error(
      describe_mismatch(number, ranks, gathered(group, call, CallText(call)).data(), same));
}

/// The same of the blocks of an all_to_all, in one gather for each rank of the group, of what is
/// sent to it, and one of what each has found.
inline void agree_on_blocks(NcclGroup& group, const Call& call, std::span<const std::size_t> sent,
                            std::span<const std::size_t> expected) {
  if (!group.compares_calls() || group.is_capturing()) return;
  const auto rank = static_cast<std::size_t>(group.rank());
  std::vector<std::size_t> sent_here;
  for (std::size_t r = 0; r < sent.size(); ++r) {
    std::vector<std::size_t> sent_there = gathered(group, call, sent[r]);
    if (r == rank) sent_here = std::move(sent_there);
  }
  const auto first =
      first_found(gathered(group, call, first_block_mismatch(rank, sent_here, expected)));
  if (!first) return;
  const std::vector<int> ranks = gathered(group, call, group.settings().world_rank);
  throw collective_error(describe_block_mismatch(*first, [&](std::size_t r) { return ranks[r]; }));
}

}  // namespace shardwise::detail::nccl
