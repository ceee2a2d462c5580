#pragma once
// How far ranks that are threads have come, and what a rank that waits asks of it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/comm/detail/call_record.hpp"
#include "shardwise/comm/detail/patience.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/growing_list.hpp"

namespace shardwise::detail {

/// The data that a rank publishes of its call in a collective.
struct Publication {
  CallRecord record{};
  const void* data = nullptr;  ///< null if it was copied
  void* out = nullptr;         ///< memory that peers may write to

  bool copied() const { return data == nullptr; }
};

/// The progress of one rank. `value` grows by `stride`; a peer that stops waiting for the next step
/// sets the lowest bit, and then that step never happens. The call is in the same cache line, so
/// that a peer gets both at once.
struct alignas(64) Progress {
  static constexpr std::uint64_t stride = 2;
  static constexpr std::uint64_t given_up = 1;

  std::atomic<std::uint64_t> value{0};
  Publication publication{};

  void advance() { value.fetch_add(stride); }

  /// One step, unless a peer has stopped waiting for it.
  bool advance_from(std::uint64_t before) {
    return value.compare_exchange_strong(before, before + stride);
  }
};

static_assert(sizeof(Progress) == 64);

/// A wait of a rank, until the progress of each of some ranks reaches `target`.
struct Wait {
  Progress* progress;  ///< of each of these ranks
  std::uint64_t target;
  WaitPlace place;
  std::span<const int> needed;  ///< their world ranks, of which none may end before
  bool can_fail = true;

  bool done() const {
    for (std::size_t i = 0; i < needed.size(); ++i)
      if (progress[i].value.load() < target) return false;
    return true;
  }

  /// Stops one rank that has not reached the target, so that no rank ever finds this wait done.
  /// Returns false if all ranks have reached it: then it is done for all of them.
  bool give_up() const;

  /// The world ranks that have not reached the target.
  GrowingList<int> missing() const;
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE bool Wait::give_up() const {
  for (std::size_t i = 0; i < needed.size(); ++i) {
    std::atomic<std::uint64_t>& value = progress[i].value;
    std::uint64_t seen = value.load();
    while (seen < target)
      if (value.compare_exchange_weak(seen, seen | Progress::given_up)) return true;
  }
  return false;
}

SHARDWISE_INLINE GrowingList<int> Wait::missing() const {
  GrowingList<int> ranks;
  for (std::size_t i = 0; i < needed.size(); ++i)
    if (progress[i].value.load() < target) ranks.add(needed[i]);
  return ranks;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
