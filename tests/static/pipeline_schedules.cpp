// Pipeline schedules in constant expressions: the known ones run, take the times of their formulas,
// and keep as many micro-batches as these say; broken ones have their fault at its place.

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "shardwise/pipeline/known_schedules.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/schedule_fault.hpp"
#include "shardwise/pipeline/schedule_run.hpp"

using namespace shardwise;

namespace {

using enum PipelineSchedule::Fault::Kind;
using enum PipelineSchedule::Work;

constexpr bool is_near(double a, double b) { return a - b < 1e-9 && b - a < 1e-9; }

/// Whether ranks wait for `waits` / (`waits` + `works`) of the step, and rank r has at most
/// `in_flight(r)` micro-batches in flight.
template <class InFlight>
constexpr bool has_times(const PipelineSchedule& schedule, double waits, double works,
                         InFlight&& in_flight) {
  const PipelineSchedule::Times times = time_of(schedule);
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    if (times.most_in_flight[static_cast<std::size_t>(rank)] != in_flight(rank)) return false;
  return is_near(times.bubble, waits / (waits + works));
}

template <int P, int M>
constexpr bool have_times_of_formulas() {
  static_assert(has_times(gpipe(P, M), P - 1, M, [](int) { return M; }));
  static_assert(has_times(one_f_one_b(P, M), P - 1, M, [](int r) { return std::min(P - r, M); }));
  static_assert(has_times(interleaved_one_f_one_b(P, M, 2), (P - 1) / 2., M,
                          [](int r) { return std::min(2 * M, 2 * (P - r - 1) + P + 1); }));
  static_assert(has_times(zero_bubble_h1(P, M), P - 1, 3 * M, [](int) { return std::min(P, M); }));
  return true;
}
static_assert(have_times_of_formulas<2, 8>() && have_times_of_formulas<4, 8>());
static_assert(have_times_of_formulas<2, 16>() && have_times_of_formulas<4, 16>());
static_assert(have_times_of_formulas<2, 32>() && have_times_of_formulas<4, 32>());
static_assert(have_times_of_formulas<8, 8>());
static_assert(have_times_of_formulas<8, 16>());
static_assert(have_times_of_formulas<8, 32>());

// The figures for 4 ranks and 8 micro-batches: 3/11, 3/11, 3/19 and 1/9.
constexpr int thousandths(const PipelineSchedule& schedule) {
  return static_cast<int>(time_of(schedule).bubble * 1000 + 0.5);
}
static_assert(thousandths(gpipe(4, 8)) == 273 && thousandths(one_f_one_b(4, 8)) == 273);
static_assert(thousandths(interleaved_one_f_one_b(4, 8, 2)) == 158);
static_assert(thousandths(zero_bubble_h1(4, 8)) == 111);
static_assert(time_of(interleaved_one_f_one_b(4, 8, 2)).most_in_flight[0] == 11);

// A step of 2 ranks and 1 micro-batch by hand: 1 + 5 + 1 forward, 4 + 5 + 4 backward.
constexpr PipelineSchedule::Costs slow_messages{.backward_input = 3, .message = 5};
static_assert(time_of(one_f_one_b(2, 1), slow_messages).length == 20);
static_assert(time_of(one_f_one_b(2, 1), slow_messages).bubble == 0.75);
static_assert(time_of(interleaved_one_f_one_b(1, 1, 2), slow_messages).length == 5);  // no message

// One posted receive in each direction is enough. If sends wait for their receivers, only GPipe
// runs.
static_assert(fault_in(gpipe(4, 8), Sends::meeting) == none);
static_assert(fault_in(one_f_one_b(4, 8), Sends::one_posted) == none);
static_assert(fault_in(one_f_one_b(4, 8), Sends::meeting) == deadlock);
static_assert(fault_in(interleaved_one_f_one_b(4, 8, 2), Sends::one_posted) == none);
static_assert(fault_in(interleaved_one_f_one_b(4, 8, 2), Sends::meeting) == deadlock);
static_assert(fault_in(zero_bubble_h1(4, 8), Sends::one_posted) == none);
static_assert(fault_in(zero_bubble_h1(4, 8), Sends::meeting) == deadlock);

/// 2 ranks and 2 micro-batches, with these actions.
using List = std::initializer_list<PipelineSchedule::Action>;
constexpr List all_forward{{forward, 0}, {forward, 1}, {backward, 0}, {backward, 1}};
constexpr PipelineSchedule of_two(List first, List last) {
  PipelineSchedule schedule(2);
  schedule.add_rank(first);
  schedule.add_rank(last);
  return schedule;
}
constexpr PipelineSchedule with_last_rank(List actions) { return of_two(all_forward, actions); }
constexpr bool has_fault(const PipelineSchedule& schedule, PipelineSchedule::Fault::Kind kind,
                         int rank, std::size_t position, const PipelineSchedule::Action& action) {
  const PipelineSchedule::Fault fault = fault_in(schedule, Sends::buffered);
  return fault == kind && fault.rank == rank && fault.position == position &&
         fault.action == action;
}

static_assert(has_fault(with_last_rank({{forward, 0}, {forward, 2}}), outside, 1, 1, {forward, 2}));
static_assert(has_fault(with_last_rank({{forward, 0, 1}}), outside, 1, 0, {forward, 0, 1}));
static_assert(has_fault(with_last_rank({{forward, 0}, {backward, 0}, {backward, 0}}), out_of_turn,
                        1, 2, {backward, 0}));
static_assert(has_fault(with_last_rank({{forward, 1}, {backward, 0}}), out_of_turn, 1, 1,
                        {backward, 0}));
static_assert(has_fault(with_last_rank({{forward, 0}, {backward, 0}, {forward, 1}}), missing, 1, 3,
                        {backward, 1}));
static_assert(
    has_fault(with_last_rank({{forward, 0}, {forward, 1}, {backward_input, 0}, {backward, 1}}),
              missing, 1, 4, {backward_parameters, 0}));
static_assert(has_fault(with_last_rank({{forward, 1}, {forward, 0}, {backward, 0}, {backward, 1}}),
                        order, 1, 0, {forward, 1}));
static_assert(fault_in(PipelineSchedule(1), Sends::buffered) == no_sizes);

// Rank 0 needs the gradient of micro-batch 0 before it sends the output of 1, for which rank 1
// waits.
static_assert(has_fault(of_two({{forward, 0}, {backward, 0}, {forward, 1}, {backward, 1}},
                               all_forward),
                        deadlock, 0, 1, {backward, 0}));

}  // namespace
