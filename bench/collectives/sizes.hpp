#pragma once
// On how much data collectives are measured.

#include <cstddef>
#include <string>
#include <vector>

namespace bench {

/// From 64 B to 64 MiB.
inline std::vector<std::size_t> sizes_in_bytes() {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 64; bytes <= std::size_t{1} << 26; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

/// The one of them for a look in passing: neither latency nor bandwidth is all of its time.
inline constexpr std::size_t quick_size = std::size_t{1} << 16;

/// "64 B", "16 KiB".
inline std::string size_name(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1024) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

}  // namespace bench
