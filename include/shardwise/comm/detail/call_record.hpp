#pragma once
// The part of a call that ranks compare, as a record of numbers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail {

/// A hash of counts and of their number. A single count that differs always changes it; if several
/// differ, it stays equal with a probability of 2^-64.
inline std::uint64_t digest(std::span<const std::size_t> counts) {
  std::uint64_t hash = counts.size();
  for (const std::size_t count : counts) {
    hash = (hash ^ count) * 0x9e37'79b9'7f4a'7c15U;
    hash ^= hash >> 32;
  }
  return hash;
}

/// A hash of the place in a model, and of what the rank was given.
inline std::uint32_t digest(const Mark& mark) {
  const GivenAlike& given = mark.given;
  if (given == GivenAlike{}) return mark.path_digest;
  return mixed(mixed(mark.path_digest, mixed(given.seed, given.model)),
               mixed(mixed(given.inputs, given.targets), given.options));
}

/// The record of a call that ranks exchange: threads in memory, processes in a message of MPI. It
/// has no pointers and no gaps, so that its bytes can be sent. Ranks made the same call if their
/// records are equal.
struct CallRecord {
  std::uint64_t elements = 0;
  std::uint64_t counts_digest = 0;  ///< the counts themselves may be gone when a peer compares
  std::int32_t root = -1;
  std::int32_t tag = 0;
  std::uint32_t step = 0;
  std::uint32_t place = 0;  ///< in the model, and what was given; 0 for messages
  std::uint16_t batch = 0;
  Operation operation = Operation::barrier;
  Reduction reduction = Reduction::sum;
  Dtype dtype = Dtype::uint8;
  std::int8_t axis = 0;
  std::int8_t to_axis = -1;
  Phase phase = Phase::none;  ///< none for messages

  CallRecord() = default;
  explicit CallRecord(const Call& call)
      : elements(call.elements),
        counts_digest(digest(call.counts)),
        root(call.root),
        tag(call.tag),
        step(call.mark.step),
        batch(call.mark.batch),
        operation(call.operation),
        reduction(call.reduction),
        dtype(call.dtype),
        axis(static_cast<std::int8_t>(call.axis)),
        to_axis(static_cast<std::int8_t>(call.to_axis)) {
    if (operation == Operation::send) return;
    place = digest(call.mark);
    phase = call.mark.phase;
  }

  /// The recorded call, if it was a send.
  Call as_send() const {
    return {.operation = Operation::send,
            .dtype = dtype,
            .root = root,
            .tag = tag,
            .elements = elements,
            .mark = {.step = step, .batch = batch}};
  }

  friend bool operator==(const CallRecord&, const CallRecord&) = default;
};

static_assert(std::has_unique_object_representations_v<CallRecord>);

}  // namespace shardwise::detail
