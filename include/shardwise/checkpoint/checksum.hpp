#pragma once
// Checksums in a checkpoint: of each tensor, and of a file's header.
//
// The checksum of the words w_0, w_1, ... (32 bits, lowest byte first, zeros behind the last byte)
// is the two sums of all w_i and of all i w_i, modulo 2^64. It is a sum over elements, so ranks add
// what each of them writes or reads, however they cut the tensor; a CRC or a hash of blocks would
// need each block on one rank. A change of one or two words of a tensor below 16 GiB changes it.
//
// Source: Fletcher 1982, "An arithmetic checksum for serial transmissions".
//
// They are metadata of the file, which other programs ignore:
//
//     shardwise.checksums   those of the tensors, in the order of their offsets, without a gap
//     shardwise.checksum    that of the header as this library writes it without this entry

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/safetensors_header.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/independent_loop.hpp"

namespace shardwise::detail {

/// A tensor that is not what was saved; the same error on every rank.
class checksum_error : public data_error {
 public:
  using data_error::data_error;
};

/// The sums of words in 8 lanes: word i is in lane i % 8. Words are read in pairs of 8 bytes, which
/// compilers add in vectors; to make each word twice as long takes as much time as the sums.
struct WordSums {
  static constexpr std::size_t lanes = 8;

  std::array<std::uint64_t, lanes> sums{};          ///< of the words of a lane
  std::array<std::uint64_t, lanes> sums_of_sums{};  ///< these have word i of n words n - i times

  WordSums() = default;
  /// Of `rounds` times 8 words.
  [[gnu::always_inline]] WordSums(const std::byte* in, std::size_t rounds) {
    using Pairs [[gnu::vector_size(32)]] = std::uint64_t;
    Pairs even{}, odd{}, evens{}, odds{};
    for (std::size_t round = 0; round < rounds; ++round) {
      Pairs pairs;
      std::memcpy(&pairs, in + round * sizeof pairs, sizeof pairs);
      even += pairs & 0xffffffffU;
      odd += pairs >> 32;
      evens += even;
      odds += odd;
    }
    for (std::size_t i = 0; i < lanes / 2; ++i) {
      sums[2 * i] = even[i];
      sums[2 * i + 1] = odd[i];
      sums_of_sums[2 * i] = evens[i];
      sums_of_sums[2 * i + 1] = odds[i];
    }
  }
};

/// The checksum of some bytes of a text or tensor.
struct Checksum {
  static constexpr std::size_t digits = 32;  ///< of its text

  std::uint64_t bytes = 0;     ///< how many were added
  std::uint64_t sum = 0;       ///< of their words
  std::uint64_t weighted = 0;  ///< the sum of words times their numbers

  /// Adds bytes that begin at `offset`.
  void add(std::uint64_t offset, std::span<const std::byte> more) {
    bytes += more.size();
    const auto add_byte = [&] {
      add_word(offset / 4, std::to_integer<std::uint64_t>(more[0]) << 8 * (offset % 4));
      ++offset;
      more = more.subspan(1);
    };
    while (offset % 4 != 0 && !more.empty()) add_byte();
    const std::size_t words = more.size() / 4;
    add_words(offset / 4, more.data(), words);
    offset += words * 4;
    more = more.subspan(words * 4);
    while (!more.empty()) add_byte();
  }

  /// The two sums, as hexadecimal digits.
  std::string text() const {
    char text[digits + 1];
    std::snprintf(text, sizeof text, "%016jx%016jx", static_cast<std::uintmax_t>(sum),
                  static_cast<std::uintmax_t>(weighted));
    return text;
  }

  ///@{
  /// Add one word, and `count` words, of which the first is number `first`.
  void add_word(std::uint64_t number, std::uint64_t word) {
    sum += word;
    weighted += number * word;
  }

  void add_words(std::uint64_t first, const std::byte* in, std::size_t count) {
    const std::size_t rounds = count / WordSums::lanes;
    WordSums of;
    in_widest_vectors([&of, in, rounds] { of = WordSums(in, rounds); });
    for (std::size_t lane = 0; lane < WordSums::lanes; ++lane) {
      add_word(first + lane + WordSums::lanes * rounds, of.sums[lane]);
      weighted -= WordSums::lanes * of.sums_of_sums[lane];
    }
    for (std::size_t i = rounds * WordSums::lanes; i < count; ++i) {
      std::uint32_t word = 0;
      std::memcpy(&word, in + i * sizeof word, sizeof word);
      add_word(first + i, word);
    }
  }
  ///@}
};

inline constexpr const char* checksums_key = "shardwise.checksums";
inline constexpr const char* header_checksum_key = "shardwise.checksum";

inline std::string checksum_of(const SafetensorsHeader& header) {
  const std::string text = safetensors_header_bytes(header);
  Checksum sum;
  sum.add(0, std::as_bytes(std::span(text)));
  return sum.text();
}

/// Sets the header's checksums; those of its tensors are given by name.
inline void set_checksums(SafetensorsHeader& header,
                          const std::map<std::string, std::string>& by_name) {
  header.metadata.erase(header_checksum_key);
  std::string& text = header.metadata[checksums_key];
  text.clear();
  for (const auto* tensor : by_offset(header)) text += by_name.at(tensor->first);
  header.metadata[header_checksum_key] = checksum_of(header);
}

/// Takes the checksums out of a header's metadata and returns those of the tensors, by name; none
/// for a file without checksums.
/// throws   data_error, beginning with `where`, if the header is not what was saved
inline std::map<std::string, std::string> take_checksums(SafetensorsHeader& header,
                                                         const std::string& where) {
  const auto of_header = header.metadata.extract(header_checksum_key);
  if (!of_header && !header.metadata.contains(checksums_key)) return {};
  const bool is_as_saved = of_header && checksum_of(header) == of_header.mapped();
  const auto of_tensors = header.metadata.extract(checksums_key);
  const auto tensors = by_offset(header);
  if (!is_as_saved || !of_tensors ||
      of_tensors.mapped().size() != tensors.size() * Checksum::digits) {
    throw data_error({where,
                      ": its header is not what was saved, by the checksum in it; it is "
                      "damaged, take another copy (or, if a program has changed it on purpose, let "
                      "that leave out the metadata ",
                      header_checksum_key, " and ", checksums_key, ")"});
  }
  std::map<std::string, std::string> checksums;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    checksums.emplace(tensors[i]->first,
                      of_tensors.mapped().substr(i * Checksum::digits, Checksum::digits));
  }
  return checksums;
}

}  // namespace shardwise::detail
