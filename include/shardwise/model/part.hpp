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
  using layer = L;                                        ///< the layer, composition or merge
  static constexpr std::size_t arity = sizeof...(Slots);  ///< number of values that it reads
  static constexpr std::array<std::size_t, arity> slots{Slots...};  ///< their slots
  static constexpr bool gives_output = false;  ///< whether its value is an output of the whole
  static_assert(arity > 0, "A part reads at least one slot: At<L, 0> reads the input.");
};

/// A part like At, whose value is one of several outputs of a `Graph`, and is read by no part.
template <class L, std::size_t... Slots>
struct Output : At<L, Slots...> {
  static constexpr bool gives_output = true;  ///< see At
};

namespace detail {

/// The readers of each slot of a list of N parts. The first slots are the inputs; part Index writes
/// slot `Inputs + Index`.
template <std::size_t N, std::size_t Inputs>
struct Wires {
  static constexpr std::size_t slots = Inputs + N;  ///< of the list

  /// One operand of a part.
  struct Read {
    std::size_t part = N;
    std::size_t operand = 0;
    friend constexpr bool operator==(const Read&, const Read&) = default;
  };

  std::array<std::size_t, slots> count{};  ///< how often each slot is read
  ///@{
  /// The first and the last read of each slot.
  std::array<Read, slots> first;
  std::array<Read, slots> last;
  ///@}
  std::array<bool, N> gives_output{};  ///< for each part; always true for the last one

  /// Whether only the next part reads the value in a slot.
  constexpr bool goes_straight(std::size_t slot) const {
    return count[slot] == 1 && first[slot].part + Inputs == slot + 1;
  }

  /// Whether the value in a slot is read once, and not as the first operand of a part.
  constexpr bool is_later_operand(std::size_t slot) const {
    return count[slot] == 1 && first[slot].operand > 0;
  }

  /// Whether this part, and no other, reads the value of the part before it.
  constexpr bool follows_alone(std::size_t part) const {
    return part > 0 && part < N && goes_straight(Inputs + part - 1);
  }

  /// The first input that no part reads; the number of inputs if all are read.
  constexpr std::size_t unread_input() const {
    std::size_t input = 0;
    while (input < Inputs && count[input] > 0) ++input;
    return input;
  }

  /// The first part whose value is read or not, and is an output or not, as the arguments say; N if
  /// there is none.
  constexpr std::size_t find_part(bool is_read, bool is_output) const {
    std::size_t part = 0;
    while (part < N && ((count[Inputs + part] > 0) != is_read || gives_output[part] != is_output))
      ++part;
    return part;
  }

  /// The number of outputs.
  constexpr std::size_t outputs() const {
    std::size_t number = 0;
    for (const bool one : gives_output)
      if (one) ++number;
    return number;
  }

  /// The slot of this output.
  constexpr std::size_t output_slot(std::size_t output) const {
    std::size_t part = 0;
    for (;; ++part) {
      if (gives_output[part] && output-- == 0) return Inputs + part;
    }
  }

  /// The number of the output in this slot, which must be an output.
  constexpr std::size_t output_in(std::size_t slot) const {
    std::size_t output = 0;
    for (std::size_t part = 0; Inputs + part < slot; ++part)
      if (gives_output[part]) ++output;
    return output;
  }
};

template <std::size_t Inputs, class... Parts>
consteval auto wires_of() {
  constexpr std::size_t n = sizeof...(Parts);
  Wires<n, Inputs> wires;
  std::size_t part = 0;
  const auto add = [&](const auto& slots, bool gives_output) {
    for (std::size_t operand = 0; operand < slots.size(); ++operand) {
      const std::size_t slot = slots[operand];
      if (slot >= Inputs + part) continue;  // an error, reported elsewhere
      if (wires.count[slot]++ == 0) wires.first[slot] = {part, operand};
      wires.last[slot] = {part, operand};
    }
    wires.gives_output[part] = gives_output || part + 1 == n;
    ++part;
  };
  (add(Parts::slots, Parts::gives_output), ...);
  return wires;
}

/// A part in a flat pack, found by its number.
template <std::size_t Index, class Part>
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

/// The layer of part Index, as `list.layer<Index>()`. Symbols of members of Graph have the types of
/// all parts, which compilers take long to write; this one has the name of L.
template <std::size_t Index, class L>
constexpr const auto& layer_of(const L& list) noexcept {
  return static_cast<const Numbered<Index, typename L::template part_type<Index>>&>(list).layer;
}

template <std::size_t Index, class Part>
std::type_identity<Part> type_of_numbered(const Numbered<Index, Part>&);

/// The error for a list with a slot that is read before it is written, or is never read.
/// `UnreadInput` is the first input that no part reads, `Unread` the first part that gives no
/// output and whose value no part reads, `ReadOutput` the first part that gives an output and whose
/// value another part reads.
template <std::size_t Inputs, std::size_t UnreadInput, std::size_t Unread, std::size_t ReadOutput,
          class... Parts>
consteval bool slots_must_be_used() {
  constexpr bool come_before = [] {
    std::size_t given = Inputs;
    bool good = true;
    const auto look = [&](const auto& slots) {
      for (const std::size_t slot : slots) good = good && slot < given;
      ++given;
    };
    (look(Parts::slots), ...);
    return good;
  }();
  static_assert(come_before,
                "A part reads a slot that no part before it gives. The first slots, Inputs of "
                "them, are the inputs. Part Index, counted from 0, gives slot Inputs + Index.");
  static_assert(!come_before || UnreadInput == Inputs,
                "No part reads input UnreadInput of Inputs. Name its slot in a part, At<L, "
                "UnreadInput>, or give the Graph fewer inputs.");
  static_assert(
      !come_before || Unread == sizeof...(Parts),
      "Nobody reads what part Unread gives, and it is no output. Part Index, counted from 0, "
      "gives slot Inputs + Index: name that slot in a part behind it, or write Output in "
      "place of At.");
  static_assert(!come_before || ReadOutput == sizeof...(Parts),
                "Part ReadOutput gives an output of the model, and another part reads it. Write At "
                "in place of Output, and put Output<Identity, slot> behind it.");
  return true;
}

}  // namespace detail

}  // namespace shardwise
