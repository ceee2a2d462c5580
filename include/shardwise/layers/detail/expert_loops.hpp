#pragma once
// The loops between the products of a mixture of experts, over the elements of a row or slot.

#include <cstddef>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/detail/times_slope.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/detail/routing.hpp"

namespace shardwise::detail {

/// to[slot, i] = from[row of the slot, i], and zeros in slots without a row.
template <class T>
struct RowsInSlots {
  const std::size_t* choices;
  std::size_t chosen;
  std::size_t columns;
  const T* from;
  T* to;

  constexpr auto operator()(std::size_t slot) const {
    const std::size_t choice = choices[slot];
    const T* const row = choice == nowhere ? nullptr : from + choice / chosen * columns;
    return
        [row, out = to + slot * columns](std::size_t i) { out[i] = row == nullptr ? T{} : row[i]; };
  }
};

/// y[r, i] = Σ over the choices of row r that have a slot: first[slot, i], plus second[slot, i] and
/// the old y[r, i] if there is a second.
template <class T>
struct SlotsInRows {
  const std::size_t* slots;
  std::size_t chosen;
  std::size_t columns;
  const T* first;
  const T* second;  // or null
  T* y;

  constexpr auto operator()(std::size_t r) const {
    using A = accumulate_t<T>;
    return [f = *this, mine = slots + r * chosen, out = y + r * columns](std::size_t i) {
      A sum = f.second == nullptr ? A(0) : static_cast<A>(out[i]);
      for (std::size_t c = 0; c < f.chosen; ++c) {
        if (mine[c] == nowhere) continue;
        const std::size_t at = mine[c] * f.columns + i;
        sum += static_cast<A>(f.first[at]);
        if (f.second != nullptr) sum += static_cast<A>(f.second[at]);
      }
      out[i] = static_cast<T>(sum);
    };
  }
};

/// What each slot's experts make of its row: gate and up, [slot, hidden], and the weight of its
/// choice, which is 0 for a slot without a row.
template <class T>
struct ExpertHidden {
  using A = accumulate_t<T>;

  const std::size_t* choices;
  const A* weights;
  std::size_t hidden;
  T* gate;
  T* up;

  constexpr A weight(std::size_t slot) const {
    return choices[slot] == nowhere ? A(0) : weights[choices[slot]];
  }
};

/// out = w silu(gate) up.
template <class T>
struct WeighedHidden {
  using A = accumulate_t<T>;

  ExpertHidden<T> of;
  T* out;

  constexpr auto operator()(std::size_t slot) const {
    const std::size_t begin = slot * of.hidden;
    return [w = of.weight(slot), g = of.gate + begin, u = of.up + begin,
            to = out + begin](std::size_t i) {
      const A value = activations::Silu::value(static_cast<A>(g[i])) * static_cast<A>(u[i]);
      to[i] = static_cast<T>(w * value);
    };
  }
};

/// The gradient of a slot's weight: Σ d silu(gate) up, for d the gradient of what the weight
/// multiplies.
template <class T>
accumulate_t<T> weight_slope(const ExpertHidden<T>& of, const T* d, std::size_t slot) {
  using A = accumulate_t<T>;
  const std::size_t begin = slot * of.hidden;
  return lane_reduce(
      of.hidden, A(0),
      [=](std::size_t i) {
        return static_cast<A>(d[begin + i]) *
               activations::Silu::value(static_cast<A>(of.gate[begin + i])) *
               static_cast<A>(of.up[begin + i]);
      },
      Plus{});
}

/// gate and up become their gradients, and d becomes w silu(gate) up; d is as above.
template <class T>
struct HiddenBack {
  using A = accumulate_t<T>;

  ExpertHidden<T> of;
  T* d;

  constexpr auto operator()(std::size_t slot) const {
    const std::size_t begin = slot * of.hidden;
    return [w = of.weight(slot), g = of.gate + begin, u = of.up + begin,
            out = d + begin](std::size_t i) {
      const A x = static_cast<A>(g[i]), factor = static_cast<A>(u[i]);
      const A value = activations::Silu::value(x), slope = w * static_cast<A>(out[i]);
      g[i] = static_cast<T>(slope * factor * slope_at<activations::Silu>(x));
      u[i] = static_cast<T>(slope * value);
      out[i] = static_cast<T>(w * (value * factor));
    };
  }
};

/// Calls f(slot)(i) for each of `hidden` elements of `slots` slots, from number `first` on.
template <class B, class F>
void for_each_slot(B& backend, std::size_t hidden, std::size_t first, std::size_t slots,
                   const F& f) {
  for (std::size_t slot = first; slot < first + slots; ++slot) backend.for_each(hidden, f(slot));
}

}  // namespace shardwise::detail
