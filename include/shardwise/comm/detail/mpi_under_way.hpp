#pragma once
// What a rank holds while a collective of its group is under way.

#include <cstdint>
#include <memory>
#include <utility>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mpi_begun_collective.hpp"
#include "shardwise/comm/detail/mpi_group.hpp"

namespace shardwise::detail::mpi {

/// The object of a collective that was begun, see `BeginsCollectives`.
class UnderWay {
 public:
  template <class Move>
  UnderWay(std::shared_ptr<MpiGroup> group, const Call& call, const Move& m)
      : group_(std::move(group)), begun_(&group_->begin(call, m)), number_(begun_->number()) {}
  UnderWay(UnderWay&& other) noexcept
      : group_(std::move(other.group_)),
        begun_(std::exchange(other.begun_, nullptr)),
        number_(other.number_) {}
  UnderWay& operator=(UnderWay&&) = delete;
  ~UnderWay() {
    while (is_under_way()) try {
        finish();
      } catch (...) {  // this rank already throws another error
      }
  }

  void progress() {
    if (is_under_way()) begun_->help();
  }
  void finish() {
    if (is_under_way()) group_->finish_begun(number_);
  }

 private:
  /// Not if another call of the group has waited for it.
  bool is_under_way() const {
    return begun_ != nullptr && !begun_->is_idle() && begun_->number() == number_;
  }

  std::shared_ptr<MpiGroup> group_;
  BegunCollective* begun_ = nullptr;
  std::uint64_t number_ = 0;
};

}  // namespace shardwise::detail::mpi
