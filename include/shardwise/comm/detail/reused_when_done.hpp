#pragma once
// Objects that are in use for a time that their owner does not know, and then are used again.

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "shardwise/comm/detail/ring.hpp"

namespace shardwise::detail {

/// Such as messages, until they are delivered. Most are done in the order in which they were taken,
/// so take() looks at the first of those under way. At all of them it looks only when their number
/// has doubled since: so n calls look a few times n times, however many are under way.
template <class T>
class ReusedWhenDone {
 public:
  /// An object that is done, or a new one. is_done(object) is called for those under way.
  template <class IsDone>
  T& take(const IsDone& is_done) {
    while (!under_way_.empty() && is_done(*under_way_.front())) idle_.push_back(under_way_.pop());
    if (under_way_.size() >= all_from_) look_at_all(is_done);
    if (under_way_.empty()) all_from_ = 2;
    if (idle_.empty()) idle_.push_back(std::make_unique<T>());
    under_way_.reserve_one();
    under_way_.push(std::move(idle_.back()));
    idle_.pop_back();
    return *under_way_.back();
  }

  /// Those that have been taken and may be in use, in their order; they are the caller's then.
  template <class F>
  void hand_over(const F& f) {
    while (!under_way_.empty()) f(under_way_.pop());
  }

 private:
  template <class IsDone>
  void look_at_all(const IsDone& is_done) {
    for (std::size_t left = under_way_.size(); left > 0; --left) {
      if (is_done(*under_way_.front()))
        idle_.push_back(under_way_.pop());
      else
        under_way_.push(under_way_.pop());
    }
    all_from_ = 2 * under_way_.size() + 2;
  }

  Ring<std::unique_ptr<T>> under_way_;
  std::vector<std::unique_ptr<T>> idle_;
  std::size_t all_from_ = 2;  // under way, to look at all of them
};

}  // namespace shardwise::detail
