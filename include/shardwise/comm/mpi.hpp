#pragma once
// Collectives between ranks that are processes, over MPI.

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/detail/mpi_control_channel.hpp"
#include "shardwise/comm/detail/mpi_group.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_moves.hpp"
#include "shardwise/comm/detail/mpi_under_way.hpp"
#include "shardwise/comm/detail/mpi_world.hpp"
#include "shardwise/comm/detail/split.hpp"
#include "shardwise/comm/detail/sum_tree.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/mpi_options.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// A rank that is a process of MPI. Copies are the same rank of the same group. It keeps the
/// contract of `Communicator`, and further:
///
/// - Sums of up to 16 ranks run in rank order, with the bits that thread ranks get: blocks are
///   exchanged, added up by `ordered_sum`, and gathered. MPI_Allreduce promises no order and knows
///   no 16-bit floats. Sums of more ranks run along a binary tree (comm/detail/sum_tree.hpp), which
///   depends on the number of ranks alone: a run repeats, all ranks get the same bits, and
///   reduce_scatter has the bits of all_reduce.
/// - A group has its own communicator of MPI, so its messages cannot reach another group.
/// - The memory of messages that no rank receives is not freed. The communicator of MPI of a group
///   in which this rank has sent or received, or in which a call has failed, is freed only when MPI
///   ends.
/// - An error of MPI is a backend_error with the text of MPI.
/// - After the first calls this library allocates nothing more; split allocates.
///
/// With checks at `communicating`, the default, calls that differ are a collective_error on every
/// rank, which names all calls, before data moves. The group can go on if every rank catches it.
/// Ranks that wait for a rank which has left the group get a peer_error. A message with another
/// dtype, tag, step or batch than its receive (comm/mark.hpp) is a collective_error on the
/// receiver, and is dropped. **Below that level** a call that is not equal on all ranks may give
/// wrong numbers, write past the end of a buffer, or wait until the time-out. At every level a
/// message of another length is a collective_error.
///
/// A rank that waits longer than the time-out for a message, because another has stopped, computes
/// without end, or waits in another group or in a receive, gets a peer_error, which names the ranks
/// that do not come; in a group of more than 16 ranks it names the one of which this rank waits to
/// hear, which may itself wait. After a tenth of that time, and at most a minute, a line on
/// standard error says the same. If an error comes while other data is on its way, MPI may still
/// write to the caller's memory: then the error is printed, and the job ends. Not limited are waits
/// inside MPI when it starts and ends and when groups are made.
///
/// Bytes on the wire, per rank, for n bytes on each of P ranks: all_reduce n(P-1) in one call up to
/// 4 KiB, and 2n(P-1)/P above; broadcast the same, the first at the root alone; all others as the
/// contract says. Checks at `communicating` add a message of 48 bytes to every other rank.
///
/// As `BeginsCollectives` says, all_reduce, reduce_scatter and all_gather can also be under way
/// while the rank computes, with the same messages.
///
/// Above 16 ranks each of these is sent in ceil(log2 P) messages instead of P-1: those of checks,
/// of all_gather (up to two for each, where the blocks of the last and the first rank meet), and of
/// sums. There all_reduce always sends 2n(P-1)/P; if P is no power of two, 2^k is the next below,
/// and a rank that shares its place in the tree sends n and receives its sums before the gather.
/// Sums are sent in accumulate_t, so those of 16-bit floats take twice the bytes: all_reduce sends
/// 3n(P-1)/P of them. They need memory for 2n in accumulate_t, which is kept. Gather, scatter,
/// all_to_all and small broadcasts are as before.
class MpiCommunicator : public BeginningCollectives<MpiCommunicator> {
 public:
  /// Bytes of the largest all_reduce in which each rank sends its whole input to all others.
  static constexpr std::size_t gathered_bytes = detail::gathered_bytes;

  /// The ranks of `comm`, which belongs to the caller; a collective. `comm` is duplicated and not
  /// used afterwards. Destroy the communicator before MPI_Finalize.
  /// throws  argument_error if MPI is not initialized, if `comm` is null or has two groups, or if
  ///         largest_piece is not from 1 to INT_MAX; on all ranks, argument_error if
  ///         SHARDWISE_CHECKS names no level on some rank, and collective_error if ranks have
  ///         different levels
  explicit MpiCommunicator(MPI_Comm comm, MpiOptions options = {});

