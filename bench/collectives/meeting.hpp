#pragma once
// Where exactly two threads meet, for what is written by hand for them.

#include <atomic>
#include <cstdint>
#include <thread>

namespace bench {

/// Two sides, 0 and 1, each used by one thread.
class Meeting {
 public:
  /// Returns when the other thread has called as often. What a thread wrote before, the other one
  /// sees behind it.
  void meet(int side) {
    Side& me = sides_[side];
    const Side& other = sides_[1 - side];
    me.arrived.store(++me.step, std::memory_order_release);
    // Another program may have the other thread's core: then this one's may help.
    for (int spins = 0; other.arrived.load(std::memory_order_acquire) < me.step; ++spins)
      if (spins > 10'000) std::this_thread::yield();
  }

 private:
  struct alignas(64) Side {
    std::atomic<std::uint64_t> arrived{0};
    alignas(64) std::uint64_t step = 0;  // not where the other thread looks
  };

  Side sides_[2];
};

}  // namespace bench
