#pragma once
// Names of layers and models for messages.

#include <string>
#include <string_view>

#include "shardwise/core/compiled.hpp"

namespace shardwise {

namespace detail {

/// NAME in "... [with L = NAME; ...]" or "[L = NAME]".
constexpr std::string_view name_within(std::string_view text) {
  const std::size_t begin = text.find("L = ") + 4;
  const std::size_t semicolon = text.find(';', begin);
  const std::size_t end = semicolon == std::string_view::npos ? text.rfind(']') : semicolon;
  return text.substr(begin, end - begin);
}

template <class L>
constexpr std::string_view raw_type_name() {
  return name_within(__PRETTY_FUNCTION__);
}

/// Where the qualified name begins that ends before `end`: behind a comma, a space or a '<' that
/// are not within brackets of it.
constexpr std::size_t begin_of_name(std::string_view text, std::size_t end) {
  int depth = 0;
  for (; end > 0; --end) {
    const char c = text[end - 1];
    if (c == ')' || c == '>') {
      ++depth;
    } else if (depth > 0) {
      if (c == '(' || c == '<') --depth;
    } else if (c == '<' || c == ',' || c == ' ') {
      break;
    }
  }
  return end;
}

/// The name without the namespaces of this library and its parts and without functions around it,
/// and with the word `dynamic` for sizes that are given at run time.
[[gnu::cold]] std::string readable_name(std::string_view raw);

}  // namespace detail

/// The name of a layer or model in messages: that of its type, unless a specialisation changes it.
template <class L>
struct NameOf {
  /// "Relu", without the namespaces of the library.
  static std::string name() { return detail::readable_name(detail::raw_type_name<L>()); }
};

namespace detail {

/// `NameOf<L>::name()`.
template <class L>
std::string name_of() {
  return NameOf<L>::name();
}

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

/// Removes the functions that declare a type, which only g++ tells: "Net" for "train(int)::Net".
inline void drop_functions(std::string& text) {
  for (const std::string_view last : {")::", ") const::", ")>::"}) {  // the third is a lambda's
    for (std::size_t at = text.rfind(last); at != std::string::npos; at = text.rfind(last)) {
      const std::size_t begin = begin_of_name(text, at + last.find_last_of(")>") + 1);
      text.erase(begin, at + last.size() - begin);
    }
  }
}

SHARDWISE_INLINE std::string readable_name(std::string_view raw) {
  struct Replacement {
    std::string_view what, by;
  };
  constexpr Replacement replacements[] = {{"shardwise::activations::", ""},
                                          {"shardwise::", ""},
                                          {"(anonymous namespace)::", ""},
                                          {"{anonymous}::", ""},
                                          {"18446744073709551615", "dynamic"}};
  std::string text(raw);
  for (const auto& [what, by] : replacements)
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what))
      text.replace(at, what.size(), by);
  drop_functions(text);
  return text;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
