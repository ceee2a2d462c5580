#pragma once
// Halos: what a window reads beyond a rank's own block, there and back. A rank may need rows of
// several ranks, where blocks are narrower than the window, and those that hold nothing join in.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/ordered_sum.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/redistribute/collective_moves.hpp"

namespace shardwise::detail {

/// A tensor of which `held` of one axis is in memory, at `data`.
template <class T>
struct Slab {
  T* data;
  Interval held;
};

/// Copies `part` of `axis` from one slab to another of the same tensor; both hold it.
template <class T>
void copy_part(const Shape& whole, std::size_t axis, const Interval& part, Slab<const T> from,
               Slab<T> to) {
  const auto shape_of = [&](std::size_t extent) {
    Shape shape = whole;
    shape[axis] = with_extent(whole[axis], extent);
    return shape;
  };
  const auto box_in = [&](const Interval& held) {
    return BoxIn{shape_of(held.size), {}}.at(axis, part.offset - held.offset);
  };
  if (part.size == 0) return;
  copy_box(shape_of(part.size), from.data, box_in(from.held), to.data, box_in(to.held));
}

/// out = the sum of the ranks' slabs, in rank order, or zero where nobody holds anything.
/// `slab_of(rank)` is a rank's slab; `terms` is memory for a pointer for each rank.
template <class T, class SlabOf>
void sum_slabs(const Shape& whole, std::size_t axis, int ranks, SlabOf slab_of, Slab<T> out,
               const T** terms) {
  const std::size_t inner = whole.elements(axis + 1, whole.rank());
  const std::size_t outer = whole.elements(0, axis);
  for (std::size_t at = out.held.offset, end = at; at < out.held.end(); at = end) {
    end = out.held.end();  // up to here the same ranks hold summands
    for (int rank = 0; rank < ranks; ++rank) {
      const Interval held = slab_of(rank).held;
      if (held.offset > at) end = std::min(end, held.offset);
      if (held.end() > at) end = std::min(end, held.end());
    }
    for (std::size_t row = 0; row < outer; ++row) {
      std::size_t count = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Slab<const T> slab = slab_of(rank);
        if (overlap(slab.held, {at, end - at}).size > 0)
          terms[count++] = slab.data + (row * slab.held.size + at - slab.held.offset) * inner;
      }
      T* const target = out.data + (row * out.held.size + at - out.held.offset) * inner;
      const std::size_t length = (end - at) * inner;
      if (count == 0) {
        std::fill_n(target, length, T{});
      } else {
        ordered_sum<T>(std::span<const T* const>(terms, count), 0, length,
                       std::span<T* const>(&target, 1));
      }
    }
  }
}

/// What all ranks agree on when they exchange halos; `counts` are what they hold.
template <Layout L, class T>
Call halo_call(Operation operation, const Shape& whole, std::span<const std::size_t> counts) {
  return blocks_call<T>(operation, whole, split_position<L>(whole), counts);
}

template <SplitLayout L>
Counts held_counts(Pool& pool, const Shape& whole, int ranks) {
  return Counts(pool, ranks, [&](int rank) {
    return local_shape<L>(whole, {rank, ranks}).elements();
  });
}

/// For ranks that cannot read each other's memory: what the others hold as From of that which this
/// rank holds as To, fetched by one all-to-all.
template <SplitLayout From, SplitLayout To, class T>
class Fetched {
 public:
  template <Communicator C>
  Fetched(C& ranks, Pool& pool, View<const T, From> in)
      : whole_(in.global()), axis_(split_position<From>(whole_)), me_(in.place()) {
    const Counts sent = counts(pool, [&](int rank) { return sent_to(rank); });
    const Counts received = counts(pool, [&](int rank) { return part_of(rank); });
    const Buffer send_buffer = pool.take(sum(sent) * sizeof(T));
    memory_ = pool.take(sum(received) * sizeof(T));
    starts_ = pool.take(static_cast<std::size_t>(me_.size) * sizeof(T*));
    T* const to_send = static_cast<T*>(send_buffer.data());
    T* const fetched = static_cast<T*>(memory_.data());
    const Slab<const T> mine{in.data(), held_interval<From>(whole_[axis_], me_)};
    std::size_t next_sent = 0, next_received = 0;
    for (int rank = 0; rank < me_.size; ++rank) {
      const Interval part = sent_to(rank);
      copy_part<T>(whole_, axis_, part, mine, {to_send + next_sent, part});
      starts()[rank] = fetched + next_received;
      next_sent += elements(part);
      next_received += elements(part_of(rank));
    }
    ranks.all_to_all(std::span<const T>(to_send, next_sent), sent,
                     std::span<T>(fetched, next_received), received);
  }

