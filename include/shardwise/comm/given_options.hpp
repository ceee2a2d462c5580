#pragma once
// The options that all ranks must be given alike, by name and value.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/core/compiled.hpp"
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

/// Options with their values: numbers, lists of numbers, or words that live as long as the program.
/// Needs no other memory, so a step that compares them allocates nothing.
class GivenOptions {
 public:
  template <class V>
  void add(std::string_view name, const V& value) {
    static_assert(
        !std::same_as<V, std::string>,
        "a word is kept as a std::string_view: give one that lives as long as the program");
    if constexpr (std::same_as<V, bool>)
      add_word(name, value ? "true" : "false");
    else if constexpr (std::convertible_to<V, std::string_view>)
      add_word(name, value);
    else if constexpr (std::unsigned_integral<V>)
      add_whole(name, value);  // a seed has more bits than a double
    else
      add_number(name, static_cast<double>(value));
  }

  /// A list of numbers, compared by a hash: kept to be shown if it is short, and else its size.
  void add(std::string_view name, const double* list, std::size_t size);

  static constexpr std::size_t no_loss = static_cast<std::size_t>(-1);
  /// What is added from now on is of this one of several losses, or of none of them.
  constexpr void set_loss(std::size_t number) { loss_ = number; }

  /// Whether there are more than `lines` tells.
  constexpr bool are_more() const { return are_more_; }

  /// A hash of names and values; 0 if there are none.
  constexpr std::uint32_t hash() const { return hash_; }

  /// A line for each: "clip_norm 1\n". Behind a tab is what to compare in place of what is shown.
  [[gnu::cold]] std::string lines() const;

 private:
  static constexpr std::size_t most_shown = 10;

  enum class Kind : std::uint8_t { number, whole, list, long_list };

  struct Option {
    std::string_view name;
    std::string_view word;    // the value, unless it is empty
    double value = 0;         // of a list a hash
    std::uint64_t whole = 0;  // of a list its size
    Kind kind = Kind::number;
    std::uint8_t first = 0;  // of the list in numbers_
    std::size_t loss = no_loss;
  };

  [[gnu::cold]] void append_value(std::string& text, const Option& option) const;

  void add_word(std::string_view name, std::string_view word);
  void add_number(std::string_view name, double number);
  void add_whole(std::string_view name, std::uint64_t number);
  void add(Option option);

  std::array<Option, 32> options_;
  std::array<double, 3 * most_shown> numbers_{};  // of lists, one behind the other
  std::size_t count_ = 0, loss_ = no_loss;
  std::uint32_t hash_ = 0;
  std::uint8_t kept_ = 0;  // of numbers_
  bool are_more_ = false;
};

/// Options as a text that ranks can exchange, cut off if it is longer.
struct OptionsText {
  std::array<char, 768> lines{};  ///< of GivenOptions
  bool is_whole = true;           ///< whether these are all

  OptionsText() = default;
  OptionsText(std::string_view all, bool are_more);
  explicit OptionsText(const GivenOptions& options);
};

/// Adds what `of` tells by `visit_options(f)`, which calls f(name, value) for each of its options.
template <class T>
void add_options([[maybe_unused]] GivenOptions& to, [[maybe_unused]] const T& of) {
  if constexpr (requires { of.visit_options([](std::string_view, auto) {}); })
    of.visit_options([&](std::string_view name, const auto& value) { to.add(name, value); });
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void GivenOptions::add(std::string_view name, const double* list,
                                        std::size_t size) {
  std::uint32_t hash = 0;
  for (std::size_t i = 0; i < size; ++i) hash = mixed(hash, hash_of(list[i]));
  const bool is_kept = size <= most_shown && size <= numbers_.size() - kept_;
  add({name, {}, static_cast<double>(hash), size, is_kept ? Kind::list : Kind::long_list, kept_});
  if (!is_kept) return;
  for (std::size_t i = 0; i < size; ++i) numbers_[kept_++] = list[i];
}

[[gnu::noinline]] SHARDWISE_INLINE void GivenOptions::add_word(std::string_view name,
                                                               std::string_view word) {
  add({name, word});
}

[[gnu::noinline]] SHARDWISE_INLINE void GivenOptions::add_number(std::string_view name,
                                                                 double number) {
  add({name, {}, number});
}

[[gnu::noinline]] SHARDWISE_INLINE void GivenOptions::add_whole(std::string_view name,
                                                                std::uint64_t number) {
  add({name, {}, 0, number, Kind::whole});
}

[[gnu::noinline]] SHARDWISE_INLINE void GivenOptions::add(Option option) {
  option.loss = loss_;
  for (const std::string_view text : {option.name, option.word})
    for (const char c : text) hash_ = mixed(hash_, static_cast<unsigned char>(c));
  hash_ =
      mixed(hash_, option.kind == Kind::whole ? mixed_halves(option.whole) : hash_of(option.value));
  are_more_ = count_ == options_.size();  // they are in the hash
  if (!are_more_) options_[count_++] = option;
}

SHARDWISE_INLINE std::string GivenOptions::lines() const {
  std::string text;
  for (std::size_t i = 0; i < count_; ++i) {
    if (options_[i].loss != no_loss) append(text, {"losses[", options_[i].loss, "]."});
    append(text, {options_[i].name, " "});
    append_value(text, options_[i]);
    text += '\n';
  }
  return text;
}

SHARDWISE_INLINE void GivenOptions::append_value(std::string& text, const Option& option) const {
  if (!option.word.empty()) {
    text += option.word;
  } else if (option.kind == Kind::number) {
    append(text, {option.value});
  } else if (option.kind == Kind::list) {
    text += '{';
    for (std::size_t k = 0; k < option.whole; ++k)
      append(text, {k == 0 ? "" : ", ", numbers_[option.first + k]});
    append(text, {"}\t", option.value});
  } else {
    append(text, {option.whole});
    if (option.kind == Kind::long_list) append(text, {" numbers\t", option.value});
  }
}

SHARDWISE_INLINE OptionsText::OptionsText(std::string_view all, bool are_more)
    : is_whole(all.size() < lines.size() && !are_more) {
  all.copy(lines.data(), lines.size() - 1);
}

SHARDWISE_INLINE OptionsText::OptionsText(const GivenOptions& options)
    : OptionsText(options.lines(), options.are_more()) {}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
