#pragma once
// Exchanges of blocks between the ranks of a group, in pieces that are small enough for MPI's
// counts. All collectives are made of them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_wait.hpp"
#include "shardwise/comm/detail/mpi_world.hpp"
#include "shardwise/comm/detail/sum_tree.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::mpi {

/// `count` elements that are sent to another rank or received from it.
struct Block {
  std::byte* data = nullptr;
  std::size_t count = 0;
};

/// The exchanges of one rank in its group.
class Exchange {
 public:
  /// `world`, `comm` and `world_ranks` have to outlive it.
  Exchange(const MpiWorld& world, OwnComm& comm, std::span<const int> world_ranks)
      : world_(world),
        comm_(comm),
        world_ranks_(world_ranks),
        rank_(comm.rank()),
        size_(comm.size()),
        outgoing_(world_ranks.size()),
        incoming_(world_ranks.size()) {
    transfers_.reserve(2 * world_ranks.size());
    requests_.reserve(2 * world_ranks.size());
    partners_.reserve(2 * world_ranks.size());
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// A collective begins; the exchanges that follow are parts of it. `call` is copied.
  void begin(const Call& call) {
    call_ = call;
    ++number_;
  }

  /// The number of that collective, from 1 on.
  std::uint64_t number() const { return number_; }
  /// A wait in that collective.
  MessageWait wait() const {
    MessageWait wait = wait_in(call_, number_);
    wait.is_for_others_too = !is_direct();
    return wait;
  }
  /// A wait of this rank in another call; a message has no number.
  MessageWait wait_in(const Call& call, std::uint64_t number = 0) const {
    return {world_ranks_[index(rank_)], world_.timeout, {&call, number, world_ranks_}};
  }

  /// Whether each rank exchanges with each.
  bool is_direct() const { return size_ <= direct_ranks; }

  ///@{
  /// Of the group: this rank, the number of ranks, their world ranks, and the most elements of one
  /// message.
  int rank() const { return rank_; }
  int size() const { return size_; }
  std::span<const int> world_ranks() const { return world_ranks_; }
  std::size_t largest_piece() const { return world_.largest_piece; }
  ///@}

  /// Begins a message of one piece, which has to stay until `request` is done.
  void start(bool is_sent, int partner, const Block& piece, Dtype dtype, int tag,
             MPI_Request* request) const {
    const int count = static_cast<int>(piece.count);
    const MPI_Datatype type = world_.types.of(dtype);
    if (is_sent)
      check(MPI_Isend(piece.data, count, type, partner, tag, comm_.get(), request), "MPI_Isend");
    else
      check(MPI_Irecv(piece.data, count, type, partner, tag, comm_.get(), request), "MPI_Irecv");
  }

  /// For after a call that has failed on this rank: others may still send what belongs to it.
  void keep_communicator() { comm_.keep(); }

  /// The blocks that the next exchange sends to each rank, and those that it receives. All are
  /// empty after it. The block of this rank itself is ignored.
  std::span<Block> outgoing() { return outgoing_; }
  std::span<Block> incoming() { return incoming_; }

  /// Sends and receives the blocks.
  void run(Dtype dtype) {
    for (int step = 1; step < size_; ++step) {  // no two ranks begin with the same partner
      const int from = (rank_ + size_ - step) % size_;
      const int to = (rank_ + step) % size_;
      receive(from, incoming_[index(from)]);
      send(to, outgoing_[index(to)]);
    }
    std::fill(outgoing_.begin(), outgoing_.end(), Block{});
    std::fill(incoming_.begin(), incoming_.end(), Block{});
    run_transfers(dtype);
  }

  ///@{
  /// Adds a block to the next transfers.
  void send(int to, const Block& block) { transfers_.push_back({true, to, block}); }
  void receive(int from, const Block& block) { transfers_.push_back({false, from, block}); }
  ///@}

  /// Makes the transfers, piece by piece. The two ranks of a block agree on its size and so on its
  /// pieces; other ranks do not need to know them. Ends the job if it fails while MPI may still
  /// write to the blocks.
  void run_transfers(Dtype dtype) try {
    bool more = true;
    for (std::size_t done = 0; more; done += world_.largest_piece) {
      more = false;
      requests_.clear();
      partners_.clear();
      for (const Transfer& transfer : transfers_) more |= start_piece(transfer, done, dtype);
      wait_all(requests_, partners_, wait());
    }
    transfers_.clear();
  } catch (const std::exception& error) {
    end_job_if_pending(requests_, wait().rank, error);
    transfers_.clear();
    keep_communicator();
    throw;
  }

  /// Every rank gets the blocks of all ranks. Block r begins at element offset(r) of `out`, and
  /// ends where the next one begins; the own block is there already.
  template <class Offset>
  void gather(std::byte* out, Offset offset, Dtype dtype) {
    const auto blocks = [&](int begin, int end) {
      return Block{out + offset(begin) * size_of(dtype), offset(end) - offset(begin)};
    };
    if (is_direct()) {
      std::fill(outgoing_.begin(), outgoing_.end(), blocks(rank_, rank_ + 1));
      for (int r = 0; r < size_; ++r) incoming_[index(r)] = blocks(r, r + 1);
      return run(dtype);
    }
    for_each_skip(rank_, size_, [&](const SkipRound& round) {
      const auto each = [&](int first, auto add) {  // after the last block comes the first one
        const int behind = std::max(0, first + round.count - size_);
        add(blocks(first, first + round.count - behind));
        add(blocks(0, behind));
      };
      each(round.from, [&](const Block& block) { receive(round.from, block); });
      each(rank_, [&](const Block& block) { send(round.to, block); });
      run_transfers(dtype);
    });
  }

  /// Every rank gets the `bytes` bytes at `mine` of all ranks, in rank order.
  void gather_bytes(const void* mine, void* all, std::size_t bytes) {
    auto* const blocks = static_cast<std::byte*>(all);
    std::copy_n(static_cast<const std::byte*>(mine), bytes, blocks + index(rank_) * bytes);
    gather(
        blocks, [&](int rank) { return index(rank) * bytes; }, Dtype::uint8);
  }

 private:
  static constexpr int block_tag = 0;

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  /// A block that is sent to a partner or received from it.
  struct Transfer {
    bool is_sent;
    int partner;
    Block block;
  };

  /// Starts the piece of a block that begins at element `done`, if there is one, and returns
  /// whether another piece follows.
  bool start_piece(const Transfer& transfer, std::size_t done, Dtype dtype) {
    const auto& [is_sent, partner, block] = transfer;
    if (block.count <= done) return false;
    const std::size_t piece = std::min(world_.largest_piece, block.count - done);
    partners_.push_back(world_ranks_[index(partner)]);
    start(is_sent, partner, {block.data + done * size_of(dtype), piece}, dtype, block_tag,
          &requests_.emplace_back(MPI_REQUEST_NULL));
    return done + piece < block.count;
  }

  const MpiWorld& world_;
  OwnComm& comm_;
  std::span<const int> world_ranks_;
  int rank_;
  int size_;
  Call call_{Operation::split};  // until the first call
  std::uint64_t number_ = 0;
  std::vector<Block> outgoing_;
  std::vector<Block> incoming_;
  std::vector<Transfer> transfers_;
  std::vector<MPI_Request> requests_;
  std::vector<int> partners_;  // of the requests, as world ranks
};

}  // namespace shardwise::detail::mpi
