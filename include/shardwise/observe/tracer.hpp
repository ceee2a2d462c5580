#pragma once
// An observer that records what a rank did, and when.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "shardwise/core/compiled.hpp"
#include "shardwise/model/observer.hpp"

namespace shardwise {

/// Records what the model of one rank does, in memory that is reserved before.
///
///     Model<Mlp, Context<float, Reference, ThreadCommunicator, Tracer>> model(ranks, Seed{1});
///     model.observer().reserve(10'000);
///     for (...) train_step(model, x, labels, loss, optimizer);
///     write_trace("trace.json", ranks, model.observer());
///
/// Recording an event reads the clock twice and allocates nothing. If the memory is full, later
/// events are only counted; so are all events before the first `reserve`.
///
/// Times are those of steady_clock, which all threads share, and on Linux all processes of a
/// machine. They are the host's, and do not include work that a GPU does later on a stream.
class Tracer {
 public:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();  ///< no event

  /// Times are in nanoseconds. `within` is the number of the enclosing event, or `none`. An event
  /// that has not ended yet ends where it begins.
  struct Event {
    Work work;                  ///< what happened
    std::size_t within = none;  ///< the enclosing event
    std::int64_t begin = 0;     ///< since the clock's zero
    std::int64_t end = 0;       ///< since the same
  };

  /// Deletes all events and reserves memory for this number. In a training step a layer records
  /// four events, each composition two, each redistribution one.
  /// throws   std::bad_alloc; then events are unchanged
  void reserve(std::size_t events);

  /// Deletes all events and keeps the memory.
  void clear() {
    events_.clear();
    forget_open();
  }

  /// In the order in which they began. Valid until the next `reserve`.
  const std::vector<Event>& events() const { return events_; }

  /// Events that were dropped since the last `reserve` or `clear`.
  std::size_t dropped() const { return dropped_; }

  /// As `Observer` says.
  void begin(const Work& work);

  /// Does nothing for events that began before the last `reserve` or `clear`.
  void end() noexcept;

 private:
  static std::int64_t now() noexcept;

  void forget_open() {
    open_ = none;
    dropped_ = 0;
    open_dropped_ = 0;
  }

  std::vector<Event> events_;
  std::size_t room_ = 0;
  std::size_t open_ = none;  // the innermost event that has not ended
  std::size_t dropped_ = 0;
  std::size_t open_dropped_ = 0;  // of those that have not ended
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE void Tracer::reserve(std::size_t events) {
  std::vector<Event> room;
  room.reserve(events);
  events_.swap(room);
  room_ = events;
  forget_open();
}

SHARDWISE_INLINE void Tracer::begin(const Work& work) {
  if (events_.size() == room_) {
    ++dropped_;
    ++open_dropped_;
    return;
  }
  const std::int64_t time = now();
  events_.push_back({work, open_, time, time});
  open_ = events_.size() - 1;
}

SHARDWISE_INLINE void Tracer::end() noexcept {
  if (open_dropped_ > 0) {
    --open_dropped_;
  } else if (open_ != none) {
    events_[open_].end = now();
    open_ = events_[open_].within;
  }
}

SHARDWISE_INLINE std::int64_t Tracer::now() noexcept {
  using std::chrono::nanoseconds;
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<nanoseconds>(time).count();
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
