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
#include "shardwise/core/box_copy.hpp"
#include "shardwise/redistribute/collective_moves.hpp"

namespace shardwise::detail {

/// A tensor of which ranks hold units of one axis. In memory these are planes, each with the units
/// one after another, each unit with the same number of elements.
struct AlongAxis {
  std::size_t planes;
  std::size_t unit;

  AlongAxis(const Shape& whole, std::size_t axis)
      : planes(whole.elements(0, axis)), unit(whole.elements(axis + 1, whole.rank())) {}

  std::size_t elements(const Interval& units) const { return planes * units.size * unit; }
  /// What holds these units, as one row for each plane.
  Shape shape(const Interval& units) const {
    return {{Axis::batch, planes}, {Axis::feature, units.size, unit}};
  }
  /// The box that begins with unit `first`, in what holds `units`.
  BoxIn box(const Interval& units, std::size_t first) const {
    return BoxIn{shape(units), {}}.at(1, (first - units.offset) * unit);
  }
};

/// The units of a tensor that a rank holds, in memory at `data`.
template <class T>
struct HeldUnits {
  T* data;
  Interval units;
};

/// Copies the units that both hold.
template <class B, class T>
void copy_held(B& backend, const AlongAxis& tensor, const HeldUnits<const T>& from,
               const HeldUnits<T>& to) {
  const Interval both = overlap(from.units, to.units);
  copy_box(backend, tensor.shape(both), from.data, tensor.box(from.units, both.offset), to.data,
           tensor.box(to.units, both.offset));
}

/// Room for the terms of a sum, at most one for each rank.
template <class T>
struct Terms {
  PerRank<const T*> data;
  PerRank<std::size_t> steps;  // from each to the same units of the next plane

