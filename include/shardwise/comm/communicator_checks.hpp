#pragma once
// Errors that name what a communicator lacks, before anything calls it.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/comm/communicator.hpp"

namespace shardwise::detail {

/// The error for a communicator that lacks an operation on elements of type T.
template <class C, class T>
consteval bool must_move() {
  using In = std::span<const T>;
  using Out = std::span<T>;
  using Sizes = std::span<const std::size_t>;
  constexpr bool can_all_reduce = requires(C & c, In in, Out out) {
    c.all_reduce(in, out);
    c.all_reduce(in, out, Reduction::max);
  };
  constexpr bool can_all_gather = requires(C & c, In in, Out out, Sizes counts) {
    c.all_gather(in, out, counts);
  };
  constexpr bool can_reduce_scatter = requires(C & c, In in, Out out, Sizes counts) {
    c.reduce_scatter(in, out, counts);
    c.reduce_scatter(in, out, counts, Reduction::max);
  };
  constexpr bool can_broadcast = requires(C & c, Out data, int root) { c.broadcast(data, root); };
  constexpr bool can_gather = requires(C & c, In in, Out out, Sizes counts, int root) {
    c.gather(in, out, counts, root);
  };
  constexpr bool can_scatter = requires(C & c, In in, Out out, Sizes counts, int root) {
    c.scatter(in, out, counts, root);
  };
  constexpr bool can_all_to_all = requires(C & c, In in, Out out, Sizes counts) {
    c.all_to_all(in, counts, out, counts);
  };
  constexpr bool can_send = requires(C & c, In in, int to) {
    c.send(in, to);
    c.send(in, to, 1);
  };
  constexpr bool can_receive = requires(C & c, Out out, int from) {
    c.receive(out, from);
    c.receive(out, from, 1);
  };
  static_assert(
      can_all_reduce,
      "The communicator C lacks `all_reduce(in, out, reduction = sum)` on spans of T. Write it as "
      "comm/communicator.hpp says, for every Element.");
  static_assert(can_all_gather,
                "The communicator C lacks `all_gather(in, out, counts)` on spans of T. Write it as "
                "comm/communicator.hpp says, for every Element.");
  static_assert(can_reduce_scatter,
                "The communicator C lacks `reduce_scatter(in, out, counts, reduction = sum)` on "
                "spans of T. Write it as "
                "comm/communicator.hpp says, for every Element.");
  static_assert(can_broadcast,
                "The communicator C lacks `broadcast(data, root)` on spans of T. Write it as "
                "comm/communicator.hpp says, for every Element.");
  static_assert(
      can_gather,
      "The communicator C lacks `gather(in, out, counts, root)` on spans of T. Write it as "
      "comm/communicator.hpp says, for every Element.");
  static_assert(
      can_scatter,
      "The communicator C lacks `scatter(in, out, counts, root)` on spans of T. Write it as "
      "comm/communicator.hpp says, for every Element.");
  static_assert(
      can_all_to_all,
      "The communicator C lacks `all_to_all(in, sent, out, received)` on spans of T. Write it as "
      "comm/communicator.hpp says, for every Element.");
  static_assert(can_send,
                "The communicator C lacks `send(data, to, tag = 0)` on spans of T. Write it as "
                "comm/communicator.hpp says, for every Element.");
  static_assert(
      can_receive,
      "The communicator C lacks `receive(data, from, tag = 0)` on spans of T. Write it as "
      "comm/communicator.hpp says, for every Element.");
  return true;
}

/// The error for a type that is not a communicator, one sentence for each missing member.
template <class C>
consteval bool must_be_communicator() {
  if constexpr (requires { typename C::template Linear<float>; }) {
    static_assert(Communicator<C>,
                  "C is a backend, where a Context names its communicator. The backend is second "
                  "and the communicator third: Context<float, Reference, ThreadCommunicator>.");
  } else if constexpr (!Communicator<C>) {
    static_assert(
        requires(const C& c) {
          { c.rank() } -> std::same_as<int>;
          { c.size() } -> std::same_as<int>;
        },
        "The communicator C lacks `int rank() const` or `int size() const`: which rank "
        "this is, and of how many. Write them as comm/communicator.hpp says.");
    must_move<C, float>();
    must_move<C, double>();
    must_move<C, bf16>();
    must_move<C, fp16>();
    must_move<C, std::int32_t>();
    must_move<C, std::int64_t>();
    must_move<C, std::uint8_t>();
    static_assert(
        requires(C & c) { c.barrier(); },
        "The communicator C lacks `void barrier()`: no rank returns before all have "
        "called. Write it as comm/communicator.hpp says.");
    static_assert(
        requires(C & c, int number) {
          { c.split(number, number) } -> std::same_as<C>;
        },
        "The communicator C lacks `C split(int color, int key)`, a group of the ranks with "
        "equal color. Write it as comm/communicator.hpp says.");
  }
  return true;
}

}  // namespace shardwise::detail
