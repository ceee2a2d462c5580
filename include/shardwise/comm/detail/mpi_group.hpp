#pragma once
// A group of ranks that are processes, and what their collectives use again and again.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mpi_agreement.hpp"
#include "shardwise/comm/detail/mpi_begun_sum.hpp"
#include "shardwise/comm/detail/mpi_exchange.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_messages.hpp"
#include "shardwise/comm/detail/mpi_world.hpp"
#include "shardwise/comm/moves.hpp"

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
        shares_(ranks()),
        pointers_(ranks() * sizeof(void*)),
        agreement_(world_->channel ? std::make_unique<Agreement>(world_->channel, exchange_,
                                                                 world_ranks_, rank_)
                                   : nullptr),
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
  /// compared. Waits for the sums that are under way before, and throws the errors of these.
  void agree(const Call& call) {
    finish_sums(exchange_.number());
    exchange_.begin(call);
    if (agreement_) agreement_->agree(call);
  }
  void agree_on_blocks(std::span<const std::size_t> sent, std::span<const std::size_t> received) {
    if (agreement_) agreement_->agree_on_blocks(sent, received);
  }

  /// Begins a sum in a group in which each rank exchanges with each. Its memory is used again when
  /// it is done.
  template <class T>
  BegunSum& begin_sum(const Call& call, const moves::AllReduce<T>& m) {
    exchange_.begin(call);
    const auto idle = std::ranges::find_if(sums_, [](const auto& sum) { return sum->is_idle(); });
    BegunSum& sum =
        idle != sums_.end()
            ? **idle
            : *sums_.emplace_back(std::make_unique<BegunSum>(exchange_, agreement_.get()));
    sum.begin(call, m);
    return sum;
  }

  /// Waits for the sums up to the collective with this number, in their order, which is the same on
  /// all ranks: those that differ between ranks are followed by further calls of all.
  /// throws   the error of the first one that has one; later ones are then still under way
  void finish_sums(std::uint64_t last) {
    const auto number = [&](const std::unique_ptr<BegunSum>& sum) {
      return sum->is_idle() || sum->number() > last ? UINT64_MAX : sum->number();
    };
    while (true) {
      const auto next = std::ranges::min_element(sums_, {}, number);
      if (next == sums_.end() || number(*next) == UINT64_MAX) return;
      (*next)->finish();
    }
  }

  Exchange& exchange() { return exchange_; }

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
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t ranks() const { return index(size_); }

  std::shared_ptr<const MpiWorld> world_;
  OwnComm comm_;
  std::vector<int> world_ranks_;
  int rank_;
  int size_;
  Exchange exchange_;
  std::vector<std::size_t> shares_;
  std::vector<std::byte> pointers_;
  std::vector<std::byte> scratch_;
  std::unique_ptr<Agreement> agreement_;
  std::vector<std::unique_ptr<BegunSum>> sums_{};
  Messages messages_;
};

}  // namespace shardwise::detail::mpi
