#pragma once
// The parts of a composition, and the slots from which they read.

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "shardwise/model/layer_checks.hpp"

namespace shardwise {

/// A part of a composition: a layer, composition or merge that reads these slots, see
/// `Composition`.
template <class L, std::size_t... Slots>
struct At {
  using layer = L;                                                  ///< or composition, or merge
  static constexpr std::size_t arity = sizeof...(Slots);            ///< values that it reads
  static constexpr std::array<std::size_t, arity> slots{Slots...};  ///< where they lie
  static_assert(arity > 0, "A part reads at least one slot: At<L, 0> reads the input.");
};

namespace detail {

/// Which parts read each slot of a list of N parts.
template <std::size_t N>
struct Wires {
  /// One operand of a part.
  struct Read {
    std::size_t part = N;
    std::size_t operand = 0;
    friend constexpr bool operator==(const Read&, const Read&) = default;
  };

  std::array<std::size_t, N + 1> count{};  ///< how often each slot is read
  ///@{
  /// The first and the last that read each slot.
  std::array<Read, N + 1> first{};
  std::array<Read, N + 1> last{};
  ///@}

  /// Whether the value in a slot only goes to the part behind the one that gives it.
  constexpr bool goes_straight(std::size_t slot) const {
    return count[slot] == 1 && first[slot].part == slot;
  }

  /// The first part whose value nobody reads; N - 1, which gives the output, if there is none.
  constexpr std::size_t unread_part() const {
    std::size_t part = 0;
    while (part + 1 < N && count[part + 1] > 0) ++part;
    return part;
  }
};

template <class... Parts>
consteval auto wires_of() {
  Wires<sizeof...(Parts)> wires;
  std::size_t part = 0;
  const auto add = [&](const auto& slots) {
    for (std::size_t operand = 0; operand < slots.size(); ++operand) {
      const std::size_t slot = slots[operand];
      if (slot > part) continue;  // an error, said elsewhere
      if (wires.count[slot]++ == 0) wires.first[slot] = {part, operand};
      wires.last[slot] = {part, operand};
    }
    ++part;
  };
  (add(Parts::slots), ...);
  return wires;
}

/// A part in a flat pack, found by its number.
template <std::size_t I, class Part>
struct Numbered {
  constexpr Numbered() requires HasAllSizes<typename Part::layer>
  = default;
  constexpr explicit Numbered(const typename Part::layer& given) : layer(given) {}

  [[no_unique_address]] typename Part::layer layer;
};

template <class Indices, class... Parts>
struct NumberedParts;
template <std::size_t... Is, class... Parts>
struct NumberedParts<std::index_sequence<Is...>, Parts...> : Numbered<Is, Parts>... {
  static_assert(sizeof...(Parts) > 0,
                "a Sequential needs at least one layer: Sequential<Relu>. What takes no part in a "
                "model is no layer of it.");
  static_assert((must_be_part<Is, typename Parts::layer, Parts::arity>() && ...));

  constexpr NumberedParts() = default;
  constexpr explicit NumberedParts(const typename Parts::layer&... layers)
      : Numbered<Is, Parts>(layers)... {}
};

template <std::size_t I, class Part>
constexpr const typename Part::layer& numbered(const Numbered<I, Part>& entry) {
  return entry.layer;
}

template <std::size_t I, class Part>
std::type_identity<Part> type_of_numbered(const Numbered<I, Part>&);

/// The error for a list whose slots do not come before they are read, or are not read at all.
/// `Unread` is the number of the first part whose value nobody reads.
template <std::size_t Unread, class... Parts>
consteval bool slots_must_be_used() {
  constexpr bool come_before = [] {
    std::size_t part = 0;
    bool good = true;
    const auto look = [&](const auto& slots) {
      for (const std::size_t slot : slots) good = good && slot <= part;
      ++part;
    };
    (look(Parts::slots), ...);
    return good;
  }();
  static_assert(come_before,
                "A part reads a slot that no part before it gives. Part I, counted from 0, gives "
                "slot I + 1 and reads slots 0 to I; slot 0 is the input.");
  static_assert(!come_before || Unread + 1 == sizeof...(Parts),
                "Nobody reads what part Unread gives, and it is not the last part. Part I, counted "
                "from 0, gives slot I + 1: name that slot in a part behind it.");
  return true;
}

}  // namespace detail

}  // namespace shardwise
