#pragma once
// A thread that looks after what may have to be given up, and that nobody has to wait for.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// What comes of a look at a ward.
enum class Look { stays, failed, gone };

/// Looks at all its wards about once in every `period`, from one thread. A ward is
///
///     Look look(time_point now)           `failed` once, when it has to be given up;
///                                         `gone` when nobody needs it any more
///     std::string reason() const          why it failed
///     void fail(const std::string& why)   another ward has failed, and this one with it
///     static void abort(std::span<const std::unique_ptr<Ward>> all)   gives all up together
///
/// None of these may throw. Wards belong to the thread, which is the only one to destroy them: so
/// work that takes long, or never ends, holds up nobody else. It runs while there are wards.
template <class Ward>
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Watchdog(std::chrono::milliseconds period) : board_(std::make_shared<Board>(period)) {}

  /// The ward stays there until its look() says `gone`.
  /// throws  memory_error if no thread can be started
  Ward* add(std::unique_ptr<Ward> ward) {
    Ward* const added = ward.get();
    const std::lock_guard lock(board_->mutex);
    board_->present.reserve(board_->present.size() + 1);
    board_->arrived.reserve(board_->arrived.size() + 1);
    if (!board_->is_running) {
      try {
        std::thread(&Watchdog::run, board_).detach();
      } catch (const std::system_error& e) {
        throw memory_error({"watchdog: the system could not start its thread: ", e.what()});
      }
    }
    board_->is_running = true;
    board_->present.push_back(added);
    board_->arrived.push_back(std::move(ward));
    return added;
  }

  /// Looks at once.
  void wake() const {
    const std::lock_guard lock(board_->mutex);
    board_->is_awake = true;
    board_->changed.notify_all();
  }

  /// Whether the ward was gone within that time. It need not be there any more.
  bool wait_until_gone(const Ward* ward, std::chrono::milliseconds time) const {
    std::unique_lock lock(board_->mutex);
    return board_->changed.wait_for(lock, time, [&] {
      return std::find(board_->present.begin(), board_->present.end(), ward) ==
             board_->present.end();
    });
  }

  /// Whether a ward has failed, and all that were there with it.
  bool has_given_up() const {
    const std::lock_guard lock(board_->mutex);
    return board_->has_given_up;
  }

 private:
  struct Board {
    explicit Board(std::chrono::milliseconds time) : period(time) {}

    const std::chrono::milliseconds period;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::unique_ptr<Ward>> arrived;  ///< what the thread has not taken over yet
    std::vector<const Ward*> present;            ///< all of them
    bool is_running = false;
    bool is_awake = false;
    bool has_given_up = false;
  };

  static void run(const std::shared_ptr<Board> board) noexcept {
    std::vector<std::unique_ptr<Ward>> wards;
    while (take_arrived(*board, wards)) {
      look_at(*board, wards);
      std::unique_lock lock(board->mutex);
      board->changed.wait_for(lock, board->period, [&] { return board->is_awake; });
      board->is_awake = false;
    }
  }

  /// False when there is nothing to look at: then the thread ends.
  static bool take_arrived(Board& board, std::vector<std::unique_ptr<Ward>>& wards) {
    const std::lock_guard lock(board.mutex);
    for (std::unique_ptr<Ward>& ward : board.arrived) wards.push_back(std::move(ward));
    board.arrived.clear();
    board.is_running = !wards.empty();
    return board.is_running;
  }

  static void look_at(Board& board, std::vector<std::unique_ptr<Ward>>& wards) {
    std::string why;
    bool one_failed = false;
    for (std::unique_ptr<Ward>& ward : wards) {
      const Look look = ward->look(Clock::now());
      if (look == Look::failed && !std::exchange(one_failed, true)) why = ward->reason();
      if (look == Look::gone) destroy(board, ward);
    }
    std::erase(wards, nullptr);
    if (!one_failed) return;
    note_failure(board);
    for (const std::unique_ptr<Ward>& ward : wards) ward->fail(why);
    Ward::abort(wards);
  }

  static void note_failure(Board& board) {
    const std::lock_guard lock(board.mutex);
    board.has_given_up = true;
  }

  static void destroy(Board& board, std::unique_ptr<Ward>& ward) {
    const Ward* const was = ward.get();
    ward.reset();
    const std::lock_guard lock(board.mutex);
    std::erase(board.present, was);
    board.changed.notify_all();
  }

  std::shared_ptr<Board> board_;
};

}  // namespace shardwise::detail
