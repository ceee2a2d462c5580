#pragma once
// A sum over the ranks of a group whose messages are under way while the rank computes.

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <span>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mpi_agreement.hpp"
#include "shardwise/comm/detail/mpi_exchange.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_wait.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/ordered_sum.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::mpi {

/// One all-reduce of a group in which each rank exchanges with each: the ranks compare their calls,
/// each adds a share of the elements in rank order, and all get the sums. Its messages have tags of
/// their own, so that those of several sums may come in any order.
class BegunSum final : InBackground {
 public:
  /// All have to outlive it; `agreement` is null unless calls are compared.
  BegunSum(Exchange& exchange, Agreement* agreement)
      : exchange_(exchange),
        agreement_(agreement),
        place_{exchange.rank(), exchange.size()},
        comparison_(static_cast<std::size_t>(place_.size)),
        terms_(static_cast<std::size_t>(place_.size) * sizeof(void*)) {}

  /// Whether it can be begun.
  bool is_idle() const { return stage_ == Stage::idle; }
  /// The number in its group of the collective that it is or was last.
  std::uint64_t number() const { return number_; }

  /// The collective that `exchange` has begun. Does not wait.
  template <class T>
  void begin(const Call& call, const moves::AllReduce<T>& m) {
    call_ = call;
    number_ = exchange_.number();
    in_ = reinterpret_cast<const std::byte*>(m.in.data());
    out_ = reinterpret_cast<std::byte*>(m.out.data());
    add_ = &BegunSum::add<T>;
    failure_ = nullptr;
    if (agreement_ != nullptr) agreement_->begin(call_, comparison_);
    stage_ = agreement_ != nullptr ? Stage::comparing : Stage::agreed;
    enter();
    help();
  }

  /// Goes on as far as it can without a wait.
  void help() noexcept override {
    if (failure_ != nullptr) return;
    try {
      while (go_on()) {
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  /// Waits until the sum is made, and throws what an all_reduce would.
  void finish() {
    try {
      help();
      poll_until(
          [&] {
            help();
            return stage_ == Stage::done || stage_ == Stage::differing || failure_ != nullptr;
          },
          [&] { return missing(); }, exchange_.wait_in(call_, number_));
      if (failure_ != nullptr) std::rethrow_exception(failure_);
    } catch (const std::exception& error) {
      give_up(error);
      throw;
    }
    const bool differs = stage_ == Stage::differing;
    end();
    if (differs) agreement_->end(call_, comparison_, exchange_.wait_in(call_, number_));
  }

 private:
  enum class Stage {
    idle,
    comparing,   ///< calls are on their way
    agreed,      ///< they are the same
    differing,   ///< they are not, or a rank has left
    exchanging,  ///< the other ranks' summands of this rank's share
    gathering,   ///< the sums
    done
  };

  /// Takes the next step if that needs no wait; returns whether it did.
  bool go_on() {
    switch (stage_) {
      case Stage::comparing:
        if (!are_done(comparison_.received())) {
          agreement_->throw_if_anyone_left(call_);  // who says so only once
          return false;
        }
        if (!Agreement::are_same(comparison_)) {
          agreement_->note_left(comparison_);
          stage_ = Stage::differing;
        } else if (are_done(comparison_.sent())) {
          stage_ = Stage::agreed;
        } else {
          return false;
        }
        return true;
      case Stage::agreed:
        exchange_summands();
        stage_ = Stage::exchanging;
        return true;
      case Stage::exchanging:
        if (!are_done(requests_)) return false;
        (this->*add_)();
        gather_sums();
        stage_ = Stage::gathering;
        return true;
      case Stage::gathering:
        if (!are_done(requests_)) return false;
        stage_ = Stage::done;
        return true;
      default:
        return false;
    }
  }

  void exchange_summands() {
    const std::size_t bytes = size_of(call_.dtype), mine = share(place_.rank).size;
    if (others_.size() < mine * bytes * ranks()) others_.resize(mine * bytes * ranks());
    for_each_partner([&](int from, int to) {
      post(false, from, others_.data() + index(from) * mine * bytes, mine, 0);
      post(true, to, const_cast<std::byte*>(in_) + share(to).offset * bytes, share(to).size, 0);
    });
  }

  void gather_sums() {
    const std::size_t bytes = size_of(call_.dtype);
    const Interval mine = share(place_.rank);
    for_each_partner([&](int from, int to) {
      post(false, from, out_ + share(from).offset * bytes, share(from).size, 1);
      post(true, to, out_ + mine.offset * bytes, mine.size, 1);
    });
  }

  /// Adds this rank's share, in rank order.
  template <class T>
  void add() {
    const Interval mine = share(place_.rank);
    auto* const terms = reinterpret_cast<const T**>(terms_.data());
    for (std::size_t r = 0; r < ranks(); ++r)
      terms[r] = reinterpret_cast<const T*>(others_.data()) + r * mine.size;
    terms[index(place_.rank)] = reinterpret_cast<const T*>(in_) + mine.offset;
    ordered_sum<T>(std::span<const T* const>(terms, ranks()), 0, mine.size,
                   std::array{reinterpret_cast<T*>(out_) + mine.offset}, call_.reduction);
  }

  /// f(from, to) for all others; no two ranks begin with the same partner.
  template <class F>
  void for_each_partner(F f) {
    requests_.clear();
    partners_.clear();
    for (int step = 1; step < place_.size; ++step)
      f((place_.rank + place_.size - step) % place_.size, (place_.rank + step) % place_.size);
  }

  void post(bool is_sent, int partner, std::byte* data, std::size_t count, int part) {
    const int tag = first_tag + 2 * static_cast<int>(number_ % most_under_way) + part;
    for (std::size_t first = 0; first < count;) {
      const std::size_t piece = std::min(exchange_.largest_piece(), count - first);
      partners_.push_back(exchange_.world_ranks()[index(partner)]);
      exchange_.start(is_sent, partner, {data + first * size_of(call_.dtype), piece}, call_.dtype,
                      tag, &requests_.emplace_back(MPI_REQUEST_NULL));
      first += piece;
    }
  }

  /// The world ranks for which it waits.
  std::vector<int> missing() {
    if (stage_ != Stage::comparing) return missing_partners(requests_, partners_);
    return missing_partners(comparison_.received(), exchange_.world_ranks());
  }

  /// Ends the job if it fails while MPI may still write to the caller's memory.
  void give_up(const std::exception& error) noexcept {
    if (stage_ == Stage::comparing) {
      agreement_->abandon(comparison_, error);
    } else {
      end_job_if_pending(requests_, exchange_.wait_in(call_).rank, error);
      exchange_.keep_communicator();
    }
    end();
  }

  void end() {
    leave();
    stage_ = Stage::idle;
  }

  static constexpr int first_tag = 2;  // after those of exchanges and of messages
  static constexpr std::uint64_t most_under_way = 8192;

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t ranks() const { return index(place_.size); }
  Interval share(int rank) const {
    return shardwise::block_of(call_.elements, {rank, place_.size});
  }

  Exchange& exchange_;
  Agreement* agreement_;
  Place place_;
  Stage stage_ = Stage::idle;
  Call call_{};
  std::uint64_t number_ = 0;
  const std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  void (BegunSum::*add_)() = nullptr;
  std::exception_ptr failure_{};
  Agreement::Comparison comparison_;
  std::vector<std::byte> others_{};  // the other ranks' summands; only grows
  std::vector<std::byte> terms_;     // a pointer for each rank
  std::vector<MPI_Request> requests_{};
  std::vector<int> partners_{};  // of the requests, as world ranks
};

}  // namespace shardwise::detail::mpi
