#pragma once
// Safetensors files as texts, and what is said about them.

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/core/error.hpp"

namespace testing {

/// `json` and `data` as a file, with the right length in front.
inline std::string file_of(const std::string& json, const std::string& data) {
  std::string bytes;
  for (std::uint64_t length = json.size(), i = 0; i < 8; ++i, length >>= 8) {
    bytes += static_cast<char>(length & 0xffU);
  }
  return bytes + json + data;
}

/// `"name":{"dtype":...,"shape":[...],"data_offsets":[...]}`.
inline std::string entry(const std::string& name, const std::string& dtype,
                         const std::string& shape, const std::string& offsets) {
  return '"' + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}

/// What `call` says in a data_error; "" if it says nothing. Any other exception passes.
template <class Call>
std::string complaint(Call&& call) {
  try {
    call();
  } catch (const shardwise::data_error& e) {
    return e.what();
  }
  return "";
}

inline void check_mentions(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    CAPTURE(text);
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

}  // namespace testing
