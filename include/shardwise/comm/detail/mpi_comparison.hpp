#pragma once
// What one rank knows and holds while the ranks of a group compare their calls.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shardwise/comm/detail/mpi_control_message.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"

namespace shardwise::detail::mpi {

/// One comparison of the calls of all ranks, which Agreement makes with so many messages in each
/// direction. It cannot be copied or moved, because MPI reads and writes it.
class Comparison {
 public:
  explicit Comparison(std::size_t messages)
      : inbox(messages),
        outbox(std::make_unique<ControlMessage[]>(messages)),
        requests(2 * messages, MPI_REQUEST_NULL) {}
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;
  ~Comparison() {
    if (is_read_) static_cast<void>(outbox.release());
  }

  ControlMessage mine{};     ///< this rank's call
  ControlMessage heard{};    ///< of the calls of all, so far
  std::uint64_t number = 0;  ///< of the comparison in its group, from 0
  std::size_t rounds = 0;    ///< that are begun

  std::vector<ControlMessage> inbox;
  std::unique_ptr<ControlMessage[]> outbox;
  std::vector<MPI_Request> requests;  ///< of the inbox, and then of the outbox

  std::span<MPI_Request> received() { return std::span(requests).first(inbox.size()); }
  std::span<MPI_Request> sent() { return std::span(requests).subspan(inbox.size()); }

  /// What this rank knows when it has heard `next` from rank `from`. That a rank has left counts
  /// more than that calls differ; of several such ranks the first one does, so that in the end all
  /// know the same.
  void hear(ControlMessage next, int from) {
    if (next.has_left()) next = ControlMessage::given_up_for(from);
    if (heard.has_given_up() && (!next.has_given_up() || heard.call.root < next.call.root)) return;
    if (next.has_given_up())
      heard = next;
    else if (next != heard)
      heard = ControlMessage(ControlMessage::differ);
  }

  /// Messages that were sent, and are not awaited. MPI mostly has its own copy of one so short;
  /// else the memory of all is never freed.
  void forget_sent() noexcept {
    for (MPI_Request& request : sent()) {
      int done = 0;
      if (request != MPI_REQUEST_NULL) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Request_free(&request);
      is_read_ = true;
    }
  }

 private:
  bool is_read_ = false;  // the outbox by MPI, also when this rank has left the group
};

}  // namespace shardwise::detail::mpi
