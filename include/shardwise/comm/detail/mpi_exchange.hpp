#pragma once
// Exchanges of blocks between the ranks of a group, in pieces that are small enough for MPI's
// counts. All collectives are made of them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <type_traits>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_transfers.hpp"
#include "shardwise/comm/detail/mpi_wait.hpp"
#include "shardwise/comm/detail/mpi_world.hpp"
#include "shardwise/comm/detail/sum_tree.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::mpi {

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
        incoming_(world_ranks.size()),
        transfers_(size_) {}
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
  MessageWait wait() const { return wait_in(call_, number_); }
  /// A wait of this rank in another collective.
  MessageWait wait_in(const Call& call, std::uint64_t number) const {
    MessageWait wait = wait_for_message(call);
    wait.place.number = number;
    wait.is_for_others_too = !is_direct();
    return wait;
  }
  /// A wait of this rank for a message of another one.
  MessageWait wait_for_message(const Call& call) const {
    return {world_rank(), world_.timeout, {&call, 0, world_ranks_}};
  }

  /// Whether each rank exchanges with each.
  bool is_direct() const { return size_ <= direct_ranks; }

  /// This rank in the group.
  Place place() const { return {rank_, size_}; }
  /// This rank of the world.
  int world_rank() const { return world_ranks_[index(rank_)]; }
  std::span<const int> world_ranks() const { return world_ranks_; }

  /// Begins the messages of some transfers, each in pieces of as many elements as MPI can count.
  /// The blocks have to stay until they are done.
  void start(Transfers& transfers, Dtype dtype, int tag) const {
    const MPI_Datatype type = world_.types.of(dtype);
    transfers.start_each([&](bool is_sent, int partner, const Block& block) {
      for (std::size_t done = 0, piece = 0; done < block.count; done += piece) {
        piece = std::min(world_.largest_piece, block.count - done);
        std::byte* const data = block.data + done * size_of(dtype);
        MPI_Request* const request = transfers.add_message(world_ranks_[index(partner)]);
        const int count = static_cast<int>(piece);
        if (is_sent)
          check(MPI_Isend(data, count, type, partner, tag, comm_.get(), request), "MPI_Isend");
        else
          check(MPI_Irecv(data, count, type, partner, tag, comm_.get(), request), "MPI_Irecv");
      }
    });
  }

  /// For after a call that has failed on this rank: others may still send what belongs to it.
  void keep_communicator() { comm_.keep(); }

  /// The blocks that the next exchange sends to each rank, and those that it receives. All are
  /// empty after it. The block of this rank itself is ignored.
  std::span<Block> outgoing() { return outgoing_; }
  std::span<Block> incoming() { return incoming_; }

  /// Sends and receives the blocks.
  void run(Dtype dtype) {
    for_each_partner(place(), [&](int from, int to) {
      transfers_.receive(from, incoming_[index(from)]);
      transfers_.send(to, outgoing_[index(to)]);
    });
    std::fill(outgoing_.begin(), outgoing_.end(), Block{});
    std::fill(incoming_.begin(), incoming_.end(), Block{});
    run_transfers(dtype);
  }

  /// For further blocks that are sent and received by run_transfers().
  Transfers& transfers() { return transfers_; }

  /// Makes the transfers. Ends the job if it fails while MPI may still write to the blocks.
  void run_transfers(Dtype dtype) try {
    start(transfers_, dtype, block_tag);
    transfers_.wait(wait());
  } catch (const std::exception& error) {
    transfers_.give_up(world_rank(), error);
    keep_communicator();
    throw;
  }

  /// `all` gets `mine` of all ranks, in rank order.
  template <class T>
  void gather(const T& mine, std::vector<T>& all) {
    static_assert(std::is_trivially_copyable_v<T>);
    all.resize(index(size_));
    gather_bytes(&mine, all.data(), sizeof mine);
  }
  /// Every rank gets the `bytes` bytes at `mine` of all ranks, in rank order.
  void gather_bytes(const void* mine, void* all, std::size_t bytes) {
    auto* const blocks = static_cast<std::byte*>(all);
    std::copy_n(static_cast<const std::byte*>(mine), bytes, blocks + index(rank_) * bytes);
    for (int number = 0; number < gather_rounds(size_); ++number) {
      add_gather_round(transfers_, place(), number, [&](int begin, int end) {
        return Block{blocks + index(begin) * bytes, index(end - begin) * bytes};
      });
      run_transfers(Dtype::uint8);
    }
  }

 private:
  static constexpr int block_tag = 0;

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  const MpiWorld& world_;
  OwnComm& comm_;
  std::span<const int> world_ranks_;
  int rank_;
  int size_;
  Call call_{Operation::split};  // until the first call
  std::uint64_t number_ = 0;
  std::vector<Block> outgoing_;
  std::vector<Block> incoming_;
  Transfers transfers_;
};

}  // namespace shardwise::detail::mpi
