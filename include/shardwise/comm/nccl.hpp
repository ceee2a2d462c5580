#pragma once
// Collectives between ranks that have an NVIDIA GPU each, over NCCL.

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/nccl_agreement.hpp"
#include "shardwise/comm/detail/nccl_connect.hpp"
#include "shardwise/comm/detail/nccl_group.hpp"
#include "shardwise/comm/detail/nccl_group_handle.hpp"
#include "shardwise/comm/detail/nccl_moves.hpp"
#include "shardwise/comm/detail/watchdog.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/nccl_options.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise {

/// A rank with its own GPU. Copies are the same rank of the same group. All buffers are memory of
/// the device (or memory that it reaches). It keeps the contract of `Communicator`, where "done"
/// means **ordered on the rank's stream**: a call returns when it is enqueued, and what is enqueued
/// on the stream after it finds its result. Only barrier, split and wait wait on the host.
///
/// A collective that is begun, see `BeginsCollectives`, uses a second stream, the communication
/// stream, which a group shares with the groups that split makes; events order the two streams. The
/// rank's stream waits for it, and for those that were begun before it, after its end. The calls of
/// all these groups run one after another, in the order in which they are made. Before you call a
/// group that was made separately, end what was begun. All calls can be captured into a CUDA graph.
/// What is begun in a capture has to end in it, and what was begun before has to end before.
///
/// NCCL differs from the contract in these points:
/// - NCCL chooses the order of a sum by size, hardware and number of ranks. Runs give the same bits
///   only if these are the same. Sums of 16-bit floats are rounded in between.
/// - max and min may lose the NaN of a rank.
/// - send copies nothing and is done when its receiver has the data. So of two ranks that send to
///   each other, one begins with receive; all_to_all does both at once. Tags are ignored.
/// - Calls that differ between ranks are not found, and end by the time-out, or give wrong numbers;
///   unless `checks` of the options or the variable SHARDWISE_CHECKS is `communicating`. Then a
///   call that differs is a collective_error on all ranks, which names all calls. For that the
///   ranks gather 40 bytes of each before a collective, and before an all_to_all its blocks in one
///   more gather for each rank; the host waits for each gather: use it to find an error. Messages
///   and captured calls are not compared.
/// - A collective that is begun equals one that is not. After an abort its finish() throws nothing:
///   the next call does.
///
/// **Failure.** A thread watches the calls. When one takes longer than the time-out, or NCCL
/// reports an error, the thread aborts this communicator and all communicators that are related to
/// it by split. That stops their kernels, and the content of their outputs is undefined. Then every
/// call throws: on this rank at once, and on others after their own time-out at the latest. The
/// error is a peer_error, or a backend_error for errors of NCCL or CUDA, with rank, call, number of
/// the call in its group, and elements. Work of the stream before a call counts towards its time. A
/// captured call is not watched, but its launches by launch_recorded are.
///
/// The destructor does not wait: the thread ends the group when its calls are done. Call close()
/// before the program ends.
class NcclCommunicator : public BeginningCollectives<NcclCommunicator> {
 public:
  /// Its collectives take memory of the rank's GPU.
  static constexpr bool takes_device_memory = true;
  /// They can be captured into a CUDA graph, see `RecordableRanks`.
  static constexpr bool can_be_recorded = true;

  /// The ranks of `ranks`, a communicator for memory of the host such as threads or MPI, become a
  /// group. Sends one all-gather over `ranks`, and does not use it later.
  /// throws  on all ranks, naming the rank, if a rank does not have its device; argument_error and
  ///         collective_error if SHARDWISE_CHECKS is no level on a rank, or ranks have different
  ///         levels of checks; also what the next constructor throws
  template <detail::nccl::HostRanks C>
  explicit NcclCommunicator(C& ranks, NcclOptions options = {});

