#pragma once
// A communicator without direct reads of a peer's memory, such as MPI's: redistributions on it have
// to pack.

#include <utility>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/comm/thread_communicator.hpp"

namespace testing {

/// Forwards what the contract of `Communicator` asks for, and nothing else.
template <class Inner>
class PlainCommunicator : public shardwise::Collectives<PlainCommunicator<Inner>> {
 public:
  explicit PlainCommunicator(Inner inner) : inner_(std::move(inner)) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  PlainCommunicator split(int color, int key) {
    return PlainCommunicator(inner_.split(color, key));
  }

 private:
  friend shardwise::Collectives<PlainCommunicator>;

  template <class Move>
  void move(const shardwise::Call&, const Move& m) {
    m.on(inner_);
  }

  Inner inner_;
};

static_assert(shardwise::Communicator<PlainCommunicator<shardwise::ThreadCommunicator>>);
static_assert(!shardwise::ReadsPeers<PlainCommunicator<shardwise::ThreadCommunicator>>);
static_assert(shardwise::ReadsPeers<shardwise::ThreadCommunicator>);

}  // namespace testing
