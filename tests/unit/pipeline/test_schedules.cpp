// Pipeline schedules of many sizes run, and broken ones are refused with a sentence.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "shardwise/pipeline/known_schedules.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/schedule_fault.hpp"
#include "shardwise/pipeline/schedule_run.hpp"
#include "support/error_of.hpp"

using namespace shardwise;
using testing::error_of;

namespace {

using enum PipelineFault::Kind;
using enum PipelineWork;

/// The error for 2 ranks and 2 micro-batches with these actions of one rank.
std::string error_with(int rank, const std::vector<PipelineAction>& actions,
                       Sends sends = Sends::buffered) {
  const std::vector<PipelineAction> all_forward{
      {forward, 0}, {forward, 1}, {backward, 0}, {backward, 1}};
  PipelineSchedule schedule(2);
  schedule.add_rank(rank == 0 ? actions : all_forward);
  schedule.add_rank(rank == 0 ? all_forward : actions);
  return error_of([&] { require_to_run(schedule, sends); });
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
  CHECK(error_of([] { require_to_run(PipelineSchedule(0), Sends::buffered); }) ==
        "argument_error: pipeline schedule: there are 0 ranks, 0 micro-batches and 1 chunks; each "
        "number is at least 1");
  CHECK(error_of([] { time_of(PipelineSchedule(0)); }) ==
        error_of([] { require_to_run(PipelineSchedule(0), Sends::buffered); }));
}

TEST_CASE("sizes that a known schedule does not have are refused") {
  CHECK(error_of([] { one_f_one_b(0, 8); }) ==
        "argument_error: one_f_one_b: there are 0 ranks, 8 micro-batches and 1 chunks; each number "
        "is at least 1");
  CHECK(error_of([] { interleaved_one_f_one_b(4, 6, 2); }) ==
        "argument_error: interleaved_one_f_one_b: the number of micro-batches must be a multiple "
        "of the 4 ranks, but it is 6; give such a number, or use one_f_one_b");
}
