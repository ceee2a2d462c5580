#pragma once
// The options that all ranks must be given alike, by name and value.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// A hash of two numbers.
constexpr std::uint32_t mixed(std::uint32_t a, std::uint32_t b) {
  std::uint32_t hash = (a + 0x1656'67b1U) * 0x85eb'ca6bU;
  hash = ((hash ^ hash >> 15) + b) * 0x9e37'79b9U;
  hash = (hash ^ hash >> 13) * 0xc2b2'ae35U;
  return hash ^ hash >> 16;
}

/// A hash of the two halves.
constexpr std::uint32_t mixed_halves(std::uint64_t bits) {
  return mixed(static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32));
}

/// A hash of a number.
constexpr std::uint32_t hash_of(double number) {
  return mixed_halves(std::bit_cast<std::uint64_t>(number));
}

/// Options with their values: numbers, or words that live as long as the program. Needs no other
/// memory, so a step that compares them allocates nothing.
class GivenOptions {
 public:
  template <class V>
  constexpr void add(std::string_view name, const V& value) {
    static_assert(
        !std::same_as<V, std::string>,
        "a word is kept as a std::string_view: give one that lives as long as the program");
    if constexpr (std::same_as<V, bool>)
      add({name, value ? "true" : "false"});
    else if constexpr (std::convertible_to<V, std::string_view>)
      add({name, value});
    else if constexpr (std::unsigned_integral<V>)
      add({name, {}, 0, value, true});  // a seed has more bits than a double
    else
      add({name, {}, static_cast<double>(value)});
  }

  /// A hash of names and values; 0 if there are none.
  constexpr std::uint32_t hash() const { return hash_; }

  /// A line for each: "clip_norm 1\n".
  [[gnu::cold]] std::string lines() const {
    std::string text;
    for (std::size_t i = 0; i < count_; ++i) {
      append(text, {options_[i].name, " "});
      if (!options_[i].word.empty())
        append(text, {options_[i].word, "\n"});
      else if (options_[i].is_whole)
        append(text, {options_[i].whole, "\n"});
      else
        append(text, {options_[i].value, "\n"});
    }
    return text;
  }

 private:
  struct Option {
    std::string_view name;
    std::string_view word;
    double value = 0;
    std::uint64_t whole = 0;
    bool is_whole = false;
  };

  constexpr void add(const Option& option) {
    for (const std::string_view text : {option.name, option.word})
      for (const char c : text) hash_ = mixed(hash_, static_cast<unsigned char>(c));
    hash_ = mixed(hash_, option.is_whole ? mixed_halves(option.whole) : hash_of(option.value));
    if (count_ < options_.size()) options_[count_++] = option;  // the others are in the hash only
  }

  std::array<Option, 24> options_;
  std::size_t count_ = 0;
  std::uint32_t hash_ = 0;
};

/// Options as a text that ranks can exchange, cut off if it is longer, and their hash.
struct OptionsText {
  std::uint32_t hash = 0;
  std::array<char, 768> lines{};  ///< a line for each: "clip_norm 1\n"

  OptionsText() = default;
  OptionsText(std::uint32_t without_text) : hash(without_text) {}
  explicit OptionsText(const GivenOptions& options) : hash(options.hash()) {
    options.lines().copy(lines.data(), lines.size() - 1);
  }

  friend bool operator==(const OptionsText& a, const OptionsText& b) { return a.hash == b.hash; }
  /// "clip_norm 1, norm euclidean".
  friend std::string to_string(const OptionsText& options) {
    std::string text(options.lines.data());
    for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n'))
      text.replace(at, 1, at + 1 < text.size() ? ", " : "");
    return text;
  }
};

/// Adds what `of` tells by `visit_options(f)`, which calls f(name, value) for each of its options.
template <class T>
void add_options([[maybe_unused]] GivenOptions& to, [[maybe_unused]] const T& of) {
  if constexpr (requires { of.visit_options([](std::string_view, auto) {}); })
    of.visit_options([&](std::string_view name, const auto& value) { to.add(name, value); });
}

}  // namespace shardwise::detail
