#pragma once
// What a rank tells the others when it arrives in a collective.

#include <cstddef>
#include <cstdint>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/quarrel.hpp"

namespace shardwise::detail {

/// So much of a call as peers compare, and where its data lies.
struct Notice {
  Operation operation{};
  Dtype dtype{};
  Reduction reduction{};
  int root = -1;
  std::int16_t axis = 0;
  std::int16_t to_axis = -1;
  std::uint32_t blocks = 0;         ///< how many counts there are
  std::uint64_t counts_digest = 0;  ///< of counts that may lie in memory of a rank that has gone on
  std::size_t elements = 0;
  const void* data = nullptr;  ///< null if it was copied
  void* out = nullptr;         ///< memory that peers may write to

  Notice() = default;
  Notice(const Call& call, const void* data_, void* out_)
      : operation(call.operation),
        dtype(call.dtype),
        reduction(call.reduction),
        root(call.root),
        axis(static_cast<std::int16_t>(call.axis)),
        to_axis(static_cast<std::int16_t>(call.to_axis)),
        blocks(static_cast<std::uint32_t>(call.counts.size())),
        counts_digest(digest(call.counts)),
        elements(call.elements),
        data(data_),
        out(out_) {}

  bool copied() const { return data == nullptr; }

  /// Whether both came with the same call.
  bool agrees(const Notice& other) const {
    return operation == other.operation && dtype == other.dtype && reduction == other.reduction &&
           root == other.root && axis == other.axis && to_axis == other.to_axis &&
           blocks == other.blocks && counts_digest == other.counts_digest &&
           elements == other.elements;
  }
};

}  // namespace shardwise::detail
