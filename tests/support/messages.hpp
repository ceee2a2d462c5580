#pragma once
// What the tests of refusals share.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "shardwise/core/error.hpp"

namespace testing {

/// The message of the Error that `call` throws; "" if it throws nothing. Any other exception
/// passes.
template <class Error = shardwise::error, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// All of these parts, of which none is empty, stand in the text.
inline void check_mentions(const std::string& text, const std::vector<std::string>& parts) {
  CHECK(!parts.empty());
  for (const std::string& part : parts) {
    CAPTURE(text);
    CAPTURE(part);
    CHECK(part != "");
    CHECK(contains(text, part));
  }
}

}  // namespace testing