  /// The ranks with this id, which rank 0 has from ncclGetUniqueId, become a group, and exchange
  /// their levels of checks.
  /// throws  argument_error and collective_error about levels as the constructor before
  ///         backend_error with NCCL's text if NCCL refuses, for example because two ranks use one
  ///         GPU or, from NCCL 2.23 on, because the versions differ
  ///         peer_error if the ranks do not connect in time, or if another rank has failed
  NcclCommunicator(const ncclUniqueId& id, int rank, int size, NcclOptions options = {});

  /// The processes of a launcher become a group, without another communicator: rank 0 listens at
  /// MASTER_ADDR and SHARDWISE_PORT, and the others connect there. NCCL reads the address from the
  /// variable NCCL_COMM_ID. This constructor sets it until the ranks are connected, unless you have
  /// set it. This has limits, which the other constructors do not have:
  /// - Meanwhile no other thread may read or set variables, nor make an id of NCCL.
  /// - Use one address for one group, and make smaller groups by split. NCCL shares the port
  ///   between groups, also of different jobs, so a rank may connect to the wrong one and wait.
  /// - NCCL has no secret. Each process that reaches the port can disturb the start.
  /// - Each machine needs a network interface in the subnet of the address. NCCL then uses this
  ///   interface to connect all groups of the process.
  /// - The other ranks do not learn that a rank cannot take part: they wait for the time-out. Then
  ///   end the process, because a thread of NCCL still listens on rank 0.
  /// throws  argument_error if the address or the port is not set; also what the constructor for
  ///         an id throws, with the address
  explicit NcclCommunicator(const LaunchEnvironment& launch, NcclOptions options = {});

  /// The group of `comm`, which the caller keeps and has to destroy, unless it was aborted. All its
  /// ranks call, and exchange their levels of checks as with an id.
  NcclCommunicator(ncclComm_t comm, cudaStream_t stream,
                   std::chrono::milliseconds timeout = std::chrono::seconds(60));

  ///@{
  /// As `Communicator` says.
  int rank() const { return group().rank(); }
  int size() const { return group().size(); }
  ///@}

  /// Whether ranks compare their calls.
  bool compares_calls() const { return group().compares_calls(); }

  /// The stream on which its calls are ordered. It belongs to the caller.
  cudaStream_t stream() const { return group().settings().stream; }

  /// Waits on the host. The new group has the same stream and time-out.
  NcclCommunicator split(int color, int key);

  /// As the function `gathered` says, for values of at most 256 bytes. Waits on the host.
  template <class T>
  std::vector<T> gathered(const T& mine) {
    const Call call{.operation = Operation::all_gather,
                    .elements = sizeof(T) * static_cast<std::size_t>(size())};
    detail::nccl::agree(group(), call);
    return detail::nccl::gathered(group(), call, mine);
  }

  /// Enqueues captured calls by launch() and watches them as one call. Messages name it
  /// "recorded()".
  template <class Launch>
  void launch_recorded(Launch&& launch) {
    detail::nccl::agree(group(), Call{Operation::recorded});
    group().issue_recorded(launch);
  }

  /// Waits on the host until all calls of this group so far are done; throws if it has failed.
  void wait() { group().wait(); }
  /// Throws if the group has failed. Does not wait.
  void check() const { group().check_failure(); }
  /// Waits until all calls are done, all ranks of the group have called close(), and NCCL has
  /// ended. Copies cannot be used after it. Destroy CUDA graphs with its calls before, because NCCL
  /// waits for them. Returns false if it took longer than the time-out; then NCCL was aborted.
  bool close();
  /// Aborts the group and all groups that are related to it by split.
  void abort();

 private:
  using Group = detail::nccl::NcclGroup;
  using Watchdog = detail::Watchdog<Group>;
  using GroupHandle = detail::nccl::GroupHandle;

  NcclCommunicator(std::shared_ptr<Watchdog> watchdog, std::unique_ptr<Group> group)
      : handle_(std::make_shared<GroupHandle>(std::move(watchdog), std::move(group))) {}

