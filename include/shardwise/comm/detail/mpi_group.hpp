#pragma once
// A group of ranks that are processes, and exchanges of blocks in pieces that are small enough for
// MPI's counts.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mpi_agreement.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_messages.hpp"
#include "shardwise/comm/detail/mpi_world.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::mpi {

/// `count` elements that are sent to another rank or received from it.
struct Block {
  std::byte* data = nullptr;
  std::size_t count = 0;
};

class MpiGroup {
 public:
  /// A collective of `comm`.
  MpiGroup(std::shared_ptr<const MpiWorld> world, OwnComm comm, std::vector<int> world_ranks)
      : world_(std::move(world)),
        comm_(std::move(comm)),
        world_ranks_(std::move(world_ranks)),
        rank_(comm_.rank()),
        size_(comm_.size()),
        outgoing_(ranks()),
        incoming_(ranks()),
        requests_(2 * ranks()),
        counts_(ranks()),
        displacements_(ranks()),
        shares_(ranks()),
        pointers_(ranks() * sizeof(void*)),
        agreement_(world_->channel ? std::make_unique<Agreement>(world_->channel, comm_.get(),
                                                                 world_ranks_, rank_)
                                   : nullptr),
        messages_(world_, comm_, world_ranks_, agreement_.get()) {}
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  const std::shared_ptr<const MpiWorld>& world() const { return world_; }
  MPI_Comm comm() const { return comm_.get(); }
  int rank() const { return rank_; }
  int size() const { return size_; }
  int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }
  bool checks_arguments() const { return world_->checks_arguments; }

  /// Returns if all ranks are about to make this call, or if calls are not compared.
  void agree(const Call& call) {
    if (agreement_) agreement_->agree(call);
  }
  void agree_on_blocks(std::span<const std::size_t> sent, std::span<const std::size_t> received) {
    if (agreement_) agreement_->agree_on_blocks(sent, received);
  }

  /// Whether one call of MPI can have a buffer of so many elements, cut into blocks.
  bool fits(std::size_t elements) const { return elements <= world_->largest_piece; }

  template <class T>
  MPI_Datatype type() const {
    return world_->types.of(dtype_v<T>);
  }

  /// The blocks that the next exchange sends to each rank, and those that it receives. All are
  /// empty after it. The block of this rank itself is ignored.
  std::span<Block> outgoing() { return outgoing_; }
  std::span<Block> incoming() { return incoming_; }

  /// Sends and receives the blocks, piece by piece. The two ranks of a block agree on its size and
  /// so on its pieces; other ranks do not need to know them.
  void exchange(Dtype dtype) {
    outgoing_[index(rank_)] = incoming_[index(rank_)] = {};
    bool more = true;
    for (std::size_t done = 0; more; done += world_->largest_piece) {
      more = false;
      int pending = 0;
      for (int step = 1; step < size_; ++step) {  // no two ranks begin with the same partner
        const int from = (rank_ + size_ - step) % size_;
        const int to = (rank_ + step) % size_;
        pending += start_piece(false, incoming_[index(from)], done, dtype, from, pending, more);
        pending += start_piece(true, outgoing_[index(to)], done, dtype, to, pending, more);
      }
      wait_all(std::span(requests_).first(index(pending)));
    }
    std::fill(outgoing_.begin(), outgoing_.end(), Block{});
    std::fill(incoming_.begin(), incoming_.end(), Block{});
  }

  /// Counts and displacements of contiguous blocks, as MPI takes them. Valid until the next call.
  struct Displacements {
    const int* counts;
    const int* displacements;
  };
  Displacements displacements(std::span<const std::size_t> counts) {
    int offset = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) {
      counts_[r] = static_cast<int>(counts[r]);
      displacements_[r] = offset;
      offset += counts_[r];
    }
    return {counts_.data(), displacements_.data()};
  }

  /// The counts of `elements` elements that are divided evenly. Valid until the next call.
  std::span<const std::size_t> shares(std::size_t elements) {
    for (std::size_t r = 0; r < ranks(); ++r)
      shares_[r] = elements / ranks() + (r < elements % ranks() ? 1 : 0);
    return shares_;
  }

  /// Memory for `elements` elements of any content, valid until the next call. It only grows.
  template <class T>
  T* scratch(std::size_t elements) {
    if (scratch_.size() < elements * sizeof(T)) {
      scratch_.clear();  // so that resize copies nothing
      scratch_.resize(elements * sizeof(T));
    }
    return reinterpret_cast<T*>(scratch_.data());
  }

  /// One pointer a rank, to be set by the caller.
  template <class T>
  std::span<const T*> pointers() {
    auto* const first = reinterpret_cast<const T**>(pointers_.data());
    for (std::size_t r = 0; r < ranks(); ++r) ::new (first + r) const T*(nullptr);
    return {first, ranks()};
  }

  Messages& messages() { return messages_; }

 private:
  static constexpr int block_tag = 0;

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t ranks() const { return index(size_); }

  /// Starts the piece of `block` that begins at element `done`, if there is one, and returns how
  /// many were started. `more` becomes true if another piece follows.
  int start_piece(bool sends, const Block& block, std::size_t done, Dtype dtype, int partner,
                  int pending, bool& more) {
    if (block.count <= done) return 0;
    const std::size_t piece = std::min(world_->largest_piece, block.count - done);
    more |= done + piece < block.count;
    std::byte* const data = block.data + done * size_of(dtype);
    const int count = static_cast<int>(piece);
    const MPI_Datatype type = world_->types.of(dtype);
    MPI_Request* const request = &requests_[index(pending)];
    if (sends)
      check(MPI_Isend(data, count, type, partner, block_tag, comm(), request), "MPI_Isend");
    else
      check(MPI_Irecv(data, count, type, partner, block_tag, comm(), request), "MPI_Irecv");
    return 1;
  }

  std::shared_ptr<const MpiWorld> world_;
  OwnComm comm_;
  std::vector<int> world_ranks_;
  int rank_;
  int size_;
  std::vector<Block> outgoing_;
  std::vector<Block> incoming_;
  std::vector<MPI_Request> requests_;
  std::vector<int> counts_;
  std::vector<int> displacements_;
  std::vector<std::size_t> shares_;
  std::vector<std::byte> pointers_;
  std::vector<std::byte> scratch_;
  std::unique_ptr<Agreement> agreement_;
  Messages messages_;
};

}  // namespace shardwise::detail::mpi
