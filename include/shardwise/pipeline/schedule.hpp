#pragma once
// A pipeline schedule: what each rank of a pipeline computes in a step, and in which order.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise {

/// What each rank along a pipeline computes in a step, as a table; see `gpipe` and others for known
/// ones. The model is cut into `stages()` neighbouring ranges of layers. Rank r has the stages r,
/// r + P, r + 2P and so on, its chunks 0, 1, 2 and so on, where P is the number of ranks.
///
/// A rank receives what an action needs right before it, and sends what it gives right behind it:
/// outputs to the next stage, gradients to the stage before. `fault_in` tells whether that works.
/// Where sends wait for their receivers, see `Sends`.
///
///     PipelineSchedule schedule(2);  // GPipe of 2 ranks and 2 micro-batches
///     for (int rank = 0; rank < 2; ++rank)
///       schedule.add_rank({{forward, 0}, {forward, 1}, {backward, 0}, {backward, 1}});
class PipelineSchedule {
 public:
  /// What a rank computes for one micro-batch in one of its stages.
  enum class Work : std::uint8_t {
    forward,             ///< the stage's output
    backward,            ///< both parts of backward
    backward_input,      ///< the part of backward that gives the gradient of the stage's input
    backward_parameters  ///< the part of backward that gives the gradients of its parameters
  };

  /// One entry of a schedule.
  struct Action {
    Work work = Work::forward;  ///< what is computed
    int micro_batch = 0;        ///< for which micro-batch, counted from 0
    int chunk = 0;              ///< in which of the rank's stages, counted from 0

    friend constexpr bool operator==(const Action&, const Action&) = default;
  };

  struct Fault;
  struct Costs;
  struct Times;

  /// A schedule of a step of so many micro-batches, for ranks that have so many stages each; it has
  /// no rank yet.
  constexpr explicit PipelineSchedule(int micro_batches, int chunks = 1)
      : micro_batches_(micro_batches), chunks_(chunks) {}

  ///@{
  /// Adds the next rank, which does these actions in this order.
  constexpr void add_rank(std::span<const Action> actions) {
    for (const Action& action : actions) actions_.add(action);
    ends_.add(actions_.size());
  }
  constexpr void add_rank(std::initializer_list<Action> actions) {
    add_rank(std::span(actions.begin(), actions.size()));
  }
  ///@}

  /// The number of micro-batches of a step.
  constexpr int micro_batches() const { return micro_batches_; }
  /// The number of stages of each rank.
  constexpr int chunks() const { return chunks_; }
  /// The number of ranks.
  constexpr int ranks() const { return static_cast<int>(ends_.size()); }
  /// The number of stages of all ranks.
  constexpr int stages() const { return ranks() * chunks_; }
  /// The number of actions of all ranks.
  constexpr std::size_t actions() const { return actions_.size(); }
  /// The number of the stage that is this chunk of this rank.
  constexpr int stage(int rank, int chunk) const { return chunk * ranks() + rank; }

  /// The actions of a rank, valid as long as the schedule and until the next `add_rank`.
  constexpr std::span<const Action> of(int rank) const {
    const auto number = static_cast<std::size_t>(rank);
    const std::size_t begin = number == 0 ? 0 : ends_[number - 1];
    return {actions_.begin() + begin, ends_[number] - begin};
  }

  friend constexpr bool operator==(const PipelineSchedule&, const PipelineSchedule&) = default;

  /// The number of pairs of a chunk and a micro-batch.
  constexpr std::size_t batches_in_chunks() const { return number(chunks_, 0); }
  /// The number of such a pair, counted from 0.
  constexpr std::size_t number(int chunk, int micro_batch) const {
    return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(micro_batches_) +
           static_cast<std::size_t>(micro_batch);
  }

 private:
  int micro_batches_;
  int chunks_;
  detail::GrowingList<Action> actions_{};    // of all ranks, one after another
  detail::GrowingList<std::size_t> ends_{};  // of each rank's actions
};

/// "forward".
constexpr std::string_view name(PipelineSchedule::Work work) {
  constexpr std::string_view names[] = {"forward", "backward", "backward_input",
                                        "backward_parameters"};
  return names[static_cast<std::size_t>(work)];
}

/// "forward of micro-batch 3 in chunk 0".
inline std::string to_string(const PipelineSchedule::Action& action) {
  return detail::sentence(
      {name(action.work), " of micro-batch ", action.micro_batch, " in chunk ", action.chunk});
}

}  // namespace shardwise
