#pragma once
// Halo exchange and halo sum. If blocks are narrower than the window, a rank needs rows of several
// ranks. Ranks with empty blocks join too.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/ordered_sum.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/redistribute/collective_moves.hpp"

namespace shardwise::detail {

/// The memory of a tensor along one of its axes: a number of planes, each with the units of the
/// axis one after another, each unit with the same number of elements.
struct AlongAxis {
  std::size_t planes;
  std::size_t unit;

  AlongAxis(const Shape& whole, std::size_t axis)
      : planes(whole.elements(0, axis)), unit(whole.elements(axis + 1, whole.rank())) {}

  std::size_t elements(const Interval& part) const { return planes * part.size * unit; }
};

/// The units `held` of one axis of a tensor, in memory at `data`.
template <class T>
struct Slab {
  T* data;
  Interval held;

  /// The address of unit `at` in the first plane.
  T* first(const AlongAxis& tensor, std::size_t at) const {
    return data + (at - held.offset) * tensor.unit;
  }
  /// The distance to the same unit of the next plane.
  std::size_t step(const AlongAxis& tensor) const { return held.size * tensor.unit; }
};

/// The index of element i of planes of `length` elements in a slab whose planes are `step` apart.
struct SlabElement {
  std::size_t length;

  constexpr std::size_t in(std::size_t step, std::size_t i) const {
    return i / length * step + i % length;
  }
};

template <class T>
struct SlabCopy {
  SlabElement element;
  const T* from;
  std::size_t from_step;
  T* to;
  std::size_t to_step;
  constexpr void operator()(std::size_t i) const {
    to[element.in(to_step, i)] = from[element.in(from_step, i)];
  }
};

/// Copies `part` of the axis, which both hold, from one slab to another of the same tensor.
template <class B, class T>
void copy_part(B& backend, const AlongAxis& tensor, const Interval& part, Slab<const T> from,
               Slab<T> to) {
  if (tensor.elements(part) == 0) return;
  const std::size_t length = part.size * tensor.unit;
  const T* source = from.first(tensor, part.offset);
  T* target = to.first(tensor, part.offset);
  if constexpr (DeviceBackend<B>) {
    backend.for_each(tensor.elements(part),
                     SlabCopy<T>{{length}, source, from.step(tensor), target, to.step(tensor)});
  } else {
    for (std::size_t plane = 0; plane < tensor.planes; ++plane) {
      std::copy_n(source + plane * from.step(tensor), length, target + plane * to.step(tensor));
    }
  }
}

/// out = the sum of the ranks' slabs, in rank order, or zero for units that no rank holds.
template <class T>
class SlabSum {
 public:
  SlabSum(Pool& pool, const AlongAxis& tensor, int ranks)
      : tensor_(tensor),
        ranks_(ranks),
        term_memory_(pool.take_on_host(static_cast<std::size_t>(ranks) * sizeof(const T*))),
        step_memory_(pool.take_on_host(static_cast<std::size_t>(ranks) * sizeof(std::size_t))),
        terms_(static_cast<const T**>(term_memory_.data())),
        steps_(static_cast<std::size_t*>(step_memory_.data())) {}

  /// `slab_of(rank)` is a rank's slab.
  template <class SlabOf>
  void operator()(SlabOf slab_of, Slab<T> out) const noexcept {
    if (tensor_.elements(out.held) == 0) return;
    for (std::size_t at = out.held.offset, end = at; at < out.held.end(); at = end) {
      end = out.held.end();  // up to here the same ranks hold summands
      std::size_t count = 0;
      for (int rank = 0; rank < ranks_; ++rank) {
        const Slab<const T> slab = slab_of(rank);
        if (slab.held.offset > at) end = std::min(end, slab.held.offset);
        if (slab.held.offset > at || slab.held.end() <= at) continue;
        end = std::min(end, slab.held.end());
        terms_[count] = slab.first(tensor_, at);
        steps_[count++] = slab.step(tensor_);
      }
      sum(count, (end - at) * tensor_.unit, out.first(tensor_, at), out.step(tensor_));
    }
  }

