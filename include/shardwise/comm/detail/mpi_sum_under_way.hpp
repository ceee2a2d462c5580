#pragma once
// What a rank holds while a sum over its group is under way.

#include <cstdint>
#include <memory>
#include <utility>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mpi_begun_sum.hpp"
#include "shardwise/comm/detail/mpi_group.hpp"
#include "shardwise/comm/detail/mpi_moves.hpp"
#include "shardwise/comm/moves.hpp"

namespace shardwise::detail::mpi {

/// The object of begin_all_reduce, see `BeginsAllReduce`.
class SumUnderWay {
 public:
  template <class T>
  SumUnderWay(std::shared_ptr<MpiGroup> group, const Call& call, const moves::AllReduce<T>& m)
      : group_(std::move(group)) {
    if (group_->exchange().is_direct()) {
      sum_ = &group_->begin_sum(call, m);
      number_ = sum_->number();
    } else {
      group_->agree(call);
      move(*group_, m);
    }
  }
  SumUnderWay(SumUnderWay&& other) noexcept
      : group_(std::move(other.group_)),
        sum_(std::exchange(other.sum_, nullptr)),
        number_(other.number_) {}
  SumUnderWay& operator=(SumUnderWay&&) = delete;
  ~SumUnderWay() {
    while (is_under_way()) try {
        finish();
      } catch (...) {  // this rank already throws another error
      }
  }

  void progress() {
    if (is_under_way()) sum_->help();
  }
  void finish() {
    if (is_under_way()) group_->finish_sums(number_);
  }

 private:
  /// Not if another call of the group has waited for it.
  bool is_under_way() const {
    return sum_ != nullptr && !sum_->is_idle() && sum_->number() == number_;
  }

  std::shared_ptr<MpiGroup> group_;
  BegunSum* sum_ = nullptr;
  std::uint64_t number_ = 0;
};

}  // namespace shardwise::detail::mpi
