// Pipeline schedules of many sizes run, also where sends meet their receives, and broken ones are
// refused with a sentence.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/pipeline/event_order.hpp"
#include "shardwise/pipeline/known_schedules.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/schedule_fault.hpp"
#include "shardwise/pipeline/schedule_run.hpp"
#include "shardwise/pipeline/stage_message.hpp"
#include "support/error_of.hpp"

using namespace shardwise;
using testing::error_of;

namespace {

using enum PipelineSchedule::Fault::Kind;
using enum PipelineSchedule::Work;

/// The error for 2 ranks and 2 micro-batches with these actions of one rank.
std::string error_with(int rank, const std::vector<PipelineSchedule::Action>& actions,
                       Sends sends = Sends::buffered) {
  const std::vector<PipelineSchedule::Action> all_forward{
      {forward, 0}, {forward, 1}, {backward, 0}, {backward, 1}};
  PipelineSchedule schedule(2);
  schedule.add_rank(rank == 0 ? actions : all_forward);
  schedule.add_rank(rank == 0 ? all_forward : actions);
  return error_of([&] { detail::require_to_run(schedule, sends); });
}

}  // namespace

TEST_CASE("known schedules run with one posted receive, whatever their sizes") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
      CAPTURE(ranks);
      CAPTURE(micro_batches);
      CHECK(fault_in(gpipe(ranks, micro_batches), Sends::one_posted) == none);
      CHECK(fault_in(gpipe(ranks, micro_batches), Sends::meeting) == none);
      CHECK(fault_in(one_f_one_b(ranks, micro_batches), Sends::one_posted) == none);
      CHECK(fault_in(zero_bubble_h1(ranks, micro_batches), Sends::one_posted) == none);
      for (int chunks = 1; chunks <= 3 && micro_batches % ranks == 0; ++chunks) {
        CAPTURE(chunks);
        const auto schedule = interleaved_one_f_one_b(ranks, micro_batches, chunks);
        CHECK(fault_in(schedule, Sends::one_posted) == none);
      }
    }
  }
}

namespace {

using Kind = detail::StageEvent::Kind;

detail::StageMessage message_of(const PipelineSchedule& schedule, int rank,
                                const detail::StageEvent& event) {
  return event.kind == Kind::receive ? detail::needed_by(schedule, rank, event.action)
                                     : detail::given_by(schedule, rank, event.action);
}

/// Runs what ranks do, each on one stream, as NCCL does: a rank goes on behind a message when both
/// ends have come to it. Returns how many messages passed, or -1 if ranks wait without end, and the
/// time of the step.
std::pair<int, double> run_meeting(const PipelineSchedule& schedule, Sends sends = Sends::meeting) {
  struct Rank {
    detail::GrowingList<detail::StageEvent> events;
    std::size_t next = 0;
    double clock = 0;
  };
  std::vector<Rank> ranks;
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    ranks.push_back({detail::events_of(schedule, rank, sends)});
  const auto goes_on = [&](int number) {
    Rank& rank = ranks[static_cast<std::size_t>(number)];
    const detail::StageEvent& event = rank.events[rank.next];
    if (event.kind == Kind::compute) {
      ++rank.next;
      rank.clock += event.action.work == backward ? 2 : 1;
      return 1;
    }
    const detail::StageMessage message = message_of(schedule, number, event);
    const int partner = (event.kind == Kind::send ? message.to : message.from) % schedule.ranks();
    Rank& other = ranks[static_cast<std::size_t>(partner)];
    if (other.next == other.events.size()) return 0;
    const detail::StageEvent& theirs = other.events[other.next];
    if (theirs.kind == Kind::compute || theirs.kind == event.kind ||
        message_of(schedule, partner, theirs) != message)
      return 0;
    ++rank.next;
    ++other.next;
    rank.clock = other.clock = std::max(rank.clock, other.clock);
    return 2;
  };
  int messages = 0;
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const Rank& one = ranks[static_cast<std::size_t>(rank)];
      while (one.next < one.events.size()) {
        const int moved = goes_on(rank);
        if (moved == 0) break;
        messages += moved - 1;
        has_moved = true;
      }
    }
  }
  double length = 0;
  for (const Rank& rank : ranks) {
    if (rank.next < rank.events.size()) return {-1, 0};
    length = std::max(length, rank.clock);
  }
  return {messages, length / schedule.chunks()};
}

