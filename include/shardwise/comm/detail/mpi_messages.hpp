#pragma once
// Messages between two ranks that are processes: sends do not wait, and receives are in order.

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mismatch.hpp"
#include "shardwise/comm/detail/mpi_agreement.hpp"
#include "shardwise/comm/detail/mpi_exchange.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_wait.hpp"
#include "shardwise/comm/detail/mpi_world.hpp"
#include "shardwise/comm/detail/reused_when_done.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::mpi {

/// The messages of one rank in its group. A message is copied when it is sent, and the copy is kept
/// until MPI has delivered it; then its memory is used again.
class Messages {
 public:
  /// `comm`, `world_ranks`, `exchange` and `agreement` have to outlive it; `agreement` is null
  /// unless calls are compared.
  Messages(std::shared_ptr<const MpiWorld> world, OwnComm& comm, std::span<const int> world_ranks,
           const Exchange& exchange, Agreement* agreement)
      : world_(std::move(world)),
        comm_(comm),
        world_ranks_(world_ranks),
        exchange_(exchange),
        agreement_(agreement) {}
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// Does not wait. The memory of messages that no rank has received is not freed, because MPI may
  /// still read it.
  ~Messages() {
    sent_.hand_over([](std::unique_ptr<Message> message) {
      if (is_finalized() || is_done(*message)) return;
      for (MPI_Request& request : message->requests)
        if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
      static_cast<void>(message.release());
    });
  }

  void send(const Call& call, std::span<const std::byte> bytes) {
    comm_.keep();  // the message may be received later, or never
    Message& message = sent_.take(is_done);
    message.requests.clear();
    message.control = ControlMessage(1, call);
    message.bytes.assign(bytes.begin(), bytes.end());
    if (agreement_ != nullptr)
      agreement_->announce(message.control, call.root,
                           &message.requests.emplace_back(MPI_REQUEST_NULL));
    for_each_piece(call.elements, [&](std::size_t first, int count) {
      check(MPI_Isend(message.bytes.data() + first * size_of(call.dtype), count,
                      world_->types.of(call.dtype), call.root, tag, comm_.get(),
                      &message.requests.emplace_back(MPI_REQUEST_NULL)),
            "MPI_Isend");
    });
  }

  /// Throws a collective_error if the next message is not the expected one, and drops it.
  void receive(const Call& call, std::span<std::byte> bytes) {
    comm_.keep();  // the message may come after this rank has given up
    if (agreement_ != nullptr) {
      const Call sent = agreement_->next_message(call);
      if (!is_same_message(sent, call)) {
        drop(sent, call.root);
        throw collective_error(
            describe_message_mismatch(world_rank(call.root), sent, world_rank(sent.root), call));
      }
    }
    for_each_piece(call.elements, [&](std::size_t first, int count) {
      if (agreement_ == nullptr) require_length(call, count);
      receive_piece(call, bytes.data() + first * size_of(call.dtype), count);
    });
  }

 private:
  static constexpr int tag = 1;

  struct Message {
    ControlMessage control;
    std::vector<std::byte> bytes;
    std::vector<MPI_Request> requests;
  };

  static bool is_done(Message& message) {
    int done = 0;
    check(MPI_Testall(static_cast<int>(message.requests.size()), message.requests.data(), &done,
                      MPI_STATUSES_IGNORE),
          "MPI_Testall");
    return done != 0;
  }

  /// Calls f(first element, elements) for each piece of a message; for an empty one too.
  template <class F>
  void for_each_piece(std::size_t elements, F f) const {
    std::size_t first = 0;
    do {
      const std::size_t piece = std::min(world_->largest_piece, elements - first);
      f(first, static_cast<int>(piece));
      first += piece;
    } while (first < elements);
  }

  /// Ends the job if it fails while MPI may still write to `bytes`.
  void receive_piece(const Call& call, std::byte* bytes, int count) const {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(bytes, count, world_->types.of(call.dtype), call.root, tag, comm_.get(),
                    &request),
          "MPI_Irecv");
    const int from = world_rank(call.root);
    const MessageWait wait = exchange_.wait_for_message(call);
    try {
      wait_all({&request, 1}, {&from, 1}, wait);
    } catch (const std::exception& error) {
      end_job_if_pending({&request, 1}, wait.rank, error);
      throw;
    }
  }

  /// Where nobody has announced the next message: waits for it, and throws a collective_error if it
  /// has not `count` elements, and drops it.
  void require_length(const Call& call, int count) const {
    MPI_Status status;
    poll_until(
        [&] {
          int is_there = 0;
          check(MPI_Iprobe(call.root, tag, comm_.get(), &is_there, &status), "MPI_Iprobe");
          return is_there != 0;
        },
        [&] { return std::vector<int>{world_rank(call.root)}; }, exchange_.wait_for_message(call));
    Call dropped = call;
    int sent = elements(status, dropped.dtype);
    if (sent == count) return;
    if (sent == MPI_UNDEFINED) {  // the last element is not whole
      dropped.dtype = Dtype::uint8;
      sent = elements(status, dropped.dtype);
    }
    if (sent != MPI_UNDEFINED) {  // more than MPI can count stay unread
      std::vector<std::byte> bytes(static_cast<std::size_t>(sent) * size_of(dropped.dtype));
      receive_piece(dropped, bytes.data(), sent);
    }
    throw collective_error(
        {"rank ", world_rank(call.root),
         " sent a message of another length than this rank called: ", call,
         "; dtype, elements and tag of a message must be the same on both sides"});
  }

  /// In a message, or MPI_UNDEFINED.
  int elements(const MPI_Status& status, Dtype dtype) const {
    int count = 0;
    check(MPI_Get_count(&status, world_->types.of(dtype), &count), "MPI_Get_count");
    return count;
  }

  void drop(const Call& sent, int from) const {
    Call call = sent;
    call.operation = Operation::receive;
    call.root = from;
    std::vector<std::byte> bytes(std::min(world_->largest_piece, sent.elements) *
                                 size_of(call.dtype));
    for_each_piece(sent.elements,
                   [&](std::size_t, int count) { receive_piece(call, bytes.data(), count); });
  }

  int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<const MpiWorld> world_;
  OwnComm& comm_;
  std::span<const int> world_ranks_;
  const Exchange& exchange_;
  Agreement* agreement_;
  ReusedWhenDone<Message> sent_;
};

}  // namespace shardwise::detail::mpi
