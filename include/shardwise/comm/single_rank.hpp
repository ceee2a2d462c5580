#pragma once
// One rank alone: every collective is a copy, or nothing when it works in place.

#include <algorithm>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/communicator.hpp"

namespace shardwise {

/// The group of one rank. Its size is a constant, so that code which moves data can be left out
/// at compile time. There is no other rank: send and receive throw argument_error.
class SingleRank : public Collectives<SingleRank> {
 public:
  ///@{
  /// As `Communicator` says.
  static constexpr int rank() { return 0; }
  static constexpr int size() { return 1; }
  SingleRank split(int, int) { return {}; }
  ///@}

 private:
  friend Collectives<SingleRank>;

  template <class Move>
  static void move(const Call&, const Move& m) {
    if constexpr (requires { m.in.data() == m.out.data(); }) {
      if (m.in.data() != m.out.data()) std::copy(m.in.begin(), m.in.end(), m.out.begin());
    }
  }
};

static_assert(Communicator<SingleRank>);

}  // namespace shardwise
