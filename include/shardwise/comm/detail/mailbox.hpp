#pragma once
// Messages from one rank to another, in the order in which they were sent.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <vector>

#include "shardwise/comm/call.hpp"

namespace shardwise::detail {

/// A queue with one sender and one receiver. The memory of received messages is used again.
class Mailbox {
 public:
  /// Messages ever sent; the receiver of message n waits until this is at least n.
  std::atomic<std::uint64_t>& sent() { return sent_; }
  /// The number of the message that the receiver takes next, from 1.
  std::uint64_t next() const { return taken_ + 1; }

  void put(const Call& call, std::span<const std::byte> bytes) {
    {
      std::unique_lock lock(mutex_);
      if (waiting_ == ring_.size()) grow();
      Message& message = ring_[(first_ + waiting_) % ring_.size()];
      message.bytes.assign(bytes.begin(), bytes.end());
      message.call = call;
      ++waiting_;
    }
    sent_.fetch_add(1);
  }

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
    std::vector<std::byte> bytes;
  };

  void grow() {
    std::vector<Message> larger(ring_.empty() ? 2 : 2 * ring_.size());
    for (std::size_t i = 0; i < waiting_; ++i)
      std::swap(larger[i], ring_[(first_ + i) % ring_.size()]);
    ring_.swap(larger);
    first_ = 0;
  }

  std::mutex mutex_;
  std::vector<Message> ring_;
  std::size_t first_ = 0;
  std::size_t waiting_ = 0;
  std::uint64_t taken_ = 0;  // the receiver's own
  std::atomic<std::uint64_t> sent_{0};
};

}  // namespace shardwise::detail
