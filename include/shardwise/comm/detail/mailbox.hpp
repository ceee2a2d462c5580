#pragma once
// Messages from one rank to another, in the order in which they were sent.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/rank_progress.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/fixed_list.hpp"

namespace shardwise::detail {

/// A queue with one sender and one receiver. The memory of received messages is used again.
class Mailbox {
 public:
  /// Advances with each message that is sent.
  Progress& sent() { return sent_; }
  /// The value of `sent` when the next message of the receiver is there.
  std::uint64_t next() const { return (taken_ + 1) * Progress::stride; }

  void put(const Call& call, std::span<const std::byte> bytes);

  /// Copies the next message, which must have been sent, if accept(its call) says so; drops it
  /// otherwise. Returns the call that sent it.
  template <class Accept>
  Call take(std::span<std::byte> bytes, Accept accept) {
    std::unique_lock lock(mutex_);
    const Message& message = ring_[first_];
    if (accept(message.call) && !bytes.empty())
      std::memcpy(bytes.data(), message.bytes.data(), bytes.size());
    first_ = (first_ + 1) % ring_.size();
    --waiting_;
    ++taken_;
    return message.call;
  }

 private:
  struct Message {
    Call call;
    std::vector<unsigned char> bytes;  // at least those of the message
  };

  void grow();

  std::mutex mutex_;
  FixedList<Message> ring_{0};
  std::size_t first_ = 0;
  std::size_t waiting_ = 0;
  std::uint64_t taken_ = 0;  // the receiver's own
  Progress sent_;
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

#include <utility>

namespace shardwise::detail {

SHARDWISE_INLINE void Mailbox::put(const Call& call, std::span<const std::byte> bytes) {
  {
    std::unique_lock lock(mutex_);
    if (waiting_ == ring_.size()) grow();
    Message& message = ring_[(first_ + waiting_) % ring_.size()];
    if (message.bytes.size() < bytes.size()) message.bytes.resize(bytes.size());
    if (!bytes.empty()) std::memcpy(message.bytes.data(), bytes.data(), bytes.size());
    message.call = call;
    ++waiting_;
  }
  sent_.advance();
}

SHARDWISE_INLINE void Mailbox::grow() {
  FixedList<Message> larger(ring_.size() == 0 ? 2 : 2 * ring_.size());
  for (std::size_t i = 0; i < waiting_; ++i)
    larger[i] = std::move(ring_[(first_ + i) % ring_.size()]);
  ring_.swap(larger);
  first_ = 0;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
