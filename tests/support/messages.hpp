#pragma once
// What the tests of refusals share.

#include <string>

#include "shardwise/core/error.hpp"

namespace testing {

/// The message of the error that `call` throws.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const shardwise::error& e) {
    return e.what();
  }
  return "nothing thrown";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace testing
