#pragma once
// A group of ranks that are processes, and what their collectives use again and again.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mpi_agreement.hpp"
#include "shardwise/comm/detail/mpi_begun_collective.hpp"
#include "shardwise/comm/detail/mpi_block_agreement.hpp"
#include "shardwise/comm/detail/mpi_exchange.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_messages.hpp"
#include "shardwise/comm/detail/mpi_rounds.hpp"
#include "shardwise/comm/detail/mpi_world.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::mpi {

class MpiGroup {
 public:
  /// A collective of `comm`.
  MpiGroup(std::shared_ptr<const MpiWorld> world, OwnComm comm, std::vector<int> world_ranks)
      : world_(std::move(world)),
        comm_(std::move(comm)),
        world_ranks_(std::move(world_ranks)),
        rank_(comm_.rank()),
        size_(comm_.size()),
        exchange_(*world_, comm_, world_ranks_),
        rounds_(exchange_.place()),
        shares_(world_ranks_.size()),
        bytes_(world_ranks_.size()),
        agreement_(world_->channel
                       ? std::make_unique<Agreement>(world_->channel, exchange_, world_ranks_)
                       : nullptr),
        blocks_(exchange_),
        messages_(world_, comm_, world_ranks_, exchange_, agreement_.get()) {}
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  const std::shared_ptr<const MpiWorld>& world() const { return world_; }
  MPI_Comm comm() const { return comm_.get(); }
  int rank() const { return rank_; }
  int size() const { return size_; }
  int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }
  bool checks_arguments() const { return world_->checks_arguments; }

  /// A collective begins. Returns if all ranks are about to make this call, or if calls are not
  /// compared. Waits for the collectives that are under way before, and throws their errors.
  void agree(const Call& call) {
    finish_begun(exchange_.number());
    exchange_.begin(call);
    if (agreement_) agreement_->agree(call);
  }
  void agree_on_blocks(std::span<const std::size_t> sent, std::span<const std::size_t> received) {
    if (agreement_) blocks_.agree(sent, received);
  }

  /// Makes a collective that goes in Rounds, and waits for it.
  template <class Move>
  void make(const Move& m) {
    rounds_.begin(m);
    while (rounds_.next(exchange_.transfers())) exchange_.run_transfers(rounds_.dtype());
  }

  /// A byte from each rank to all others.
  void barrier() {
    const std::uint8_t mine = 0;
    exchange_.gather_bytes(&mine, bytes_.data(), sizeof mine);
  }

  /// Begins such a collective. Its memory is used again when it is done. Waits for the one that has
  /// its tag, if as many are under way as there are tags.
  template <class Move>
  BegunCollective& begin(const Call& call, const Move& m) {
    if (exchange_.number() >= BegunCollective::most_under_way)
      finish_begun(exchange_.number() + 1 - BegunCollective::most_under_way);
    const auto idle = std::ranges::find_if(begun_, [](const auto& one) { return one->is_idle(); });
    BegunCollective& begun =
        idle != begun_.end()
            ? **idle
            : *begun_.emplace_back(std::make_unique<BegunCollective>(exchange_, agreement_.get()));
    begun.begin(call, m);
    return begun;
  }

  /// Waits for those up to the collective with this number, in their order, which is the same on
  /// all ranks: those that differ between ranks are followed by further calls of all.
  /// throws   the error of the first one that has one; later ones are then still under way
  void finish_begun(std::uint64_t last) {
    const auto number = [&](const std::unique_ptr<BegunCollective>& one) {
      return one->is_idle() || one->number() > last ? UINT64_MAX : one->number();
    };
    while (true) {
      const auto next = std::ranges::min_element(begun_, {}, number);
      if (next == begun_.end() || number(*next) == UINT64_MAX) return;
      (*next)->finish();
    }
  }

  Exchange& exchange() { return exchange_; }

  /// The counts of `elements` elements that are divided evenly. Valid until the next call.
  std::span<const std::size_t> shares(std::size_t elements) {
    for (std::size_t r = 0; r < shares_.size(); ++r)
      shares_[r] = block_of(elements, {static_cast<int>(r), size_}).size;
    return shares_;
  }

  Messages& messages() { return messages_; }

 private:
  std::shared_ptr<const MpiWorld> world_;
  OwnComm comm_;
  std::vector<int> world_ranks_;
  int rank_;
  int size_;
  Exchange exchange_;
  Rounds rounds_;
  std::vector<std::size_t> shares_;
  std::vector<std::uint8_t> bytes_;  // of barriers
  std::unique_ptr<Agreement> agreement_;
  BlockAgreement blocks_;
  std::vector<std::unique_ptr<BegunCollective>> begun_{};
  Messages messages_;
};

}  // namespace shardwise::detail::mpi
