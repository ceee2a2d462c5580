#pragma once
// How processes meet that have no communicator yet: each lays down a card, and each sees all cards.
//
// A card is what the ranks must tell each other before a library can connect them. NcclCommunicator
// writes onto it, besides the machine and the GPU of the rank, NCCL's unique id, and takes rank
// 0's.

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

/// What a rank shows to all others, in bytes; who uses it says what they mean.
using Card = std::array<std::byte, 256>;

/// Options of a rendezvous, the same on all ranks.
struct RendezvousOptions {
  /// What only the processes of this job know, of at most 256 bytes. Whoever comes with another one
  /// is refused. It goes over the wire, and into files, as it is: it keeps strangers and mistakes
  /// away, not somebody who can read the network or the folder.
  std::string token;
  /// How long a rank waits for the others.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

/// A place where P ranks meet:
///
///     file_rendezvous.hpp    a folder that all of them see
///     tcp_rendezvous.hpp     an address of rank 0's machine
///     OverCommunicator       a communicator for memory of the host: threads, processes of MPI
///
/// meet() is called by every rank and returns P cards in rank order, or throws. It has a time-out
/// of its own. The same ranks may meet again at the same place.
template <class R>
concept Rendezvous = requires(R& place, const R& constant, const Card& mine) {
  { constant.rank() } -> std::same_as<int>;
  { constant.size() } -> std::same_as<int>;
  { place.meet(mine) } -> std::same_as<std::vector<Card>>;
};

/// The ranks of a communicator for host memory, which must live as long. Waits as long as it does.
template <Communicator C>
class OverCommunicator {
 public:
  ///@{
  /// As `Rendezvous` says, by one all-gather.
  explicit OverCommunicator(C& ranks) : ranks_(ranks) {}

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }

  std::vector<Card> meet(const Card& mine) {
    const auto ranks = static_cast<std::size_t>(size());
    std::vector<Card> all(ranks);
    const std::vector<std::size_t> counts(ranks, sizeof(Card));
    ranks_.all_gather(std::span(reinterpret_cast<const std::uint8_t*>(mine.data()), sizeof(Card)),
                      std::span(reinterpret_cast<std::uint8_t*>(all.data()), ranks * sizeof(Card)),
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
