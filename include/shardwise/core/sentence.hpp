#pragma once
// Sentences for messages, made of words and values in one call.

#include <charconv>
#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "shardwise/core/compiled.hpp"

namespace shardwise::detail {

/// Text. std::convertible_to would make six classes for each length of a literal.
template <class T>
concept Words = requires(const T& value, void (&take)(std::string_view)) {
  take(value);
};

/// A whole number; a single character is none, and neither is an enumerator. std::is_integral would
/// make three classes for each length of a literal.
template <class T>
concept Whole = !std::same_as<T, char> && requires(const T& value) {
  value % 1;
  requires !std::is_enum_v<T>;
};

/// A type that a sentence can contain: text, numbers, and types with their own `to_string`.
template <class T>
concept Sayable = Words<T> || Whole<T> || std::is_floating_point_v<T> || requires(const T& value) {
  { to_string(value) } -> std::same_as<std::string>;
};

/// A piece of a sentence. It refers to its value, and is valid during the call that it is made for.
class Piece {
 public:
  Piece(const char* words) noexcept : what_{.object = words} {}
  template <Whole T>
  Piece(T number) noexcept {
    if constexpr (static_cast<T>(-1) < T{}) {
      what_.number = number;
      add_ = add_number;
    } else {
      what_.natural = number;
      add_ = add_natural;
    }
  }
  template <Sayable T>
  requires(!Whole<T>) Piece(const T& value)
  noexcept : what_{.object = &value}, add_(add_value<T>) {}

  void add_to(std::string& text) const;

 private:
  union What {
    const void* object;
    long long number;
    unsigned long long natural;
  };

  [[gnu::cold]] static void add_number(std::string& text, What what);
  [[gnu::cold]] static void add_natural(std::string& text, What what);

  template <class T>
  [[gnu::cold]] static void add_value(std::string& text, What what) {
    const T& value = *static_cast<const T*>(what.object);
    if constexpr (Words<T>) {
      text += std::string_view(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      const T size = value < 0 ? -value : value;
      const bool is_short = size == 0 || (size >= T(1e-4) && size < T(1e15));  // without exponent
      const auto form = is_short ? std::chars_format::fixed : std::chars_format::scientific;
      char digits[64];  // the fewest that are read as the same number
      text.append(digits, std::to_chars(digits, digits + sizeof digits, value, form).ptr);
    } else {
      text += to_string(value);
    }
  }

  What what_;
  void (*add_)(std::string&, What) = nullptr;  // null for words, of which most pieces are
};

/// `append(text, {" of ", size})` adds " of 4" to the text.
[[gnu::cold]] void append(std::string& text, std::initializer_list<Piece> pieces);

/// `sentence({"rank ", 2, " of ", size})` is "rank 2 of 4". Never inlined: with string
/// concatenation at every place that can throw, errors would cost more compile time than the work
/// itself.
[[gnu::cold]] std::string sentence(std::initializer_list<Piece> pieces);

/// The same; if there is no memory for it, `instead`, which has at most 15 characters.
[[gnu::cold]] std::string sentence_or(std::initializer_list<Piece> pieces,
                                      const char* instead) noexcept;

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void Piece::add_to(std::string& text) const {
  if (add_ == nullptr) {
    text += static_cast<const char*>(what_.object);
  } else {
    add_(text, what_);
  }
}

SHARDWISE_INLINE void Piece::add_number(std::string& text, What what) {
  text += std::to_string(what.number);
}

SHARDWISE_INLINE void Piece::add_natural(std::string& text, What what) {
  text += std::to_string(what.natural);
}

[[gnu::noinline]] SHARDWISE_INLINE void append(std::string& text,
                                               std::initializer_list<Piece> pieces) {
  for (const Piece& piece : pieces) piece.add_to(text);
}

[[gnu::noinline]] SHARDWISE_INLINE std::string sentence(std::initializer_list<Piece> pieces) {
  std::string text;
  append(text, pieces);
  return text;
}

[[gnu::noinline]] SHARDWISE_INLINE std::string sentence_or(std::initializer_list<Piece> pieces,
                                                           const char* instead) noexcept try {
  return sentence(pieces);
} catch (...) {
  return instead;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
