#pragma once
// The part of a call that ranks compare, as a record of numbers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "shardwise/comm/call.hpp"

namespace shardwise::detail {

/// A hash of counts. A single count that differs always changes it; if several differ, it stays
/// equal with a probability of 2^-64.
inline std::uint64_t digest(std::span<const std::size_t> counts) {
  std::uint64_t hash = 0;
  for (const std::size_t count : counts) {
    hash = (hash ^ count) * 0x9e37'79b9'7f4a'7c15U;
    hash ^= hash >> 32;
  }
  return hash;
}

/// The record of a call that ranks exchange: threads in memory, processes in a message of MPI. It
/// has no pointers and no gaps, so that its bytes can be sent. Ranks made the same call if their
/// records are equal.
struct CallRecord {
  std::uint64_t elements = 0;
  std::uint64_t counts_digest = 0;  ///< the counts themselves may be gone when a peer compares
  std::uint32_t counts = 0;         ///< how many there are
  std::int32_t root = -1;
  std::int32_t tag = 0;
  std::int32_t dtype = 0;
  std::int16_t operation = 0;
  std::int16_t reduction = 0;
  std::int16_t axis = 0;
  std::int16_t to_axis = -1;

  CallRecord() = default;
  explicit CallRecord(const Call& call)
      : elements(call.elements),
        counts_digest(digest(call.counts)),
        counts(static_cast<std::uint32_t>(call.counts.size())),
        root(call.root),
        tag(call.tag),
        dtype(static_cast<std::int32_t>(call.dtype)),
        operation(static_cast<std::int16_t>(call.operation)),
        reduction(static_cast<std::int16_t>(call.reduction)),
        axis(static_cast<std::int16_t>(call.axis)),
        to_axis(static_cast<std::int16_t>(call.to_axis)) {}

  /// The recorded call, if it was a send.
  Call as_send() const {
    return {.operation = Operation::send,
            .dtype = static_cast<Dtype>(dtype),
            .root = root,
            .tag = tag,
            .elements = elements};
  }

  friend bool operator==(const CallRecord&, const CallRecord&) = default;
};

static_assert(std::has_unique_object_representations_v<CallRecord>);

}  // namespace shardwise::detail
