#pragma once
// A collective of a group whose messages are under way while the rank computes.

#include <cstdint>
#include <exception>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mpi_agreement.hpp"
#include "shardwise/comm/detail/mpi_comparison.hpp"
#include "shardwise/comm/detail/mpi_exchange.hpp"
#include "shardwise/comm/detail/mpi_rounds.hpp"
#include "shardwise/comm/detail/mpi_transfers.hpp"
#include "shardwise/comm/detail/mpi_wait.hpp"

namespace shardwise::detail::mpi {

/// One collective that goes in Rounds: the ranks compare their calls, and then its data goes. Its
/// messages have a tag of their own, so that those of several may come in any order.
class BegunCollective final : InBackground {
 public:
  /// Those of a group that have tags of their own.
  static constexpr std::uint64_t most_under_way = 16384;

  /// All have to outlive it; `agreement` is null unless calls are compared.
  BegunCollective(Exchange& exchange, Agreement* agreement)
      : exchange_(exchange),
        agreement_(agreement),
        comparison_(agreement == nullptr ? 0 : agreement->messages()),
        rounds_(exchange.place()),
        transfers_(exchange.place().size) {}

  /// Whether it can be begun.
  bool is_idle() const { return stage_ == Stage::idle; }
  /// The number in its group of the collective that it is or was last.
  std::uint64_t number() const { return number_; }

  /// The next collective of the group. Does not wait.
  template <class Move>
  void begin(const Call& call, const Move& m) {
    rounds_.begin(m);
    call_ = call;
    if (!call.counts.empty()) call_.counts = rounds_.counts();
    exchange_.begin(call_);
    number_ = exchange_.number();
    failure_ = nullptr;
    if (agreement_ != nullptr) agreement_->begin(call_, comparison_);
    stage_ = agreement_ != nullptr ? Stage::comparing : Stage::moving;
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

  /// Waits until it is made, and throws what the collective would.
  void finish() {
    try {
      help();
      poll_until(
          [&] {
            help();
            return stage_ == Stage::done || stage_ == Stage::differing || failure_ != nullptr;
          },
          [&] { return missing(); }, wait());
      if (failure_ != nullptr) std::rethrow_exception(failure_);
    } catch (const std::exception& error) {
      give_up(error);
      throw;
    }
    const bool differs = stage_ == Stage::differing;
    end();
    if (differs) agreement_->end(call_, comparison_);
  }

 private:
  enum class Stage {
    idle,
    comparing,  ///< calls are on their way
    differing,  ///< they are not the same, or a rank has left
    moving,     ///< data is on its way
    done
  };

  /// Takes the next step if that needs no wait; returns whether it did.
  bool go_on() {
    switch (stage_) {
      case Stage::comparing:
        if (!agreement_->go_on(call_, comparison_)) return false;
        stage_ = comparison_.heard == comparison_.mine ? Stage::moving : Stage::differing;
        return true;
      case Stage::moving:
        if (!transfers_.are_done()) return false;
        if (rounds_.next(transfers_))
          exchange_.start(transfers_, rounds_.dtype(), tag());
        else
          stage_ = Stage::done;
        return true;
      default:
        return false;
    }
  }

  /// The world ranks for which it waits.
  std::vector<int> missing() {
    return stage_ == Stage::comparing ? agreement_->missing(comparison_) : transfers_.missing();
  }

  /// Ends the job if it fails while MPI may still write to the caller's memory.
  void give_up(const std::exception& error) noexcept {
    if (stage_ == Stage::comparing) {
      agreement_->abandon(comparison_, error);
    } else {
      transfers_.give_up(exchange_.world_rank(), error);
      exchange_.keep_communicator();
    }
    end();
  }

  void end() {
    leave();
    stage_ = Stage::idle;
  }

  static constexpr int first_tag = 2;  // after those of exchanges and of messages

  int tag() const { return first_tag + static_cast<int>(number_ % most_under_way); }
  MessageWait wait() const { return exchange_.wait_in(call_, number_); }

  Exchange& exchange_;
  Agreement* agreement_;
  Stage stage_ = Stage::idle;
  Call call_{};
  std::uint64_t number_ = 0;
  std::exception_ptr failure_{};
  Comparison comparison_;
  Rounds rounds_;
  Transfers transfers_;
};

}  // namespace shardwise::detail::mpi