  /// What rank `rank` held of it.
  Slab<const T> operator[](int rank) const { return {starts()[rank], part_of(rank)}; }

 private:
  Interval sent_to(int rank) const {
    return overlap(held_interval<From>(whole_[axis_], me_),
                   held_interval<To>(whole_[axis_], {rank, me_.size}));
  }
  Interval part_of(int rank) const {
    return overlap(held_interval<From>(whole_[axis_], {rank, me_.size}),
                   held_interval<To>(whole_[axis_], me_));
  }
  std::size_t elements(const Interval& part) const {
    return part.size * whole_.elements(0, axis_) * whole_.elements(axis_ + 1, whole_.rank());
  }
  template <class PartOf>
  Counts counts(Pool& pool, PartOf part) const {
    return Counts(pool, me_.size, [&](int rank) { return elements(part(rank)); });
  }
  static std::size_t sum(std::span<const std::size_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
  const T** starts() const { return static_cast<const T**>(starts_.data()); }

  Shape whole_;
  std::size_t axis_;
  Place me_;
  Buffer memory_;
  Buffer starts_;
};

/// out = what the rank's window reads.
template <Communicator C, class T, ShardedLayout From, HaloedLayout To>
void halo_exchange(C& ranks, Pool& pool, View<const T, From> in, View<T, To> out) {
  const Shape& whole = in.global();
  const std::size_t axis = split_position<To>(whole);
  const Slab<T> mine{out.data(), local_block<To>(whole, out.place())};
  if constexpr (ReadsPeers<C>) {
    const auto copy_parts = [&](std::span<const T* const> peers) noexcept {
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const Interval theirs = local_block<From>(whole, {rank, ranks.size()});
        copy_part<T>(whole, axis, overlap(theirs, mine.held),
                     {peers[static_cast<std::size_t>(rank)], theirs}, mine);
      }
    };
    const Counts counts = held_counts<To>(pool, whole, ranks.size());
    ranks.read_peers(halo_call<To, T>(Operation::halo_exchange, whole, counts), in.span(),
                     copy_parts);
  } else {
    const Fetched<From, To, T> parts(ranks, pool, in);
    for (int rank = 0; rank < ranks.size(); ++rank)
      copy_part<T>(whole, axis, parts[rank].held, parts[rank], mine);
  }
}

/// out = the rank's block of the sum of what windows read.
template <Communicator C, class T, HaloedPartialLayout From, ShardedLayout To>
void halo_sum(C& ranks, Pool& pool, View<const T, From> in, View<T, To> out) {
  const Shape& whole = in.global();
  const std::size_t axis = split_position<To>(whole);
  const Slab<T> mine{out.data(), local_block<To>(whole, out.place())};
  const auto count = static_cast<std::size_t>(ranks.size());
  const Buffer term_buffer = pool.take(count * sizeof(const T*));
  const auto terms = static_cast<const T**>(term_buffer.data());
  if constexpr (ReadsPeers<C>) {
    const auto sum_parts = [&](std::span<const T* const> peers) noexcept {
      const auto slab_of = [&](int rank) {
        return Slab<const T>{peers[static_cast<std::size_t>(rank)],
                             local_block<From>(whole, {rank, ranks.size()})};
      };
      sum_slabs<T>(whole, axis, ranks.size(), slab_of, mine, terms);
    };
    const Counts counts = held_counts<From>(pool, whole, ranks.size());
    ranks.read_peers(halo_call<From, T>(Operation::halo_sum, whole, counts), in.span(), sum_parts);
  } else {
    const Fetched<From, To, T> parts(ranks, pool, in);
    sum_slabs<T>(
        whole, axis, ranks.size(), [&](int rank) { return parts[rank]; }, mine, terms);
  }
}

}  // namespace shardwise::detail