  ///@{
  /// As `Communicator` says.
  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  MpiCommunicator split(int color, int key);
  ///@}

  /// Whether ranks compare their calls.
  bool compares_calls() const { return group_->world()->channel != nullptr; }

  /// The name that MPI gives to the machine of this rank.
  std::string machine() const;

 private:
  explicit MpiCommunicator(std::shared_ptr<detail::mpi::MpiGroup> group)
      : group_(std::move(group)) {}

  friend Collectives<MpiCommunicator>;
  friend BeginningCollectives<MpiCommunicator>;

  bool checks_arguments() const { return group_->checks_arguments(); }

  template <class Move>
  void move(const Call& call, const Move& m) {
    group_->agree(call);
    detail::mpi::move(*group_, m);
  }

  template <class T>
  void move(const Call& call, const moves::Send<T>& m) {
    group_->messages().send(call, std::as_bytes(m.in));
  }

  template <class T>
  void move(const Call& call, const moves::Receive<T>& m) {
    group_->messages().receive(call, std::as_writable_bytes(m.out));
  }

  template <class Move>
  detail::mpi::UnderWay begin(Call call, const Move& m) {
    call.operation = detail::that_begins(call.operation);
    return detail::mpi::UnderWay(group_, call, m);
  }

  std::shared_ptr<detail::mpi::MpiGroup> group_;
};

static_assert(BeginsCollectives<MpiCommunicator>);

inline MpiCommunicator::MpiCommunicator(MPI_Comm comm, MpiOptions options) {
  int running = 0;
  detail::mpi::check(MPI_Initialized(&running), "MPI_Initialized");
  if (running == 0 || detail::mpi::is_finalized())
    throw argument_error(
        "MpiCommunicator: MPI does not run; call MPI_Init before, or use run_mpi_ranks");
  if (comm == MPI_COMM_NULL)
    throw argument_error("MpiCommunicator: the communicator is MPI_COMM_NULL; give one of a group");
  int two_groups = 0;
  detail::mpi::check(MPI_Comm_test_inter(comm, &two_groups), "MPI_Comm_test_inter");
  if (two_groups != 0)
    throw argument_error(
        "MpiCommunicator: an intercommunicator has two groups; give an intracommunicator");
  if (options.largest_piece < 1 || options.largest_piece > INT_MAX)
    throw argument_error({"MpiCommunicator: largest_piece is ", options.largest_piece,
                          "; it must be 1 to ", INT_MAX});

  detail::mpi::OwnComm ours = detail::mpi::OwnComm::duplicate(comm);
  const CheckLevel checks = detail::mpi::agree_on_checks(ours, options.checks);
  const auto world = std::make_shared<detail::mpi::MpiWorld>(
      options.largest_piece, checks != CheckLevel::off,
      checks == CheckLevel::communicating
          ? std::make_shared<detail::mpi::ControlChannel>(ours.get())
          : nullptr,
      options.timeout);
  std::vector<int> all(static_cast<std::size_t>(ours.size()));
  std::iota(all.begin(), all.end(), 0);
  group_ = std::make_shared<detail::mpi::MpiGroup>(world, std::move(ours), std::move(all));
}

inline std::string MpiCommunicator::machine() const {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  detail::mpi::check(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  return {name.data(), static_cast<std::size_t>(length)};
}

/// As `Communicator` says. MPI refuses negative colors, so MPI gets the lowest world rank of
/// those with a color instead.
inline MpiCommunicator MpiCommunicator::split(int color, int key) {
  using namespace detail::mpi;
  group_->agree(Call{Operation::split});
  std::vector<detail::SplitChoice> choices(static_cast<std::size_t>(size()));
  const detail::SplitChoice mine{color, key};
  group_->exchange().gather_bytes(&mine, choices.data(), sizeof(mine));

  std::vector<int> members = detail::ranks_of_color(choices, color);
  for (int& member : members) member = group_->world_rank(member);
  const int name = *std::min_element(members.begin(), members.end());

  MPI_Comm made = MPI_COMM_NULL;
  check(MPI_Comm_split(group_->comm(), name, key, &made), "MPI_Comm_split");
  return MpiCommunicator(
      std::make_shared<MpiGroup>(group_->world(), OwnComm(made), std::move(members)));
}

}  // namespace shardwise