  Terms(Pool& pool, int ranks)
      : data(pool, ranks, [](int) { return nullptr; }),
        steps(pool, ranks, [](int) { return std::size_t{0}; }) {}
};

/// Sums `length` elements of each plane over `count` terms, or writes zeros if there are none.
/// There is at least one plane.
template <class T>
void sum_planes(std::size_t planes, std::size_t length, const Terms<T>& terms, std::size_t count,
                T* out, std::size_t step) {
  const T** const data = terms.data.begin();
  const std::size_t* const steps = terms.steps.begin();
  for (std::size_t plane = 0;;) {
    if (count == 0) {
      std::fill_n(out, length, T{});
    } else if (count == 1) {
      std::copy_n(data[0], length, out);
    } else {
      ordered_sum<T>({data, count}, 0, length, std::span<T* const>(&out, 1));
    }
    if (++plane == planes) return;
    for (std::size_t i = 0; i < count; ++i) data[i] += steps[i];
    out += step;
  }
}

/// out = the sum of what the ranks hold, in rank order, on the host.
template <class T>
void sum_held(const AlongAxis& tensor, const PerRank<HeldUnits<const T>>& ranks,
              const Terms<T>& terms, const HeldUnits<T>& out) noexcept {
  if (tensor.elements(out.units) == 0) return;
  for (std::size_t at = out.units.offset, end = at; at < out.units.end(); at = end) {
    end = out.units.end();  // up to here the same ranks hold summands
    std::size_t count = 0;
    for (const HeldUnits<const T>& held : ranks) {
      if (held.units.offset > at) end = std::min(end, held.units.offset);
      if (held.units.offset > at || held.units.end() <= at) continue;
      end = std::min(end, held.units.end());
      terms.data.begin()[count] = held.data + (at - held.units.offset) * tensor.unit;
      terms.steps.begin()[count++] = held.units.size * tensor.unit;
    }
    sum_planes(tensor.planes, (end - at) * tensor.unit, terms, count,
               out.data + (at - out.units.offset) * tensor.unit, out.units.size * tensor.unit);
  }
}

template <class T>
struct RoundEach {
  const accumulate_t<T>* from;
  T* to;
  constexpr void operator()(std::size_t i) const { to[i] = static_cast<T>(from[i]); }
};

/// The same on a device: one rank after the other.
template <DeviceBackend B, class T>
void add_held(B& backend, Pool& pool, const AlongAxis& tensor,
              const PerRank<HeldUnits<const T>>& ranks, const HeldUnits<T>& out) {
  using A = accumulate_t<T>;
  const std::size_t elements = tensor.elements(out.units);
  if (elements == 0) return;
  const Buffer memory = pool.take(elements * sizeof(A));
  A* const sums = static_cast<A*>(memory.data());
  fill(backend, sums, elements, A{0});
  for (const HeldUnits<const T>& held : ranks) {
    const Interval both = overlap(held.units, out.units);
    add_box(backend, tensor.shape(both), held.data, tensor.box(held.units, both.offset), sums,
            tensor.box(out.units, both.offset));
  }
  backend.for_each(elements, RoundEach<T>{sums, out.data});
}

/// For ranks that cannot read each other's memory: the units of layout To that this rank holds, in
/// parts, one for each rank that holds them in layout From.
template <class T>
struct Fetched {
  Buffer memory;
  PerRank<HeldUnits<const T>> parts;
};

/// Fetches them by one all-to-all.
template <SplitLayout From, SplitLayout To, class B, Communicator C, class T>
Fetched<T> fetch(B& backend, C& ranks, Pool& pool, const AlongAxis& tensor,
                 View<const T, From> in) {
  const Place me = in.place();
  const HeldUnits<const T> mine{in.data(), local_block<From>(in.global(), me)};
  const auto sent_to = [&](int rank) {
    return overlap(mine.units, local_block<To>(in.global(), {rank, me.size}));
  };
  const auto part_of = [&](int rank) {
    return overlap(local_block<From>(in.global(), {rank, me.size}),
                   local_block<To>(in.global(), me));
  };
  const auto sum = [](const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  };
  const Counts sent(pool, me.size, [&](int rank) { return tensor.elements(sent_to(rank)); });
  const Counts fetched(pool, me.size, [&](int rank) { return tensor.elements(part_of(rank)); });
  const Buffer packed = pool.take(sum(sent) * sizeof(T));
  const Buffer memory = pool.take(sum(fetched) * sizeof(T));
  T* to_send = static_cast<T*>(packed.data());
  for (int rank = 0; rank < me.size; ++rank) {
    copy_held<B, T>(backend, tensor, mine, {to_send, sent_to(rank)});
    to_send += sent.begin()[rank];
  }
  T* part = static_cast<T*>(memory.data());
  ranks.all_to_all(std::span<const T>(static_cast<const T*>(packed.data()), sum(sent)), sent,
                   std::span<T>(part, sum(fetched)), fetched);
  return {memory, {pool, me.size, [&](int rank) {
                     T* const data = part;
                     part += fetched.begin()[rank];
                     return HeldUnits<const T>{data, part_of(rank)};
                   }}};
}

/// Calls f with the memory of all ranks. They compare what each of them holds in layout L.
template <SplitLayout L, class T, ReadsPeers C, class F>
void read_held(Operation operation, C& ranks, Pool& pool, const Shape& whole,
               std::span<const T> mine, const F& f) {
  const Counts counts(pool, ranks.size(), [&](int rank) {
    return local_shape<L>(whole, {rank, ranks.size()}).elements();
  });
  ranks.read_peers(blocks_call<T>(operation, whole, split_position<L>(whole), counts), mine, f);
}

/// out = the units that the rank's windows read.
template <class B, Communicator C, class T, ShardedLayout From, HaloedLayout To>
void halo_exchange(B& backend, C& ranks, Pool& pool, View<const T, From> in, View<T, To> out) {
  const Shape& whole = in.global();
  const AlongAxis tensor(whole, split_position<To>(whole));
  const HeldUnits<T> mine{out.data(), local_block<To>(whole, out.place())};
  if constexpr (ReadsPeers<C>) {
    const auto copy_parts = [&](std::span<const T* const> peers) noexcept {
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const Interval theirs = local_block<From>(whole, {rank, ranks.size()});
        copy_held<B, T>(backend, tensor, {peers[static_cast<std::size_t>(rank)], theirs}, mine);
      }
    };
    read_held<To, T>(Operation::halo_exchange, ranks, pool, whole, in.span(), copy_parts);
  } else {
    const Fetched<T> fetched = fetch<From, To>(backend, ranks, pool, tensor, in);
    for (const HeldUnits<const T>& part : fetched.parts) copy_held(backend, tensor, part, mine);
  }
}

/// out = the rank's block of the sum of the units that windows read.
template <class B, Communicator C, class T, HaloedPartialLayout From, ShardedLayout To>
void halo_sum([[maybe_unused]] B& backend, C& ranks, Pool& pool, View<const T, From> in,
              View<T, To> out) {
  const Shape& whole = in.global();
  const AlongAxis tensor(whole, split_position<To>(whole));
  const HeldUnits<T> mine{out.data(), local_block<To>(whole, out.place())};
  const Terms<T> terms(pool, ranks.size());
  if constexpr (ReadsPeers<C>) {
    const PerRank<HeldUnits<const T>> parts(pool, ranks.size(), [&](int rank) {
      return HeldUnits<const T>{nullptr, local_block<From>(whole, {rank, ranks.size()})};
    });
    const auto sum_parts = [&](std::span<const T* const> peers) noexcept {
      for (int rank = 0; rank < ranks.size(); ++rank)
        parts.begin()[rank].data = peers[static_cast<std::size_t>(rank)];
      sum_held(tensor, parts, terms, mine);
    };
    read_held<From, T>(Operation::halo_sum, ranks, pool, whole, in.span(), sum_parts);
  } else {
    const Fetched<T> fetched = fetch<From, To>(backend, ranks, pool, tensor, in);
    if constexpr (DeviceBackend<B>) {
      add_held(backend, pool, tensor, fetched.parts, mine);
    } else {
      sum_held(tensor, fetched.parts, terms, mine);
    }
  }
}

}  // namespace shardwise::detail
