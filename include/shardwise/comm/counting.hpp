#pragma once
// A communicator that writes down what passes through it. It stands below the redistributions and
// knows nothing of plans and layouts, so what it says can be held against them.

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/comm/starts_all_reduce.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise {

/// One call that a rank made. `elements` is the size of the buffer that it passed in: `in` or
/// `data`, none where the contract does not look at it (scatter, except on the root).
struct CountedCall {
  Operation operation;   ///< that was called
  Dtype dtype;           ///< of its elements
  std::size_t elements;  ///< that the rank passed in

  friend bool operator==(const CountedCall&, const CountedCall&) = default;
};

/// Forwards everything to `Inner` and logs each call before it is made. Copies share one log; a
/// group made by split has a log of its own.
template <class Inner>
class CountingCommunicator {
  template <class T>
  using In = std::type_identity_t<std::span<const T>>;
  using Counts = std::span<const std::size_t>;

 public:
  /// What redistributions and models on these ranks look at: what they do on `Inner`.
  static constexpr CheckLevel check_level = check_level_of<Inner>();
  /// Whether its collectives take memory of a device: if those of `Inner` do.
  static constexpr bool takes_device_memory = requires { requires Inner::takes_device_memory; };

  /// Begins with an empty log.
  explicit CountingCommunicator(Inner inner)
      : inner_(std::move(inner)), log_(std::make_shared<std::vector<CountedCall>>()) {}

  /// The calls since the last clear(), oldest first. Valid until the next call.
  std::span<const CountedCall> log() const { return *log_; }
  /// Forgets them.
  void clear() { log_->clear(); }
  /// Room for `calls` calls, so that logging them allocates nothing.
  void reserve(std::size_t calls) { log_->reserve(calls); }

  ///@{
  /// As `Communicator` says. A call is in the log before `Inner` gets it.
  constexpr int rank() const { return inner_.rank(); }
  constexpr int size() const { return inner_.size(); }

  template <Element T>
  void all_reduce(In<T> in, std::span<T> out, Reduction reduction = Reduction::sum) {
    count<T>(Operation::all_reduce, in.size());
    inner_.all_reduce(in, out, reduction);
  }
  template <Element T>
  void all_gather(In<T> in, std::span<T> out, Counts counts) {
    count<T>(Operation::all_gather, in.size());
    inner_.all_gather(in, out, counts);
  }
  template <Element T>
  void reduce_scatter(In<T> in, std::span<T> out, Counts counts,
                      Reduction reduction = Reduction::sum) {
    count<T>(Operation::reduce_scatter, in.size());
    inner_.reduce_scatter(in, out, counts, reduction);
  }
  template <Element T>
  void broadcast(std::span<T> data, int root) {
    count<T>(Operation::broadcast, data.size());
    inner_.broadcast(data, root);
  }
  template <Element T>
  void gather(In<T> in, std::span<T> out, Counts counts, int root) {
    count<T>(Operation::gather, in.size());
    inner_.gather(in, out, counts, root);
  }
  template <Element T>
  void scatter(In<T> in, std::span<T> out, Counts counts, int root) {
    count<T>(Operation::scatter, rank() == root ? in.size() : 0);
    inner_.scatter(in, out, counts, root);
  }
  template <Element T>
  void all_to_all(In<T> in, Counts sent, std::span<T> out, Counts received) {
    count<T>(Operation::all_to_all, in.size());
    inner_.all_to_all(in, sent, out, received);
  }
  template <Element T>
  void send(std::span<const T> data, int to, int tag = 0) {
    count<T>(Operation::send, data.size());
    inner_.send(data, to, tag);
  }
  template <Element T>
  void receive(std::span<T> data, int from, int tag = 0) {
    count<T>(Operation::receive, data.size());
    inner_.receive(data, from, tag);
  }
  void barrier() {
    log_->push_back({Operation::barrier, Dtype::uint8, 0});
    inner_.barrier();
  }
  CountingCommunicator split(int color, int key) {
    log_->push_back({Operation::split, Dtype::uint8, 0});
    return CountingCommunicator(inner_.split(color, key));
  }
  ///@}

  /// As `StartsAllReduce` says, where `Inner` offers it; one all_reduce in the log.
  template <Element T>
  requires StartsAllReduce<Inner>
  [[nodiscard]] auto start_all_reduce(In<T> in, std::span<T> out) {
    count<T>(Operation::all_reduce, in.size());
    return inner_.start_all_reduce(in, out);
  }

  /// As `ReadsPeers` says, where `Inner` offers it; one entry of the call's operation.
  template <class T, class F>
  requires ReadsPeers<Inner>
  void read_peers(const Call& call, std::span<T> mine, F&& f) {
    log_->push_back({call.operation, call.dtype, mine.size()});
    inner_.read_peers(call, mine, std::forward<F>(f));
  }

 private:
  template <class T>
  void count(Operation operation, std::size_t elements) {
    log_->push_back({operation, dtype_v<T>, elements});
  }

  Inner inner_;
  std::shared_ptr<std::vector<CountedCall>> log_;
};

}  // namespace shardwise
