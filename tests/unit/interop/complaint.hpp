#pragma once
// What a call throws, as a word for its type and its message.

#include <string>

#include "shardwise/core/error.hpp"

namespace testing {

/// "data_error: ...", or "nothing" if f throws nothing of ours.
template <class F>
std::string complaint(F&& f) {
  using namespace shardwise;
  try {
    f();
  } catch (const data_error& e) {
    return std::string("data_error: ") + e.what();
  } catch (const shape_error& e) {
    return std::string("shape_error: ") + e.what();
  } catch (const argument_error& e) {
    return std::string("argument_error: ") + e.what();
  }
  return "nothing";
}

/// Whether `text` begins with `type` and has `part` in it.
inline bool says(const std::string& text, const std::string& type, const std::string& part) {
  return text.starts_with(type + ": ") && text.find(part) != std::string::npos;
}

}  // namespace testing