 private:
  /// Sums `length` elements of each plane over the slabs. There is at least one plane.
  void sum(std::size_t slabs, std::size_t length, T* out, std::size_t step) const {
    for (std::size_t plane = 0;;) {
      if (slabs == 0) {
        std::fill_n(out, length, T{});
      } else if (slabs == 1) {
        std::copy_n(terms_[0], length, out);
      } else {
        ordered_sum<T>(std::span<const T* const>(terms_, slabs), 0, length,
                       std::span<T* const>(&out, 1));
      }
      if (++plane == tensor_.planes) return;
      for (std::size_t i = 0; i < slabs; ++i) terms_[i] += steps_[i];
      out += step;
    }
  }

  AlongAxis tensor_;
  int ranks_;
  Buffer term_memory_, step_memory_;
  const T** terms_;     // the next plane's summands, one pointer for each slab
  std::size_t* steps_;  // the distance to those of the plane after it
};

template <class T>
struct SlabAdd {
  SlabElement element;
  const T* from;
  std::size_t from_step;
  accumulate_t<T>* to;
  std::size_t to_step;
  constexpr void operator()(std::size_t i) const {
    to[element.in(to_step, i)] += static_cast<accumulate_t<T>>(from[element.in(from_step, i)]);
  }
};

template <class T>
struct RoundEach {
  const accumulate_t<T>* from;
  T* to;
  constexpr void operator()(std::size_t i) const { to[i] = static_cast<T>(from[i]); }
};

/// out = the sum of the ranks' slabs, in rank order, on a device: one rank after the other.
template <DeviceBackend B, class SlabOf, class T>
void add_slabs(B& backend, Pool& pool, const AlongAxis& tensor, int ranks, SlabOf slab_of,
               Slab<T> out) {
  using A = accumulate_t<T>;
  const std::size_t elements = tensor.elements(out.held);
  if (elements == 0) return;
  const Buffer memory = pool.take(elements * sizeof(A));
  const Slab<A> sums{static_cast<A*>(memory.data()), out.held};
  fill(backend, sums.data, elements, A{0});
  for (int rank = 0; rank < ranks; ++rank) {
    const Slab<const T> slab = slab_of(rank);
    const Interval part = overlap(slab.held, out.held);
    if (tensor.elements(part) == 0) continue;
    backend.for_each(tensor.elements(part), SlabAdd<T>{{part.size * tensor.unit},
                                                       slab.first(tensor, part.offset),
                                                       slab.step(tensor),
                                                       sums.first(tensor, part.offset),
                                                       sums.step(tensor)});
  }
  backend.for_each(elements, RoundEach<T>{sums.data, out.data});
}

/// The number that all ranks compare when they exchange halos; `counts` are the units that they
/// hold.
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

/// For ranks that cannot read each other's memory: the units that this rank holds in layout To,
/// fetched by one all-to-all from the ranks that hold them in layout From.
template <SplitLayout From, SplitLayout To, class T>
class Fetched {
 public:
  template <class B, Communicator C>
  Fetched(B& backend, C& ranks, Pool& pool, View<const T, From> in)
      : axis_(in.global()[split_position<From>(in.global())]),
        tensor_(in.global(), split_position<From>(in.global())),
        me_(in.place()) {
    const Counts sent = counts(pool, [&](int rank) { return sent_to(rank); });
    const Counts received = counts(pool, [&](int rank) { return part_of(rank); });
    const Buffer send_buffer = pool.take(sum(sent) * sizeof(T));
    memory_ = pool.take(sum(received) * sizeof(T));
    starts_ = pool.take_on_host(static_cast<std::size_t>(me_.size) * sizeof(T*));
    T* const to_send = static_cast<T*>(send_buffer.data());
    T* const fetched = static_cast<T*>(memory_.data());
    const Slab<const T> mine{in.data(), held_interval<From>(axis_, me_)};
    std::size_t next_sent = 0, next_received = 0;
    for (int rank = 0; rank < me_.size; ++rank) {
      const Interval part = sent_to(rank);
      copy_part<B, T>(backend, tensor_, part, mine, {to_send + next_sent, part});
      starts()[rank] = fetched + next_received;
      next_sent += tensor_.elements(part);
      next_received += tensor_.elements(part_of(rank));
    }
    ranks.all_to_all(std::span<const T>(to_send, next_sent), sent,
                     std::span<T>(fetched, next_received), received);
  }

