#pragma once
// How processes that have no communicator yet exchange data: each gives a payload and gets those of
// all ranks.
//
// The payload is what ranks must know of each other before a library can connect them. For
// NcclCommunicator it holds the machine and the GPU of the rank, and the unique id of NCCL, of
// which that of rank 0 is used.

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardwise/comm/communicator.hpp"

namespace shardwise {

/// The data of a rank in a rendezvous: bytes whose meaning the caller defines.
using RendezvousPayload = std::array<std::byte, 256>;

/// Options of a rendezvous, the same on all ranks.
struct RendezvousOptions {
  /// A text of at most 256 bytes that only the processes of this job know. A process with another
  /// token is refused. The token goes over the wire, and into files, without encryption: it
  /// protects from mistakes and from other programs, but not from those who can read the network or
  /// the folder.
  std::string token;
  /// How long a rank waits for the others.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

/// A place where P ranks exchange their payloads:
///
///     file_rendezvous.hpp    a folder that all ranks can access
///     tcp_rendezvous.hpp     an address of rank 0's machine
///     CommunicatorRendezvous a communicator for memory of the host: threads, processes of MPI
///
/// meet() is called by every rank and returns P payloads in rank order, or throws. It has its own
/// time-out. The same ranks may meet again at the same place.
template <class R>
concept Rendezvous = requires(R& place, const R& constant, const RendezvousPayload& mine) {
  { constant.rank() } -> std::same_as<int>;
  { constant.size() } -> std::same_as<int>;
  { place.meet(mine) } -> std::same_as<std::vector<RendezvousPayload>>;
};

/// The ranks of a communicator for host memory, which has to outlive this object. Its time-out is
/// that of the communicator.
template <Communicator C>
class CommunicatorRendezvous {
 public:
  ///@{
  /// As `Rendezvous` says, by one all-gather.
  explicit CommunicatorRendezvous(C& ranks) : ranks_(ranks) {}

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }

  std::vector<RendezvousPayload> meet(const RendezvousPayload& mine) {
    const auto ranks = static_cast<std::size_t>(size());
    std::vector<RendezvousPayload> all(ranks);
    const std::vector<std::size_t> counts(ranks, sizeof(RendezvousPayload));
    ranks_.all_gather(
        std::span(reinterpret_cast<const std::uint8_t*>(mine.data()), sizeof(RendezvousPayload)),
        std::span(reinterpret_cast<std::uint8_t*>(all.data()), ranks * sizeof(RendezvousPayload)),
        counts);
    return all;
  }
  ///@}

 private:
  C& ranks_;
};

namespace detail {

/// For a list of ranks in a message: "1, 4 and 5".
inline std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace detail

}  // namespace shardwise
