#pragma once
// Blocks that a rank sends to others and receives from them together.

#include <cstddef>
#include <exception>
#include <vector>

#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_wait.hpp"
#include "shardwise/comm/detail/sum_tree.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::mpi {

/// `count` elements that are sent to another rank or received from it.
struct Block {
  std::byte* data = nullptr;
  std::size_t count = 0;
};

/// Blocks that are to be sent and received, and then the messages of MPI that do it. Exchange
/// starts them. The two ranks of a block agree on its size; other ranks do not need to know it.
class Transfers {
 public:
  explicit Transfers(int ranks) {
    const auto most = 2 * static_cast<std::size_t>(ranks);
    blocks_.reserve(most);
    requests_.reserve(most);
    partners_.reserve(most);
  }

  ///@{
  /// Adds a block, if it is not empty.
  void send(int to, const Block& block) { add({true, to, block}); }
  void receive(int from, const Block& block) { add({false, from, block}); }
  ///@}

  /// Whether no block was added since they were started.
  bool empty() const { return blocks_.empty(); }

  /// Calls start(is_sent, partner, block) for the blocks in their order; there are none then.
  template <class F>
  void start_each(F start) {
    requests_.clear();
    partners_.clear();
    for (const Transfer& one : blocks_) start(one.is_sent, one.partner, one.block);
    blocks_.clear();
  }
  /// For a message with this rank of the world, which has to be started.
  MPI_Request* add_message(int world_rank) {
    partners_.push_back(world_rank);
    return &requests_.emplace_back(MPI_REQUEST_NULL);
  }

  /// Whether all messages are through, without a wait.
  bool are_done() { return mpi::are_done(requests_); }
  /// The world ranks at the other sides of those that are not.
  std::vector<int> missing() const { return missing_partners(requests_, partners_); }
  void wait(const MessageWait& wait) { wait_all(requests_, partners_, wait); }

  /// Before `error` leaves: ends the job if MPI may still write to the blocks.
  void give_up(int world_rank, const std::exception& error) noexcept {
    end_job_if_pending(requests_, world_rank, error);
    blocks_.clear();
  }

 private:
  struct Transfer {
    bool is_sent;
    int partner;
    Block block;
  };

  void add(const Transfer& one) {
    if (one.block.count > 0) blocks_.push_back(one);
  }

  std::vector<Transfer> blocks_{};
  std::vector<MPI_Request> requests_{};
  std::vector<int> partners_{};  // of the requests, as world ranks
};

/// Calls f(from, to) for all others; no two ranks begin with the same partner.
template <class F>
void for_each_partner(Place place, F f) {
  for (int step = 1; step < place.size; ++step)
    f((place.rank + place.size - step) % place.size, (place.rank + step) % place.size);
}

/// The rounds of a gather in which every rank gets the blocks of all ranks.
constexpr int gather_rounds(int ranks) { return ranks <= direct_ranks ? 1 : skip_rounds(ranks); }

/// Adds what the rank sends and receives in one of these rounds. blocks(begin, end) is the memory
/// of the blocks of these ranks; they follow each other, and the own block is there already.
template <class Blocks>
void add_gather_round(Transfers& transfers, Place place, int number, Blocks blocks) {
  if (place.size <= direct_ranks) {
    for_each_partner(place, [&](int from, int to) {
      transfers.receive(from, blocks(from, from + 1));
      transfers.send(to, blocks(place.rank, place.rank + 1));
    });
    return;
  }
  const SkipRound round = skip_round(place.rank, place.size, number);
  const auto each = [&](int first, auto add) {  // after the last block comes the first one
    const int behind = first + round.count - place.size;
    add(blocks(first, behind > 0 ? place.size : first + round.count));
    if (behind > 0) add(blocks(0, behind));
  };
  each(round.from, [&](const Block& block) { transfers.receive(round.from, block); });
  each(place.rank, [&](const Block& block) { transfers.send(round.to, block); });
}

}  // namespace shardwise::detail::mpi