  static std::shared_ptr<Watchdog> new_watchdog() {
    return std::make_shared<Watchdog>(std::chrono::milliseconds(20));
  }

  Group& group() const { return handle_->group(); }

  friend Collectives<NcclCommunicator>;
  friend BeginningCollectives<NcclCommunicator>;

  template <class Move>
  auto moved(const Move& m) const {
    return
        [&m, rank = rank()](detail::nccl::Results& results, ncclComm_t comm, cudaStream_t stream) {
          detail::nccl::move({rank, results, comm, stream}, m);
        };
  }

  template <class Move>
  detail::nccl::UnderWay begin(const Call& call, const Move& m) {
    detail::nccl::agree(group(), call);
    return group().begin(call, moved(m));
  }

  template <class Move>
  void move(const Call& call, const Move& m) {
    detail::nccl::agree(group(), call);
    group().issue(call, moved(m));
  }

  ///@{
  /// Messages are not compared.
  template <class T>
  void move(const Call& call, const moves::Send<T>& m) {
    group().issue(call, moved(m));
  }
  template <class T>
  void move(const Call& call, const moves::Receive<T>& m) {
    group().issue(call, moved(m));
  }
  ///@}

  /// For an all_to_all, messages print the number of elements that this rank sends.
  template <class T>
  void move(Call call, const moves::AllToAll<T>& m) {
    detail::nccl::agree(group(), call);
    detail::nccl::agree_on_blocks(group(), call, m.sent, m.received);
    call.elements = m.in.size();
    group().issue(call, moved(m));
  }

  void move(const Call& call, const moves::Barrier&) {
    detail::nccl::agree(group(), call);
    detail::nccl::barrier(group(), call);
    wait();
  }

  std::shared_ptr<GroupHandle> handle_;
};

static_assert(detail::CollectivesGoOn<NcclCommunicator>);

template <detail::nccl::HostRanks C>
NcclCommunicator::NcclCommunicator(C& ranks, NcclOptions options)
    : NcclCommunicator(new_watchdog(), detail::nccl::connect(ranks, options)) {}

inline NcclCommunicator::NcclCommunicator(const ncclUniqueId& id, int rank, int size,
                                          NcclOptions options)
    : NcclCommunicator(new_watchdog(), detail::nccl::connect(id, rank, size, options)) {
  detail::nccl::agree_on_checks(group(), options.checks);
}

inline NcclCommunicator::NcclCommunicator(const LaunchEnvironment& launch, NcclOptions options)
    : NcclCommunicator(new_watchdog(), detail::nccl::connect(launch, options)) {
  detail::nccl::agree_on_checks(group(), options.checks);
}

inline NcclCommunicator::NcclCommunicator(ncclComm_t comm, cudaStream_t stream,
                                          std::chrono::milliseconds timeout)
    : NcclCommunicator(new_watchdog(), detail::nccl::adopt(comm, stream, timeout)) {
  detail::nccl::agree_on_checks(group(), CheckLevel::local);
}

inline NcclCommunicator NcclCommunicator::split(int color, int key) {
  const detail::nccl::SplitArguments arguments = detail::nccl::split_arguments(group(), color, key);
  Group::Settings settings = group().settings();
  settings.owns = true;
  auto made = std::make_unique<Group>(settings);
  group().split_into(*made, arguments.color, arguments.key);
  return {handle_->watchdog(), std::move(made)};
}

inline bool NcclCommunicator::close() {
  const std::chrono::milliseconds timeout = group().settings().timeout;
  const std::shared_ptr<Watchdog> watchdog = handle_->watchdog();
  wait();
  return watchdog->wait_until_finished(handle_->release(), 2 * timeout) && !watchdog->has_failed();
}

inline void NcclCommunicator::abort() {
  group().fail("abort() was called on it");
  handle_->watchdog()->wake();
}

}  // namespace shardwise
