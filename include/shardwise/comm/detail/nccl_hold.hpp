#pragma once
// Who uses a group of NCCL, which belongs to a watchdog: the last one that refers to it lets it go.

#include <memory>
#include <utility>

#include "shardwise/comm/detail/nccl_group.hpp"
#include "shardwise/comm/detail/watchdog.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::nccl {

class Hold {
 public:
  Hold(std::shared_ptr<Watchdog<NcclGroup>> watchdog, std::unique_ptr<NcclGroup> group)
      : watchdog_(std::move(watchdog)), group_(watchdog_->add(std::move(group))) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() { let_go(); }

  const std::shared_ptr<Watchdog<NcclGroup>>& watchdog() const { return watchdog_; }

  NcclGroup& group() const {
    if (group_ == nullptr)
      throw argument_error("NCCL: a communicator was used after close(); make a new one");
    return *group_;
  }

  /// Waits for nothing. The watchdog may destroy what is returned: it is but a name from here on.
  const NcclGroup* let_go() {
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