  /// The part of rank `rank`.
  Slab<const T> operator[](int rank) const { return {starts()[rank], part_of(rank)}; }

 private:
  Interval sent_to(int rank) const {
    return overlap(held_interval<From>(axis_, me_), held_interval<To>(axis_, {rank, me_.size}));
  }
  Interval part_of(int rank) const {
    return overlap(held_interval<From>(axis_, {rank, me_.size}), held_interval<To>(axis_, me_));
  }
  template <class PartOf>
  Counts counts(Pool& pool, PartOf part) const {
    return Counts(pool, me_.size, [&](int rank) { return tensor_.elements(part(rank)); });
  }
  static std::size_t sum(std::span<const std::size_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
  const T** starts() const { return static_cast<const T**>(starts_.data()); }

  Dim axis_;
  AlongAxis tensor_;
  Place me_;
  Buffer memory_;
  Buffer starts_;
};

/// out = the units that the rank's windows read.
template <class B, Communicator C, class T, ShardedLayout From, HaloedLayout To>
void halo_exchange(B& backend, C& ranks, Pool& pool, View<const T, From> in, View<T, To> out) {
  const Shape& whole = in.global();
  const AlongAxis tensor(whole, split_position<To>(whole));
  const Slab<T> mine{out.data(), local_block<To>(whole, out.place())};
  if constexpr (ReadsPeers<C>) {
    const auto copy_parts = [&](std::span<const T* const> peers) noexcept {
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const Interval theirs = local_block<From>(whole, {rank, ranks.size()});
        copy_part<B, T>(backend, tensor, overlap(theirs, mine.held),
                        {peers[static_cast<std::size_t>(rank)], theirs}, mine);
      }
    };
    const Counts counts = held_counts<To>(pool, whole, ranks.size());
    ranks.read_peers(halo_call<To, T>(Operation::halo_exchange, whole, counts), in.span(),
                     copy_parts);
  } else {
    const Fetched<From, To, T> parts(backend, ranks, pool, in);
    for (int rank = 0; rank < ranks.size(); ++rank)
      copy_part<B, T>(backend, tensor, parts[rank].held, parts[rank], mine);
  }
}

/// out = the rank's block of the sum of the units that windows read.
template <class B, Communicator C, class T, HaloedPartialLayout From, ShardedLayout To>
void halo_sum([[maybe_unused]] B& backend, C& ranks, Pool& pool, View<const T, From> in,
              View<T, To> out) {
  const Shape& whole = in.global();
  const AlongAxis tensor(whole, split_position<To>(whole));
  const Slab<T> mine{out.data(), local_block<To>(whole, out.place())};
  if constexpr (ReadsPeers<C>) {
    const SlabSum<T> sum(pool, tensor, ranks.size());
    const auto sum_parts = [&](std::span<const T* const> peers) noexcept {
      const auto slab_of = [&](int rank) {
        return Slab<const T>{peers[static_cast<std::size_t>(rank)],
                             local_block<From>(whole, {rank, ranks.size()})};
      };
      sum(slab_of, mine);
    };
    const Counts counts = held_counts<From>(pool, whole, ranks.size());
    ranks.read_peers(halo_call<From, T>(Operation::halo_sum, whole, counts), in.span(), sum_parts);
  } else {
    const Fetched<From, To, T> parts(backend, ranks, pool, in);
    const auto slab_of = [&](int rank) { return parts[rank]; };
    if constexpr (DeviceBackend<B>) {
      add_slabs(backend, pool, tensor, ranks.size(), slab_of, mine);
    } else {
      SlabSum<T>(pool, tensor, ranks.size())(slab_of, mine);
    }
  }
}

}  // namespace shardwise::detail
