#pragma once
// A handle of a group of NCCL, which belongs to a watchdog. The last handle releases the group.

#include <memory>
#include <utility>

#include "shardwise/comm/detail/nccl_group.hpp"
#include "shardwise/comm/detail/watchdog.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::nccl {

class GroupHandle {
 public:
  GroupHandle(std::shared_ptr<Watchdog<NcclGroup>> watchdog, std::unique_ptr<NcclGroup> group)
      : watchdog_(std::move(watchdog)), group_(watchdog_->add(std::move(group))) {}
  GroupHandle(const GroupHandle&) = delete;
  GroupHandle& operator=(const GroupHandle&) = delete;
  ~GroupHandle() { release(); }

  const std::shared_ptr<Watchdog<NcclGroup>>& watchdog() const { return watchdog_; }

  NcclGroup& group() const {
    if (group_ == nullptr)
      throw argument_error("NCCL: a communicator was used after close(); make a new one");
    return *group_;
  }

  /// Does not wait. The watchdog may destroy the group at any time after it, so the result is only
  /// an identifier and must not be dereferenced.
  const NcclGroup* release() {
    NcclGroup* const was = std::exchange(group_, nullptr);
    if (was != nullptr) {
      was->release();
      watchdog_->wake();
    }
    return was;
  }

 private:
  std::shared_ptr<Watchdog<NcclGroup>> watchdog_;
  NcclGroup* group_;
};

}  // namespace shardwise::detail::nccl
