#pragma once
// A handle of a group of NCCL, which belongs to a watchdog. The last handle releases the group.

#include <cstdint>
#include <memory>
#include <utility>

#include "shardwise/comm/detail/nccl_group.hpp"
#include "shardwise/comm/detail/watchdog.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::nccl {

class GroupHandle {
 public:
  GroupHandle(std::shared_ptr<Watchdog<NcclGroup>> watchdog, std::unique_ptr<NcclGroup> group)
      : watchdog_(std::move(watchdog)), entry_(watchdog_->add(std::move(group))) {}
  GroupHandle(const GroupHandle&) = delete;
  GroupHandle& operator=(const GroupHandle&) = delete;
  ~GroupHandle() { release(); }

  const std::shared_ptr<Watchdog<NcclGroup>>& watchdog() const { return watchdog_; }

  NcclGroup& group() const {
    if (entry_.watched == nullptr)
      throw argument_error("NCCL: a communicator was used after close(); make a new one");
    return *entry_.watched;
  }

  /// Does not wait. The watchdog may destroy the group at any time after it. Returns its number.
  std::uint64_t release() {
    const auto was = std::exchange(entry_, {});
    if (was.watched != nullptr) {
      was.watched->release();
      watchdog_->wake();
    }
    return was.number;
  }

 private:
  std::shared_ptr<Watchdog<NcclGroup>> watchdog_;
  Watchdog<NcclGroup>::Entry entry_;
};

}  // namespace shardwise::detail::nccl
