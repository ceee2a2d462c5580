#pragma once
// What two thread ranks tell each other about a message whose data stays on a device.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "shardwise/comm/call.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// From the sender: where the data lies and what was called.
struct Letter {
  const void* data = nullptr;
  Call call{};

  bool fits(const Call& wanted) const {
    return call.elements == wanted.elements && call.dtype == wanted.dtype && call.tag == wanted.tag;
  }
};

/// From the receiver: whether the message was what it waited for.
struct Receipt {
  bool accepted = false;
  Call call{};  ///< what it waited for
};

template <class Note>
std::span<const std::uint8_t> bytes_of(const Note& note) {
  static_assert(std::is_trivially_copyable_v<Note>);
  return {reinterpret_cast<const std::uint8_t*>(&note), sizeof note};
}

template <class Note>
std::span<std::uint8_t> writable_bytes_of(Note& note) {
  static_assert(std::is_trivially_copyable_v<Note>);
  return {reinterpret_cast<std::uint8_t*>(&note), sizeof note};
}

/// The error of both sides for a message that is not what its receiver waited for.
[[noreturn]] inline void refuse_letter(const Call& sent, const Call& received) {
  throw collective_error({"one rank called ", sent, ", the other ", received,
                          "; dtype, elements and tag of a message must be the same on both sides"});
}

}  // namespace shardwise::detail
