#pragma once
// Packs the shards of an axis into the blocks of a collective. The blocks of a collective are
// contiguous, but the shards of an axis are contiguous only if it is the outermost axis.

#include <cstddef>
#include <span>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/redistribute/local_moves.hpp"

namespace shardwise::detail {

/// A value for each rank, in memory of the host.
template <class V>
class PerRank {
 public:
  template <class ValueOf>
  PerRank(Pool& pool, int ranks, ValueOf value_of)
      : buffer_(pool.take_on_host(static_cast<std::size_t>(ranks) * sizeof(V))),
        ranks_(static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) begin()[rank] = value_of(rank);
  }

  V* begin() const { return static_cast<V*>(buffer_.data()); }
  V* end() const { return begin() + ranks_; }
  operator std::span<const V>() const { return {begin(), ranks_}; }

 private:
  Buffer buffer_;
  std::size_t ranks_;
};

using Counts = PerRank<std::size_t>;

/// The number of elements of a tensor that each rank holds when `axis` is split.
Counts shard_counts(Pool& pool, const Shape& whole, std::size_t axis, int ranks);

/// Whether the shards of `axis` are contiguous in the whole tensor.
inline bool lies_in_blocks(const Shape& whole, std::size_t axis) {
  return whole.elements(0, axis) <= 1;
}

/// Copies a tensor so that the shards of `axis` are contiguous.
template <class B, class T>
void pack(B& backend, const Shape& whole, std::size_t axis, int ranks, const T* tensor, T* packed) {
  for (int rank = 0; rank < ranks; ++rank) {
    const Shape shard = with_block(whole, axis, {rank, ranks});
    const Interval block = block_of(whole[axis], {rank, ranks});
    copy_box(backend, shard, tensor, BoxIn{whole, {}}.at(axis, block.offset), packed,
             BoxIn{shard, {}});
    packed += shard.elements();
  }
}

/// The inverse of `pack`.
template <class B, class T>
void unpack(B& backend, const Shape& whole, std::size_t axis, int ranks, const T* packed,
            T* tensor) {
  for (int rank = 0; rank < ranks; ++rank) {
    const Shape shard = with_block(whole, axis, {rank, ranks});
    const Interval block = block_of(whole[axis], {rank, ranks});
    copy_box(backend, shard, packed, BoxIn{shard, {}}, tensor,
             BoxIn{whole, {}}.at(axis, block.offset));
    packed += shard.elements();
  }
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE Counts shard_counts(Pool& pool, const Shape& whole, std::size_t axis, int ranks) {
  return Counts(pool, ranks, [&](int rank) {
    return with_block(whole, axis, {rank, ranks}).elements();
  });
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
