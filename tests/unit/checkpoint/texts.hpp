#pragma once
// Safetensors files as texts.

#include <cstdint>
#include <string>

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

}  // namespace testing
