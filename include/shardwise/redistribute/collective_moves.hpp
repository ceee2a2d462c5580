#pragma once
// The redistributions that communicate. If ranks can read each other's memory, blocks with strides
// are copied or summed in place; otherwise they are packed before the collective and unpacked after
// it.

#include <cstddef>
#include <span>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/ordered_sum.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/redistribute/packed.hpp"

namespace shardwise::detail {

/// The number that all ranks compare when they read each other's blocks of `axis`. Blocks of the
/// outermost axis use the communicator's own collectives, where that number is 0.
template <class T>
Call blocks_call(Operation operation, const Shape& whole, std::size_t axis,
                 std::span<const std::size_t> counts) {
  Call call;
  call.axis = static_cast<int>(axis);
  call.operation = operation;
  call.dtype = dtype_v<T>;
  call.elements = whole.elements();
  call.counts = counts;
  return call;
}

/// out = all blocks of `From::axis`, on every rank.
template <class B, Communicator C, class T, ShardedLayout From, Layout To>
void all_gather(B& backend, C& ranks, Pool& pool, View<const T, From> in, View<T, To> out) {
  const Shape& whole = in.global();
  const std::size_t axis = split_position<From>(whole);
  const Counts counts = shard_counts(pool, whole, axis, ranks.size());
  if (lies_in_blocks(whole, axis)) {
    ranks.all_gather(in.span(), out.span(), counts);
  } else if constexpr (ReadsPeers<C>) {
    const auto copy_blocks = [&](std::span<const T* const> peers) noexcept {
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const Shape shard = with_block(whole, axis, {rank, ranks.size()});
        const Interval block = block_of(whole[axis], {rank, ranks.size()});
        copy_box(shard, peers[static_cast<std::size_t>(rank)], BoxIn{shard, {}}, out.data(),
                 BoxIn{whole, {}}.at(axis, block.offset));
      }
    };
    ranks.read_peers(blocks_call<T>(Operation::all_gather, whole, axis, counts), in.span(),
                     copy_blocks);
  } else {
    const Buffer packed = pool.take(out.size() * sizeof(T));
    T* blocks = static_cast<T*>(packed.data());
    ranks.all_gather(in.span(), std::span<T>(blocks, out.size()), counts);
    unpack(backend, whole, axis, ranks.size(), blocks, out.data());
  }
}

/// out = the rank's block of `To::axis` of the sum.
template <class B, Communicator C, class T, ShardedLayout To>
void reduce_scatter(B& backend, C& ranks, Pool& pool, View<const T, Partial> in, View<T, To> out) {
  const Shape& whole = in.global();
  const std::size_t axis = split_position<To>(whole);
  const Counts counts = shard_counts(pool, whole, axis, ranks.size());
  if (lies_in_blocks(whole, axis)) {
    ranks.reduce_scatter(in.span(), out.span(), counts);
  } else if constexpr (ReadsPeers<C>) {
    const Interval block = local_block<To>(whole, out.place());
    const auto sum_block = [&](std::span<const T* const> peers) noexcept {
      for_each_run(out.local(), BoxIn{whole, {}}.at(axis, block.offset), BoxIn{out.local(), {}},
                   [&](std::size_t from, std::size_t to, std::size_t length) {
                     T* const target = out.data() + to;
                     ordered_sum<T>(peers, from, length, std::span<T* const>(&target, 1));
                   });
    };
    ranks.read_peers(blocks_call<T>(Operation::reduce_scatter, whole, axis, counts), in.span(),
                     sum_block);
  } else {
    const Buffer packed = pool.take(in.size() * sizeof(T));
    T* blocks = static_cast<T*>(packed.data());
    pack(backend, whole, axis, ranks.size(), in.data(), blocks);
    ranks.reduce_scatter(std::span<const T>(blocks, in.size()), out.span(), counts);
  }
}

/// out = the rank's block of `To::axis`, taken from the ranks' blocks of `From::axis`.
template <class B, Communicator C, class T, ShardedLayout From, ShardedLayout To>
void all_to_all(B& backend, C& ranks, Pool& pool, View<const T, From> in, View<T, To> out) {
  const Shape& whole = in.global();
  const std::size_t from_axis = split_position<From>(whole);
  const std::size_t to_axis = split_position<To>(whole);
  if constexpr (ReadsPeers<C>) {
    const Interval mine = local_block<To>(whole, out.place());
    const auto copy_blocks = [&](std::span<const T* const> peers) noexcept {
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const Place peer{rank, ranks.size()};
        const Shape held = with_block(whole, from_axis, peer);
        const Interval theirs = block_of(whole[from_axis], peer);
        copy_box(with_block(out.local(), from_axis, peer), peers[static_cast<std::size_t>(rank)],
                 BoxIn{held, {}}.at(to_axis, mine.offset), out.data(),
                 BoxIn{out.local(), {}}.at(from_axis, theirs.offset));
      }
    };
    const Counts counts = shard_counts(pool, whole, from_axis, ranks.size());
    Call call = blocks_call<T>(Operation::all_to_all, whole, from_axis, counts);
    call.to_axis = static_cast<int>(to_axis);
    ranks.read_peers(call, in.span(), copy_blocks);
  } else {
    const Counts sent = shard_counts(pool, in.local(), to_axis, ranks.size());
    const Counts received = shard_counts(pool, out.local(), from_axis, ranks.size());
    const Buffer send_buffer = pool.take(in.size() * sizeof(T));
    const Buffer receive_buffer = pool.take(out.size() * sizeof(T));
    T* to_send = static_cast<T*>(send_buffer.data());
    T* received_blocks = static_cast<T*>(receive_buffer.data());
    pack(backend, in.local(), to_axis, ranks.size(), in.data(), to_send);
    ranks.all_to_all(std::span<const T>(to_send, in.size()), sent,
                     std::span<T>(received_blocks, out.size()), received);
    unpack(backend, out.local(), from_axis, ranks.size(), received_blocks, out.data());
  }
}

}  // namespace shardwise::detail
