#pragma once
// The known pipeline schedules, as tables.

#include <algorithm>
#include <span>

#include "shardwise/core/error.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/pipeline/schedule.hpp"

namespace shardwise {

namespace detail {

/// The actions of a rank.
using RankList = GrowingList<PipelineSchedule::Action>;

/// A schedule of these sizes; `add(actions, rank)` adds the actions of each rank.
/// throws   argument_error if one of them is below 1
template <class Add>
constexpr PipelineSchedule schedule_of(const char* who, int ranks, int micro_batches, int chunks,
                                       Add&& add) {
  if (ranks < 1 || micro_batches < 1 || chunks < 1)
    throw argument_error({who, ": there are ", ranks, " ranks, ", micro_batches,
                          " micro-batches and ", chunks, " chunks; each number is at least 1"});
  PipelineSchedule schedule(micro_batches, chunks);
  for (int rank = 0; rank < ranks; ++rank) {
    RankList actions;
    add(actions, rank);
    schedule.add_rank(std::span(actions.begin(), actions.size()));
  }
  return schedule;
}

/// Appends one forward and one backward in turn, after so many forwards: `forward(k)` and
/// `backward(k)` append those that are number k of `count`.
template <class Forward, class Backward>
constexpr void append_in_turn(int warm_up, int count, Forward&& forward, Backward&& backward) {
  for (int k = 0; k < count + warm_up; ++k) {
    if (k < count) forward(k);
    if (k >= warm_up) backward(k - warm_up);
  }
}

}  // namespace detail

/// All forwards, and then all backwards. Each rank keeps what forward saves of all micro-batches.
/// With equal times of all stages, ranks wait for (P-1) / (M+P-1) of the step.
/// throws   argument_error if a number is below 1
/// source   Huang et al. 2018, "GPipe"
constexpr PipelineSchedule gpipe(int ranks, int micro_batches) {
  return detail::schedule_of("gpipe", ranks, micro_batches, 1,
                             [=](detail::RankList& actions, int /*rank*/) {
                               for (int k = 0; k < micro_batches; ++k)
                                 actions.add({PipelineSchedule::Work::forward, k});
                               for (int k = 0; k < micro_batches; ++k)
                                 actions.add({PipelineSchedule::Work::backward, k});
                             });
}

/// One forward and one backward in turn (1F1B), as soon as a rank can. Ranks wait as long as with
/// `gpipe`, but rank r keeps what forward saves of at most P-r micro-batches.
/// throws   argument_error if a number is below 1
/// source   Narayanan et al. 2019, "PipeDream", with the flush of Narayanan et al. 2021
constexpr PipelineSchedule one_f_one_b(int ranks, int micro_batches) {
  return detail::schedule_of("one_f_one_b", ranks, micro_batches, 1,
                             [=](detail::RankList& actions, int rank) {
                               detail::append_in_turn(
                                   std::min(ranks - 1 - rank, micro_batches), micro_batches,
                                   [&](int k) {
                                     actions.add({PipelineSchedule::Work::forward, k});
                                   },
                                   [&](int k) {
                                     actions.add({PipelineSchedule::Work::backward, k});
                                   });
                             });
}

/// 1F1B with v stages of each rank, v = `chunks`. Ranks wait for (P-1)/v of the M + (P-1)/v times
/// of a micro-batch on a rank, for v times as many messages. Rank r keeps what forward saves of at
/// most 2(P-r-1) + (v-1)P + 1 micro-batches in a chunk.
/// throws   argument_error if a number is below 1, or if the number of micro-batches is no multiple
///          of the number of ranks
/// source   Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters
///          using Megatron-LM"
constexpr PipelineSchedule interleaved_one_f_one_b(int ranks, int micro_batches, int chunks) {
  if (ranks > 0 && micro_batches % ranks != 0)
    throw argument_error(
        {"interleaved_one_f_one_b: the number of micro-batches must be a multiple "
         "of the ",
         ranks, " ranks, but it is ", micro_batches, "; give such a number, or use one_f_one_b"});
  // Micro-batches go through all chunks in groups of one for each rank.
  const int group = ranks * chunks;
  const auto append = [=](detail::RankList& actions, PipelineSchedule::Work work, int k) {
    const int chunk = k % group / ranks;
    actions.add({work, k / group * ranks + k % ranks,
                 work == PipelineSchedule::Work::forward ? chunk : chunks - 1 - chunk});
  };
  const int count = micro_batches * chunks;
  return detail::schedule_of(
      "interleaved_one_f_one_b", ranks, micro_batches, chunks,
      [=](detail::RankList& actions, int rank) {
        detail::append_in_turn(
            std::min(2 * (ranks - 1 - rank) + (chunks - 1) * ranks, count), count,
            [&](int k) { append(actions, PipelineSchedule::Work::forward, k); },
            [&](int k) { append(actions, PipelineSchedule::Work::backward, k); });
      });
}

/// 1F1B whose backward is in two parts. On rank r, the part for the parameters is r micro-batches
/// behind the part for the input; it fills times in which the rank would wait. If forward and both
/// parts take equal times and there are at least P micro-batches, ranks wait for (P-1) / (3M+P-1)
/// of the step. Each rank keeps what forward saves of at most P micro-batches.
/// throws   argument_error if a number is below 1
/// source   Qi et al. 2023, "Zero bubble pipeline parallelism", schedule ZB-H1
constexpr PipelineSchedule zero_bubble_h1(int ranks, int micro_batches) {
  return detail::schedule_of(
      "zero_bubble_h1", ranks, micro_batches, 1, [=](detail::RankList& actions, int rank) {
        int next = 0;  // whose part for the parameters is to come
        detail::append_in_turn(
            std::min(ranks - 1 - rank, micro_batches), micro_batches,
            [&](int k) {
              actions.add({PipelineSchedule::Work::forward, k});
            },
            [&](int k) {
              actions.add({PipelineSchedule::Work::backward_input, k});
              if (k - next >= rank)
                actions.add({PipelineSchedule::Work::backward_parameters, next++});
            });
        while (next < micro_batches)
          actions.add({PipelineSchedule::Work::backward_parameters, next++});
      });
}

}  // namespace shardwise
