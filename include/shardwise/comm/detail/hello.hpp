#pragma once
// The first message of a rank in a rendezvous. It has one fixed length, and is the same in a file
// and on the wire.

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

/// Whether two byte sequences are equal, in a time that does not depend on where they differ.
inline bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= std::to_integer<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

/// Whether a rank accepts the hello of another one. The numbers go over the wire.
enum class HelloStatus : std::uint32_t {
  accepted = 0,
  not_a_hello = 1,  ///< not a message of this version of shardwise
  wrong_token = 2,
  wrong_size = 3,  ///< of a job with another number of ranks
  invalid_rank = 4,
  duplicate_rank = 5  ///< another process has already joined as this rank
};

/// The text of an error about the sender of a hello with this status.
inline const char* describe(HelloStatus status) {
  constexpr const char* texts[] = {"is accepted",
                                   "has not sent a hello of this version of shardwise",
                                   "belongs to another job: its token differs",
                                   "expects another number of ranks",
                                   "has a rank that does not exist",
                                   "has the rank of a process that has already joined"};
  const auto number = static_cast<std::size_t>(status);
  return texts[std::min(number, std::size_t{5})];
}

/// A rank that takes part in a rendezvous.
class Participant {
 public:
  static constexpr std::size_t largest_token = 256;
  static constexpr int largest_size = 1 << 16;

  /// throws  argument_error if `rank` is not below `size`, or if `size` or the token is too large
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

/// Magic text, number of ranks, rank, length of the token, token, payload.
struct Hello {
  static constexpr std::size_t token_at = 20;
  static constexpr std::size_t payload_at = token_at + Participant::largest_token;
  static constexpr std::size_t length = payload_at + sizeof(RendezvousPayload);
  static constexpr std::string_view magic = "shardw01";

  std::array<std::byte, length> bytes{};

  Hello() = default;
  Hello(const Participant& from, const RendezvousPayload& payload) {
    const std::string& token = from.options().token;
    std::memcpy(bytes.data(), magic.data(), magic.size());
    put_number(std::span(bytes).subspan(8), static_cast<std::uint32_t>(from.size()));
    put_number(std::span(bytes).subspan(12), static_cast<std::uint32_t>(from.rank()));
    put_number(std::span(bytes).subspan(16), static_cast<std::uint32_t>(token.size()));
    std::copy_n(reinterpret_cast<const std::byte*>(token.data()), token.size(),
                bytes.begin() + token_at);
    std::copy(payload.begin(), payload.end(), bytes.begin() + payload_at);
  }

  /// Whether `reader` accepts it. If not, rank() and payload() mean nothing.
  HelloStatus status(const Participant& reader) const {
    const Hello expected(reader, RendezvousPayload{});
    const std::span<const std::byte> mine(bytes);
    const std::span<const std::byte> theirs(expected.bytes);
    if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) return HelloStatus::not_a_hello;
    if (!equal_in_constant_time(mine.subspan(16, payload_at - 16),
                                theirs.subspan(16, payload_at - 16)))
      return HelloStatus::wrong_token;
    if (get_number(mine.subspan(8)) != static_cast<std::uint32_t>(reader.size()))
      return HelloStatus::wrong_size;
    if (get_number(mine.subspan(12)) >= static_cast<std::uint32_t>(reader.size()))
      return HelloStatus::invalid_rank;
    return HelloStatus::accepted;
  }

  int rank() const { return static_cast<int>(get_number(std::span(bytes).subspan(12))); }
  RendezvousPayload payload() const {
    RendezvousPayload payload;
    std::copy_n(bytes.begin() + payload_at, payload.size(), payload.begin());
    return payload;
  }

  friend bool operator==(const Hello&, const Hello&) = default;
};

}  // namespace shardwise::detail
