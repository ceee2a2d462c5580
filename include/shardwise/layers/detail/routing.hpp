#pragma once
// The experts that each row takes, and the slots in which a rank's experts compute these rows. In
// memory of the host.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "shardwise/core/memory.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail {

/// The slot of a choice that another rank computes, and the choice of a slot without a row.
inline constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

/// Elements in memory of a pool.
template <class T>
struct PooledArray {
  Buffer memory;

  T* data() const { return static_cast<T*>(memory.data()); }
  T& operator[](std::size_t i) const { return data()[i]; }
};

template <class T, class Frame>
PooledArray<T> take_array(Frame& frame, std::size_t count) {
  return {frame.take(count * sizeof(T))};
}

/// Choice r * chosen + c is number c of row r. The slots of an expert are neighbours; their number
/// is rounded up, and those in excess have no row, so that a backend that keeps a plan for each
/// number of rows needs few of them.
template <class A>
struct Routing {
  std::size_t rows = 0;
  std::size_t chosen = 0;              // experts of a row
  Interval held{};                     // experts of the rank
  PooledArray<std::size_t> experts{};  // of each choice
  PooledArray<A> weights{};            // of each choice; those of a row add up to 1
  PooledArray<std::size_t> slots{};    // of each choice
  PooledArray<std::size_t> choices{};  // of each slot
  PooledArray<std::size_t> begins{};   // first slots of the rank's experts, and the end of the last
  PooledArray<std::size_t> counts{};   // rows of the rank's experts

  std::size_t slot_count() const { return begins[held.size]; }

  /// Calls f(number among the rank's experts, its first slot, its slots) for each of them.
  template <class F>
  void for_each_expert(F&& f) const {
    for (std::size_t e = 0; e < held.size; ++e) f(e, begins[e], begins[e + 1] - begins[e]);
  }
};

/// `rows` rounded up by less than a quarter, to one of four numbers for each doubling.
constexpr std::size_t slots_for(std::size_t rows) {
  const std::size_t step = std::max<std::size_t>(std::bit_floor(rows) / 4, 1);
  return (rows + step - 1) / step * step;
}

/// The most slots that a rank needs with `held` experts.
constexpr std::size_t most_slots(std::size_t rows, std::size_t chosen, std::size_t held) {
  const std::size_t choices = rows * std::min(chosen, held);
  return choices + choices / 4;
}

/// The experts with the largest logits, the largest first; of equal ones that with the lowest
/// number, so that all ranks agree.
template <class A>
void choose_largest(const A* logits, std::size_t count, std::size_t chosen, std::size_t* experts) {
  for (std::size_t c = 0; c < chosen; ++c) {
    std::size_t best = nowhere;
    for (std::size_t e = 0; e < count; ++e) {
      if (std::find(experts, experts + c, e) != experts + c) continue;
      if (best == nowhere || logits[e] > logits[best]) best = e;
    }
    experts[c] = best;
  }
}

/// shares[i] = exp(logit(i) - largest) / Σ exp(logit(i) - largest) for `count` logits.
template <class A, class Logit>
void put_softmax(std::size_t count, A largest, Logit logit, A* shares) {
  A sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += shares[i] = std::exp(logit(i) - largest);
  for (std::size_t i = 0; i < count; ++i) shares[i] /= sum;
}

/// Gives each choice of an expert of the rank a slot, in the order of rows.
template <class A>
void assign_slots(Routing<A>& routing) {
  const Interval held = routing.held;
  const std::size_t count = routing.rows * routing.chosen;
  const auto for_each_choice_here = [&](auto f) {
    std::fill_n(routing.counts.data(), held.size, std::size_t{0});
    for (std::size_t choice = 0; choice < count; ++choice) {
      const std::size_t e = routing.experts[choice] - held.offset;
      if (e < held.size) f(choice, e, routing.counts[e]++);
    }
  };
  for_each_choice_here([](std::size_t, std::size_t, std::size_t) {});
  routing.begins[0] = 0;
  for (std::size_t e = 0; e < held.size; ++e)
    routing.begins[e + 1] = routing.begins[e] + slots_for(routing.counts[e]);
  std::fill_n(routing.choices.data(), routing.slot_count(), nowhere);
  std::fill_n(routing.slots.data(), count, nowhere);
  for_each_choice_here([&](std::size_t choice, std::size_t e, std::size_t before) {
    routing.slots[choice] = routing.begins[e] + before;
    routing.choices[routing.begins[e] + before] = choice;
  });
}

/// The experts that rows choose by their logits [rows, experts], and the slots in which the rank's
/// experts `held` compute them.
template <class A, class Frame, class T>
Routing<A> routed(Frame& frame, const T* logits, std::size_t rows, std::size_t experts,
                  std::size_t chosen, Interval held) {
  Routing<A> routing{rows, chosen, held};
  routing.experts = take_array<std::size_t>(frame, rows * chosen);
  routing.weights = take_array<A>(frame, rows * chosen);
  routing.slots = take_array<std::size_t>(frame, rows * chosen);
  routing.choices = take_array<std::size_t>(frame, most_slots(rows, chosen, held.size));
  routing.begins = take_array<std::size_t>(frame, held.size + 1);
  routing.counts = take_array<std::size_t>(frame, held.size);
  const auto row = take_array<A>(frame, experts);
  for (std::size_t r = 0; r < rows; ++r) {
    std::size_t* const of_row = routing.experts.data() + r * chosen;
    for (std::size_t e = 0; e < experts; ++e) row[e] = static_cast<A>(logits[r * experts + e]);
    choose_largest(row.data(), experts, chosen, of_row);
    put_softmax(
        chosen, row[of_row[0]], [&](std::size_t c) { return row[of_row[c]]; },
        routing.weights.data() + r * chosen);
  }
  assign_slots(routing);
  return routing;
}

}  // namespace shardwise::detail
