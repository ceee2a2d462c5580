#pragma once
// Reads memory as fast as a core can.

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace bench {

/// Reads numbers from four places at once and asking for lines ahead, which no processor can be
/// slower with than with one run of memory.
template <class T>
void read_all(std::span<T> numbers) {
  constexpr std::size_t places = 4, line = 8, ahead = 16 * line * sizeof(std::uint64_t);
  const auto* const bytes = reinterpret_cast<const char*>(numbers.data());
  const std::size_t part = numbers.size_bytes() / (places * line * sizeof(std::uint64_t));
  std::array<std::uint64_t, line> sums{};
  for (std::size_t i = 0; i < part; ++i) {
    for (std::size_t place = 0; place < places; ++place) {
      std::array<std::uint64_t, line> words;
      const char* const from = bytes + (place * part + i) * sizeof words;
      __builtin_prefetch(from + ahead);
      std::memcpy(&words, from, sizeof words);
      for (std::size_t word = 0; word < line; ++word) sums[word] += words[word];
    }
  }
  benchmark::DoNotOptimize(sums);
}

}  // namespace bench
