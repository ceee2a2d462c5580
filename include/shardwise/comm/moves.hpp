#pragma once
// Each operation of a communicator as an object: its buffers, their checks, and the description of
// the call for the other ranks.

#include <cstddef>
#include <span>
#include <type_traits>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail {

/// A rank's input. T is deduced from `out` only.
template <class T>
using InputOf = std::type_identity_t<std::span<const T>>;

}  // namespace shardwise::detail

/// The operations of `Communicator` with their arguments. Each has
///
///     move.check(rank, size)     the checks that rank `rank` of `size` can make alone
///     move.call(rank)            the description of the call, which the ranks compare
///     move.on(ranks)             calls the operation on any communicator
///     move.begun_on(ranks)       begins it on one that `BeginsCollectives`, if that can
namespace shardwise::moves {

/// out = the ranks' `in`, reduced.
template <class T>
struct AllReduce {
  std::span<const T> in;                 ///< the rank's summands
  std::span<T> out;                      ///< as long as `in`, and may be the same memory
  Reduction reduction = Reduction::sum;  ///< how they are combined

  ///@{
  /// As `shardwise::moves` says.
  static constexpr Operation operation = Operation::all_reduce;

  void check(int, int) const {
    detail::check_elements(operation, "the output", out.size(), in.size());
    detail::check_overlap<T>(operation, in, out, out.data());
  }
  Call call(int) const {
    return {.operation = operation,
            .dtype = dtype_v<T>,
            .reduction = reduction,
            .elements = in.size(),
            .mine = in.size()};
  }
  void on(auto& ranks) const { ranks.all_reduce(in, out, reduction); }
  auto begun_on(auto& ranks) const { return ranks.begin_all_reduce(in, out, reduction); }
  ///@}
};

/// out = the blocks of all ranks, in order.
template <class T>
struct AllGather {
  std::span<const T> in;                ///< the rank's block
  std::span<T> out;                     ///< all blocks
  std::span<const std::size_t> counts;  ///< elements of each rank's block

  ///@{
  /// As `shardwise::moves` says.
  static constexpr Operation operation = Operation::all_gather;

  void check(int rank, int size) const {
    const std::size_t begin =
        detail::check_block(operation, "the input", in.size(), counts, rank, size);
    detail::check_elements(operation, "the output", out.size(), detail::total(counts));
    detail::check_overlap<T>(operation, in, out, out.data() + begin);
  }
  Call call(int) const {
    return {.operation = operation,
            .dtype = dtype_v<T>,
            .elements = out.size(),
            .counts = counts,
            .mine = in.size()};
  }
  void on(auto& ranks) const { ranks.all_gather(in, out, counts); }
  auto begun_on(auto& ranks) const { return ranks.begin_all_gather(in, out, counts); }
  ///@}
};

/// out = the rank's block of the ranks' `in`, reduced.
template <class T>
struct ReduceScatter {
  std::span<const T> in;                 ///< the rank's summands of all blocks
  std::span<T> out;                      ///< the rank's block
  std::span<const std::size_t> counts;   ///< elements of each rank's block
  Reduction reduction = Reduction::sum;  ///< how the summands are combined

  ///@{
  /// As `shardwise::moves` says.
  static constexpr Operation operation = Operation::reduce_scatter;

  void check(int rank, int size) const {
    detail::check_block(operation, "the output", out.size(), counts, rank, size);
    detail::check_elements(operation, "the input", in.size(), detail::total(counts));
    detail::check_overlap<T>(operation, in, out);
  }
  Call call(int) const {
    return {.operation = operation,
            .dtype = dtype_v<T>,
            .reduction = reduction,
            .elements = in.size(),
            .counts = counts,
            .mine = in.size()};
  }
  void on(auto& ranks) const { ranks.reduce_scatter(in, out, counts, reduction); }
  auto begun_on(auto& ranks) const {
    return ranks.begin_reduce_scatter(in, out, counts, reduction);
  }
  ///@}
};

/// out = that of the root.
template <class T>
struct Broadcast {
  std::span<T> out;  ///< on the root it is read
  int root;          ///< the rank whose data it is

  ///@{
  /// As `shardwise::moves` says.
  static constexpr Operation operation = Operation::broadcast;

  void check(int, int size) const { detail::check_rank(operation, "root", root, size); }
  Call call(int) const {
    return {.operation = operation,
            .dtype = dtype_v<T>,
            .root = root,
            .elements = out.size(),
            .mine = out.size()};
  }
  void on(auto& ranks) const { ranks.broadcast(out, root); }
  ///@}
};

/// out = the blocks of all ranks, in order, on the root.
template <class T>
struct Gather {
  std::span<const T> in;                ///< the rank's block
  std::span<T> out;                     ///< all blocks; used on the root only
  std::span<const std::size_t> counts;  ///< elements of each rank's block
  int root;                             ///< the rank that gets them