/// What a rank does is its actions in their order, each behind what it needs. What an action gives
/// is sent behind it: a gradient before the next backward, whose gradient takes its memory, and an
/// output before the backward of its micro-batch.
bool keeps_memory(const PipelineSchedule& schedule, int rank) {
  const auto events = detail::events_of(schedule, rank, Sends::meeting);
  std::vector<PipelineSchedule::Action> computed, received;
  const auto has = [](const std::vector<PipelineSchedule::Action>& all,
                      const PipelineSchedule::Action& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  for (const detail::StageEvent& event : events) {
    const PipelineSchedule::Action& action = event.action;
    if (event.kind == Kind::receive) {
      if (has(computed, action)) return false;
      received.push_back(action);
    } else if (event.kind == Kind::compute) {
      if (detail::needed_by(schedule, rank, action).exists() && !has(received, action))
        return false;
      computed.push_back(action);
    } else if (action.work == forward) {
      const PipelineSchedule::Action whole{backward, action.micro_batch, action.chunk};
      const PipelineSchedule::Action part{backward_input, action.micro_batch, action.chunk};
      if (!has(computed, action) || has(computed, whole) || has(computed, part)) return false;
    } else {
      const auto last = std::find_if(computed.rbegin(), computed.rend(), [](const auto& done) {
        return done.work == backward || done.work == backward_input;
      });
      if (last == computed.rend() || *last != action) return false;
    }
  }
  const auto actions = schedule.of(rank);
  return std::equal(computed.begin(), computed.end(), actions.begin(), actions.end());
}

/// Returns how long the step takes.
double check_meets(const PipelineSchedule& schedule) {
  const auto [messages, length] = run_meeting(schedule);
  CHECK(messages ==
        (schedule.ranks() > 1 ? 2 * (schedule.stages() - 1) * schedule.micro_batches() : 0));
  for (int rank = 0; rank < schedule.ranks(); ++rank) CHECK(keeps_memory(schedule, rank));
  return length;
}

/// A table of what ranks may do next, chosen at random.
PipelineSchedule random_schedule(std::mt19937& random, int ranks, int micro_batches, int chunks) {
  const auto below = [&](std::size_t count) { return random() % count; };
  PipelineSchedule schedule(micro_batches, chunks);
  const int stages = ranks * chunks;
  std::vector<std::vector<PipelineSchedule::Action>> of_ranks(static_cast<std::size_t>(ranks));
  // What is done of each micro-batch in each stage: 1 forward, 2 the gradient of the input, 3 all.
  std::vector<std::vector<int>> done(static_cast<std::size_t>(stages),
                                     std::vector<int>(static_cast<std::size_t>(micro_batches)));
  const auto of = [&](int stage, int k) -> int& {
    return done[static_cast<std::size_t>(stage)][static_cast<std::size_t>(k)];
  };
  while (true) {
    std::vector<std::pair<int, PipelineSchedule::Action>> possible;
    for (int stage = 0; stage < stages; ++stage)
      for (int k = 0; k < micro_batches; ++k) {
        const auto add = [&](PipelineSchedule::Work work) {
          possible.push_back({stage, {work, k, stage / ranks}});
        };
        const bool has_input = stage == 0 || of(stage - 1, k) > 0;
        const bool is_next = k == 0 || of(stage, k - 1) > 0;
        if (of(stage, k) == 0 && has_input && is_next) add(forward);
        if (of(stage, k) == 1 && (stage + 1 == stages || of(stage + 1, k) > 1)) {
          add(backward);
          add(backward_input);
        }
        if (of(stage, k) == 2) add(backward_parameters);
      }
    if (possible.empty()) break;
    const auto& [stage, action] = possible[below(possible.size())];
    int& here = of(stage, action.micro_batch);
    here = action.work == forward ? 1 : action.work == backward_input ? 2 : 3;
    of_ranks[static_cast<std::size_t>(stage % ranks)].push_back(action);
  }
  for (const auto& actions : of_ranks) schedule.add_rank(actions);
  return schedule;
}

}  // namespace

TEST_CASE("where sends meet their receives, every schedule runs in the order of its events") {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const int micro_batches : {1, 2, 3, 8, 12}) {
      CAPTURE(ranks);
      CAPTURE(micro_batches);
      for (const PipelineSchedule& schedule :
           {gpipe(ranks, micro_batches), one_f_one_b(ranks, micro_batches),
            zero_bubble_h1(ranks, micro_batches)})
        CHECK(check_meets(schedule) == time_of(schedule).length);  // no rank waits longer
      for (int chunks = 2; chunks <= 3 && ranks > 1 && micro_batches % ranks == 0; ++chunks)
        check_meets(interleaved_one_f_one_b(ranks, micro_batches, chunks));
    }
  CHECK(run_meeting(one_f_one_b(2, 2), Sends::buffered).first == -1);
  // A page says how much longer interleaved schedules take.
  CHECK(check_meets(interleaved_one_f_one_b(2, 16, 2)) == 60);
  CHECK(time_of(interleaved_one_f_one_b(2, 16, 2)).length == 49.5);
  CHECK(check_meets(interleaved_one_f_one_b(4, 16, 2)) == 52.5);
  CHECK(check_meets(interleaved_one_f_one_b(8, 16, 2)) == 60.5);
  CHECK(time_of(interleaved_one_f_one_b(8, 16, 2)).length == 58.5);
  std::mt19937 random(7);
  int tables = 0;
  while (tables < 300) {
    const auto up_to = [&](unsigned most) { return static_cast<int>(random() % most) + 1; };
    const auto schedule = random_schedule(random, up_to(5) + 1, up_to(6), up_to(2));
    if (fault_in(schedule, Sends::buffered) != none) continue;  // messages in two orders
    CAPTURE(tables);
    check_meets(schedule);
    ++tables;
  }
}

