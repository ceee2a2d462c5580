#pragma once
// One rank alone: every collective is a copy, or nothing when it works in place.

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise {

/// The group of one rank. Its size is a constant, so that code which moves data can leave itself
/// out at compile time. There is nobody to send to: send and receive throw argument_error.
class SingleRank {
  template <class T>
  using In = std::type_identity_t<std::span<const T>>;
  using Counts = std::span<const std::size_t>;

 public:
  ///@{
  /// As `Communicator` says.
  static constexpr int rank() { return 0; }
  static constexpr int size() { return 1; }

  template <Element T>
  void all_reduce(In<T> in, std::span<T> out, Reduction = Reduction::sum) {
    copy(Operation::all_reduce, in, out);
  }
  template <Element T>
  void all_gather(In<T> in, std::span<T> out, Counts counts) {
    copy(Operation::all_gather, in, out, counts);
  }
  template <Element T>
  void reduce_scatter(In<T> in, std::span<T> out, Counts counts, Reduction = Reduction::sum) {
    copy(Operation::reduce_scatter, in, out, counts);
  }
  template <Element T>
  void broadcast(std::span<T>, int root) {
    detail::check_rank(Operation::broadcast, "root", root, 1);
  }
  template <Element T>
  void gather(In<T> in, std::span<T> out, Counts counts, int root) {
    detail::check_rank(Operation::gather, "root", root, 1);
    copy(Operation::gather, in, out, counts);
  }
  template <Element T>
  void scatter(In<T> in, std::span<T> out, Counts counts, int root) {
    detail::check_rank(Operation::scatter, "root", root, 1);
    copy(Operation::scatter, in, out, counts);
  }
  template <Element T>
  void all_to_all(In<T> in, Counts sent, std::span<T> out, Counts received) {
    copy(Operation::all_to_all, in, out, sent);
    copy(Operation::all_to_all, in, out, received);
  }
  template <Element T>
  void send(std::span<const T>, int to, int = 0) {
    detail::check_partner(Operation::send, "receiver", to, 0, 1);
  }
  template <Element T>
  void receive(std::span<T>, int from, int = 0) {
    detail::check_partner(Operation::receive, "sender", from, 0, 1);
  }
  void barrier() {}
  SingleRank split(int, int) { return {}; }
  ///@}

 private:
  template <class T>
  static void copy(Operation operation, std::span<const T> in, std::span<T> out, Counts counts) {
    detail::check_counts(operation, counts.size(), 1);
    detail::check_elements(operation, "the input", in.size(), counts[0]);
    copy(operation, in, out);
  }
  template <class T>
  static void copy(Operation operation, std::span<const T> in, std::span<T> out) {
    detail::check_elements(operation, "the output", out.size(), in.size());
    if (in.data() == out.data()) return;
    detail::check_overlap(operation, in, out);
    std::copy(in.begin(), in.end(), out.begin());
  }
};

static_assert(Communicator<SingleRank>);

}  // namespace shardwise
