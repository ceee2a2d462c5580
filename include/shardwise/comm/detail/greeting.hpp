#pragma once
// What a rank says of itself before there is a communicator: bytes of one fixed length, the same in
// a file and on a wire.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// Numbers between machines: four bytes, the lowest first.
inline void put_number(std::span<std::byte> bytes, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<std::byte>((value >> (8 * i)) & 0xffU);
}
inline std::uint32_t get_number(std::span<const std::byte> bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::to_integer<std::uint32_t>(bytes[i]) << (8 * i);
  return value;
}

/// Whether two texts of bytes are equal, in a time that does not tell where they differ.
inline bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= std::to_integer<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

/// What becomes of a greeting. The numbers are those of the wire.
enum class Verdict : std::uint32_t {
  welcome = 0,
  no_greeting = 1,  ///< not of this library, or of another version of it
  other_token = 2,
  other_size = 3,  ///< of a job with another number of ranks
  no_rank = 4,
  taken = 5  ///< another process has come as this rank
};

inline const char* meaning(Verdict verdict) {
  constexpr const char* meanings[] = {"is welcome",
                                      "has said nothing that this version understands",
                                      "belongs to another job: its token differs",
                                      "expects another number of ranks",
                                      "calls itself a rank that there is not",
                                      "calls itself a rank that has already come"};
  const auto number = static_cast<std::size_t>(verdict);
  return meanings[std::min(number, std::size_t{5})];
}

/// A rank on its way to the others of its job.
class Participant {
 public:
  static constexpr std::size_t largest_token = 256;
  static constexpr int largest_size = 1 << 16;

  /// throws  argument_error for a rank that is none, too many ranks, or too long a token
  Participant(const char* place, int rank, int size, RendezvousOptions options)
      : rank_(rank), size_(size), options_(std::move(options)) {
    if (size < 1 || size > largest_size)
      throw argument_error(
          {place, ": ", size, " ranks are to meet; it can be 1 to ", largest_size});
    if (rank < 0 || rank >= size)
      throw argument_error({place, ": ", rank, " is no rank; ranks are 0 to ", size - 1});
    if (options_.token.size() > largest_token)
      throw argument_error({place, ": the token has ", options_.token.size(),
                            " bytes; it can have ", largest_token});
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  const RendezvousOptions& options() const { return options_; }

 private:
  int rank_;
  int size_;
  RendezvousOptions options_;
};

/// Mark, number of ranks, rank, length of the token, token, card.
struct Greeting {
  static constexpr std::size_t token_at = 20;
  static constexpr std::size_t card_at = token_at + Participant::largest_token;
  static constexpr std::size_t length = card_at + sizeof(Card);
  static constexpr std::string_view mark = "shardw01";

  std::array<std::byte, length> bytes{};

  Greeting() = default;
  Greeting(const Participant& from, const Card& card) {
    const std::string& token = from.options().token;
    std::memcpy(bytes.data(), mark.data(), mark.size());
    put_number(std::span(bytes).subspan(8), static_cast<std::uint32_t>(from.size()));
    put_number(std::span(bytes).subspan(12), static_cast<std::uint32_t>(from.rank()));
    put_number(std::span(bytes).subspan(16), static_cast<std::uint32_t>(token.size()));
    std::copy_n(reinterpret_cast<const std::byte*>(token.data()), token.size(),
                bytes.begin() + token_at);
    std::copy(card.begin(), card.end(), bytes.begin() + card_at);
  }

  /// As `reader` sees it. Only of one that is welcome, rank() and card() mean anything.
  Verdict verdict(const Participant& reader) const {
    const Greeting expected(reader, Card{});
    const std::span<const std::byte> mine(bytes);
    const std::span<const std::byte> theirs(expected.bytes);
    if (std::memcmp(bytes.data(), mark.data(), mark.size()) != 0) return Verdict::no_greeting;
    if (!equal_in_constant_time(mine.subspan(16, card_at - 16), theirs.subspan(16, card_at - 16)))
      return Verdict::other_token;
    if (get_number(mine.subspan(8)) != static_cast<std::uint32_t>(reader.size()))
      return Verdict::other_size;
    if (get_number(mine.subspan(12)) >= static_cast<std::uint32_t>(reader.size()))
      return Verdict::no_rank;
    return Verdict::welcome;
  }

  int rank() const { return static_cast<int>(get_number(std::span(bytes).subspan(12))); }
  Card card() const {
    Card card;
    std::copy_n(bytes.begin() + card_at, card.size(), card.begin());
    return card;
  }

  friend bool operator==(const Greeting&, const Greeting&) = default;
};

}  // namespace shardwise::detail
