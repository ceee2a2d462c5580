#pragma once
// A communicator without direct reads of a peer's memory, such as MPI's: redistributions on it have
// to pack.

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/comm/thread_communicator.hpp"

namespace testing {

/// Forwards what the contract of `Communicator` asks for, and nothing else.
template <class Inner>
class PlainCommunicator {
  template <class T>
  using In = std::type_identity_t<std::span<const T>>;
  using Counts = std::span<const std::size_t>;
  using Reduction = shardwise::Reduction;

 public:
  explicit PlainCommunicator(Inner inner) : inner_(std::move(inner)) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }

  template <shardwise::Element T>
  void all_reduce(In<T> in, std::span<T> out, Reduction reduction = Reduction::sum) {
    inner_.all_reduce(in, out, reduction);
  }
  template <shardwise::Element T>
  void all_gather(In<T> in, std::span<T> out, Counts counts) {
    inner_.all_gather(in, out, counts);
  }
  template <shardwise::Element T>
  void reduce_scatter(In<T> in, std::span<T> out, Counts counts,
                      Reduction reduction = Reduction::sum) {
    inner_.reduce_scatter(in, out, counts, reduction);
  }
  template <shardwise::Element T>
  void broadcast(std::span<T> data, int root) {
    inner_.broadcast(data, root);
  }
  template <shardwise::Element T>
  void gather(In<T> in, std::span<T> out, Counts counts, int root) {
    inner_.gather(in, out, counts, root);
  }
  template <shardwise::Element T>
  void scatter(In<T> in, std::span<T> out, Counts counts, int root) {
    inner_.scatter(in, out, counts, root);
  }
  template <shardwise::Element T>
  void all_to_all(In<T> in, Counts sent, std::span<T> out, Counts received) {
    inner_.all_to_all(in, sent, out, received);
  }
  template <shardwise::Element T>
  void send(std::span<const T> data, int to, int tag = 0) {
    inner_.send(data, to, tag);
  }
  template <shardwise::Element T>
  void receive(std::span<T> data, int from, int tag = 0) {
    inner_.receive(data, from, tag);
  }
  void barrier() { inner_.barrier(); }
  PlainCommunicator split(int color, int key) {
    return PlainCommunicator(inner_.split(color, key));
  }

 private:
  Inner inner_;
};

static_assert(shardwise::Communicator<PlainCommunicator<shardwise::ThreadCommunicator>>);
static_assert(!shardwise::ReadsPeers<PlainCommunicator<shardwise::ThreadCommunicator>>);
static_assert(shardwise::ReadsPeers<shardwise::ThreadCommunicator>);

}  // namespace testing