  ///@{
  /// As `shardwise::moves` says.
  static constexpr Operation operation = Operation::gather;

  void check(int rank, int size) const {
    detail::check_rank(operation, "root", root, size);
    const std::size_t begin =
        detail::check_block(operation, "the input", in.size(), counts, rank, size);
    if (rank != root) return;
    detail::check_elements(operation, "the output", out.size(), detail::total(counts));
    detail::check_overlap<T>(operation, in, out, out.data() + begin);
  }
  Call call(int) const {
    return {.operation = operation,
            .dtype = dtype_v<T>,
            .root = root,
            .elements = detail::total(counts),
            .counts = counts,
            .mine = in.size()};
  }
  void on(auto& ranks) const { ranks.gather(in, out, counts, root); }
  ///@}
};

/// out = the rank's block of the root's `in`.
template <class T>
struct Scatter {
  std::span<const T> in;                ///< all blocks; used on the root only
  std::span<T> out;                     ///< the rank's block
  std::span<const std::size_t> counts;  ///< elements of each rank's block
  int root;                             ///< the rank that has them

  ///@{
  /// As `shardwise::moves` says.
  static constexpr Operation operation = Operation::scatter;

  void check(int rank, int size) const {
    detail::check_rank(operation, "root", root, size);
    detail::check_block(operation, "the output", out.size(), counts, rank, size);
    if (rank != root) return;
    detail::check_elements(operation, "the input", in.size(), detail::total(counts));
    detail::check_overlap<T>(operation, in, out);
  }
  Call call(int rank) const {
    return {.operation = operation,
            .dtype = dtype_v<T>,
            .root = root,
            .elements = detail::total(counts),
            .counts = counts,
            .mine = rank == root ? in.size() : 0};
  }
  void on(auto& ranks) const { ranks.scatter(in, out, counts, root); }
  ///@}
};

/// Block r of `out` = the block that rank r has for this one.
template <class T>
struct AllToAll {
  std::span<const T> in;                  ///< a block for each rank
  std::span<const std::size_t> sent;      ///< elements of these blocks
  std::span<T> out;                       ///< a block from each rank
  std::span<const std::size_t> received;  ///< elements of these blocks

  ///@{
  /// As `shardwise::moves` says.
  static constexpr Operation operation = Operation::all_to_all;

  void check(int, int size) const {
    detail::check_counts(operation, sent.size(), size);
    detail::check_counts(operation, received.size(), size);
    detail::check_elements(operation, "the input", in.size(), detail::total(sent));
    detail::check_elements(operation, "the output", out.size(), detail::total(received));
    detail::check_overlap<T>(operation, in, out);
  }
  /// Without elements and counts, which differ from rank to rank.
  Call call(int) const { return {.operation = operation, .dtype = dtype_v<T>, .mine = in.size()}; }
  void on(auto& ranks) const { ranks.all_to_all(in, sent, out, received); }
  ///@}
};

/// A message for another rank.
template <class T>
struct Send {
  std::span<const T> in;  ///< the message
  int to;                 ///< the receiver
  int tag;                ///< the same on both sides

  ///@{
  /// As `shardwise::moves` says.
  static constexpr Operation operation = Operation::send;

  void check(int rank, int size) const {
    detail::check_partner(operation, "receiver", to, rank, size);
  }
  Call call(int) const {
    return {.operation = operation,
            .dtype = dtype_v<T>,
            .root = to,
            .tag = tag,
            .elements = in.size(),
            .mine = in.size()};
  }
  void on(auto& ranks) const { ranks.send(in, to, tag); }
  ///@}
};

/// The next message of another rank.
template <class T>
struct Receive {
  std::span<T> out;  ///< memory for the message
  int from;          ///< the sender
  int tag;           ///< the same on both sides

  ///@{
  /// As `shardwise::moves` says.
  static constexpr Operation operation = Operation::receive;

  void check(int rank, int size) const {
    detail::check_partner(operation, "sender", from, rank, size);
  }
  Call call(int) const {
    return {.operation = operation,
            .dtype = dtype_v<T>,
            .root = from,
            .tag = tag,
            .elements = out.size(),
            .mine = out.size()};
  }
  void on(auto& ranks) const { ranks.receive(out, from, tag); }
  ///@}
};

/// No data: no rank continues before all have called.
struct Barrier {
  ///@{
  /// As `shardwise::moves` says.
  void check(int, int) const {}
  Call call(int) const { return {}; }
  void on(auto& ranks) const { ranks.barrier(); }
  ///@}
};

}  // namespace shardwise::moves
