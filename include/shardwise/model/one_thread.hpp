#pragma once
// A model is in calls of one thread at a time: what notices another one.

#include <atomic>

#include "shardwise/comm/mark.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// The thread whose calls a model is in.
class OneThread {
 public:
  /// While it lives, this thread is in a call of the model, which may be inside another of its own.
  class [[nodiscard]] Call {
   public:
    /// throws  argument_error if the model is in a call of another thread, which goes on
    [[gnu::noinline]] explicit Call(OneThread& of) : thread_(of.thread_) {
      if (thread_.load(std::memory_order_relaxed) == &current_mark) return;
      const void* nobody = nullptr;
      is_outermost_ = thread_.compare_exchange_strong(nobody, &current_mark);
      if (!is_outermost_) refuse();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
      if (is_outermost_) thread_.store(nullptr, std::memory_order_release);
    }

   private:
    [[noreturn, gnu::cold]] static void refuse();

    std::atomic<const void*>& thread_;
    bool is_outermost_ = false;
  };

 private:
  std::atomic<const void*> thread_{nullptr};  // the address of its mark; null between calls
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void OneThread::Call::refuse() {
  throw argument_error(
      "a thread calls this model while it is in a call of another thread; that call goes on. A "
      "Model is used by one thread at a time: let threads take turns (a mutex around each use "
      "of the model and of its results), or give each one a model of its own");
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