TEST_CASE("a rank that has all stages sends each message before it receives it") {
  for (int micro_batches = 1; micro_batches <= 8; ++micro_batches)
    for (int chunks = 2; chunks <= 4; ++chunks) {
      const auto schedule = interleaved_one_f_one_b(1, micro_batches, chunks);
      CHECK(keeps_memory(schedule, 0));
      std::vector<detail::StageMessage> sent;
      int received = 0;
      for (const detail::StageEvent& event : detail::events_of(schedule, 0, Sends::meeting)) {
        if (event.kind == Kind::send) sent.push_back(message_of(schedule, 0, event));
        if (event.kind != Kind::receive) continue;
        const detail::StageMessage message = message_of(schedule, 0, event);
        CHECK(std::find(sent.begin(), sent.end(), message) != sent.end());
        ++received;
      }
      CHECK(received == 2 * (chunks - 1) * micro_batches);
    }
}

TEST_CASE("interleaved 1F1B with one chunk is 1F1B") {
  for (const int ranks : {1, 2, 4}) {
    const auto interleaved = interleaved_one_f_one_b(ranks, 8, 1);
    CHECK(time_of(interleaved).length == time_of(one_f_one_b(ranks, 8)).length);
    CHECK(time_of(interleaved).bubble == time_of(one_f_one_b(ranks, 8)).bubble);
  }
}

TEST_CASE("a broken pipeline schedule is refused with rank, action, reason and remedy") {
  CHECK(error_with(1, {{forward, 0}, {forward, 2}}) ==
        "argument_error: pipeline schedule: rank 1, action 1, forward of micro-batch 2 in chunk 0: "
        "there are 2 micro-batches and 1 chunks, counted from 0; name one of them");
  CHECK(error_with(1, {{forward, 1}, {backward, 0}}) ==
        "argument_error: pipeline schedule: rank 1, action 1, backward of micro-batch 0 in chunk "
        "0: the rank has already done this, or not yet what comes before it; each micro-batch goes "
        "through each chunk forward once, and then backward once, in one part or in both");
  CHECK(error_with(0, {{forward, 0}, {forward, 1}, {backward, 1}}) ==
        "argument_error: pipeline schedule: rank 0, action 3, backward of micro-batch 0 in chunk "
        "0: the rank never does this; add it");
  CHECK(error_with(1, {{forward, 1}, {forward, 0}, {backward, 0}, {backward, 1}}) ==
        "argument_error: pipeline schedule: rank 1, action 0, forward of micro-batch 1 in chunk 0: "
        "it needs the output of stage 0 for micro-batch 1, but the next message is the output of "
        "stage 0 for micro-batch 0; let both ranks compute these micro-batches in one order");
  CHECK(error_with(0, {{forward, 0}, {backward, 0}, {forward, 1}, {backward, 1}}) ==
        "argument_error: pipeline schedule: rank 0, action 1, backward of micro-batch 0 in chunk "
        "0: it needs the gradient of stage 1 for micro-batch 0, and all ranks that have actions "
        "left wait for each other; move the action behind those that another rank waits for, or "
        "let sends wait less");
  CHECK(error_with(1, {{forward, 0}, {backward, 0}, {forward, 1}, {backward, 1}}, Sends::meeting)
            .find("rank 0, action 1, forward of micro-batch 1 in chunk 0: it sends to another "
                  "rank, and all ranks") != std::string::npos);
  CHECK(error_of([] { detail::require_to_run(PipelineSchedule(0), Sends::buffered); }) ==
        "argument_error: pipeline schedule: there are 0 ranks, 0 micro-batches and 1 chunks; each "
        "number is at least 1");
  CHECK(error_of([] { time_of(PipelineSchedule(0)); }) ==
        error_of([] { detail::require_to_run(PipelineSchedule(0), Sends::buffered); }));
}

TEST_CASE("sizes that a known schedule does not have are refused") {
  CHECK(error_of([] { one_f_one_b(0, 8); }) ==
        "argument_error: one_f_one_b: there are 0 ranks, 8 micro-batches and 1 chunks; each number "
        "is at least 1");
  CHECK(error_of([] { interleaved_one_f_one_b(4, 6, 2); }) ==
        "argument_error: interleaved_one_f_one_b: the number of micro-batches must be a multiple "
        "of the 4 ranks, but it is 6; give such a number, or use one_f_one_b");
}
