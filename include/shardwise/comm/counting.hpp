#pragma once
// A communicator that records the calls of its rank. It knows nothing of plans and layouts, so its
// records can be compared with them.

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/wrapped_communicator.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise {

/// One call that a rank made. `elements` is the size of the buffer that it passed in: `in` or
/// `data`, 0 where the contract does not use it (scatter, except on the root).
struct CountedCall {
  Operation operation;   ///< that was called
  Dtype dtype;           ///< of its elements
  std::size_t elements;  ///< that the rank passed in

  friend bool operator==(const CountedCall&, const CountedCall&) = default;
};

/// Logs each call before `Inner` makes it. Copies share one log; a group made by split has its own
/// log.
template <class Inner>
class CountingCommunicator : public WrappedCommunicator<CountingCommunicator<Inner>, Inner> {
  using Base = WrappedCommunicator<CountingCommunicator, Inner>;

 public:
  /// Begins with an empty log.
  explicit CountingCommunicator(Inner inner)
      : Base(std::move(inner)), log_(std::make_shared<std::vector<CountedCall>>()) {}

  /// The calls since the last clear(), oldest first. Valid until the next call.
  const std::vector<CountedCall>& log() const { return *log_; }
  /// Deletes them.
  void clear() { log_->clear(); }
  /// Allocates room for `calls` calls in advance.
  void reserve(std::size_t calls) { log_->reserve(calls); }

 private:
  friend Base;

  template <class F>
  void around(const Call& call, F make) {
    log_->push_back({call.operation, call.dtype, call.mine});
    make();
  }

  std::shared_ptr<std::vector<CountedCall>> log_;
};

}  // namespace shardwise
