#pragma once
// The checks of a call that one rank can make alone.

#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/comm/call.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

void check_elements(Operation operation, const char* buffer, std::size_t actual,
                    std::size_t expected);

inline void check_counts(Operation operation, std::size_t counts, int ranks) {
  if (counts == static_cast<std::size_t>(ranks)) return;
  throw shape_error({name(operation), ": ", counts, " counts are given for ", ranks,
                     " ranks; give one for each rank"});
}

inline void check_rank(Operation operation, const char* role, int rank, int ranks) {
  if (rank >= 0 && rank < ranks) return;
  throw argument_error({name(operation), ": ", role, " ", rank,
                        " is no rank of this group; its ranks are 0 to ", ranks - 1});
}

inline void check_partner(Operation operation, const char* role, int partner, int rank, int ranks) {
  check_rank(operation, role, partner, ranks);
  if (partner == rank)
    throw argument_error({name(operation), ": ", role, " ", partner,
                          " is the calling rank itself; messages go to other ranks"});
}

/// Whether two pieces of memory share a byte.
inline bool overlaps(std::span<const std::byte> in, std::span<const std::byte> out) {
  if (in.empty() || out.empty()) return false;
  const auto begin = [](const auto& of) { return reinterpret_cast<std::uintptr_t>(of.data()); };
  return begin(in) < begin(out) + out.size() && begin(out) < begin(in) + in.size();
}

void check_overlap(Operation operation, std::span<const std::byte> in,
                   std::span<const std::byte> out, const void* allowed);

/// `in` and `out` may share no element, unless `in` begins exactly at `allowed`.
template <class T>
void check_overlap(Operation operation, std::span<const T> in, std::span<T> out,
                   const T* allowed = nullptr) {
  check_overlap(operation, std::as_bytes(in), std::as_bytes(out), allowed);
}

/// The offset of the block of rank r.
inline std::size_t offset(std::span<const std::size_t> counts, int rank) {
  std::size_t sum = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rank); ++r) sum += counts[r];
  return sum;
}

inline std::size_t total(std::span<const std::size_t> counts) {
  return offset(counts, static_cast<int>(counts.size()));
}

/// Checks that `buffer` has the size of the rank's block, and returns where that block begins.
inline std::size_t check_block(Operation operation, const char* buffer, std::size_t has,
                               std::span<const std::size_t> counts, int rank, int ranks) {
  check_counts(operation, counts.size(), ranks);
  check_elements(operation, buffer, has, counts[static_cast<std::size_t>(rank)]);
  return offset(counts, rank);
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

[[gnu::noinline]] SHARDWISE_INLINE void check_elements(Operation operation, const char* buffer,
                                                       std::size_t actual, std::size_t expected) {
  if (actual == expected) return;
  throw shape_error(
      {name(operation), ": ", buffer, " has ", actual, " elements and must have ", expected});
}

[[gnu::noinline]] SHARDWISE_INLINE void check_overlap(Operation operation,
                                                      std::span<const std::byte> in,
                                                      std::span<const std::byte> out,
                                                      const void* allowed) {
  if (in.data() == allowed || !overlaps(in, out)) return;
  throw argument_error({name(operation), ": input and output overlap; use two buffers",
                        allowed != nullptr ? ", or work exactly in place" : ""});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
