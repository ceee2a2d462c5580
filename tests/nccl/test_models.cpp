// Models over NCCL, on a stand-in for it and for CUDA whose streams are threads: steps of training
// come to the bits of those over thread ranks, which have one stream.

#include <doctest/doctest.h>

#include <chrono>

#include "nccl/host_gpu.hpp"
#include "nccl/ranks.hpp"
#include "nccl/stand_in.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/pipeline/known_schedules.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "support/pipeline_steps.hpp"
#include "support/steps_on_mesh.hpp"
#include "unit/far_train/machine.hpp"
#include "unit/far_train/ten_steps.hpp"

using namespace testing;
using namespace std::chrono_literals;

TEST_CASE_TEMPLATE("nccl: steps of a model that starts sums", T, float, double, bf16, fp16) {
  using Ahead = Ends<Invariant, Invariant>;
  const TenSteps<Dropping, T, Ahead, AdamW, CrossEntropy> run{AdamW{}, {0.1}};
  for (int size = 1; size <= 8; ++size) {
    CAPTURE(size);
    stand_in::some_at_once = false;
    run_nccl_ranks(size, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
      Threads near_ranks(threads);
      Reference near;
      const Bits expected = run.called(near, near_ranks);
      HostGpu gpu(nccl.stream());
      CHECK(run.called(gpu, nccl) == expected);
    });
    CHECK(!stand_in::some_at_once);
    CHECK(nothing_is_left());
  }
}

TEST_CASE("nccl: ranks of a mesh that keep all, or a share of it, and sum beside backward") {
  run_nccl_ranks(4, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    const mesh sizes{.data = 2, .tensor = 2};
    MeshRanks<ThreadCommunicator> near_ranks(threads, sizes);
    Reference near;
    const auto expected = steps_on_mesh(near, near_ranks, Keep::whole);
    MeshRanks<NcclCommunicator> ranks(nccl, sizes);
    HostGpu gpu(nccl.stream());
    for (const Keep keep : {Keep::whole, Keep::state_over_data}) {
      CHECK(steps_on_mesh(gpu, ranks, keep) == expected);
      CHECK(steps_on_mesh<true>(gpu, ranks, keep) == expected);  // sums beside backward
    }
    for (const Keep keep : {Keep::gradients_over_data, Keep::all_over_data}) {
      const auto expected_of_share = steps_on_mesh(near, near_ranks, keep);
      CHECK(steps_on_mesh(gpu, ranks, keep) == expected_of_share);
      CHECK(steps_on_mesh<true>(gpu, ranks, keep) == expected_of_share);
    }
  });
  CHECK(nothing_is_left());
}

namespace {

/// Steps over NCCL with these schedules are those over threads by GPipe with two stages.
template <auto Cut, std::size_t Chunks = 1>
void check_pipeline(const mesh& sizes, const std::vector<PipelineSchedule>& schedules,
                    const PipelineWays& ways = {}) {
  stand_in::some_at_once = false;
  run_nccl_ranks(sizes.size(), 20s, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    MeshRanks<ThreadCommunicator> near_ranks(threads, sizes);
    Reference near;
    MeshRanks<NcclCommunicator> ranks(nccl, sizes);
    HostGpu gpu(nccl.stream());
    for (const PipelineSchedule& schedule : schedules) {
      auto expected = pipeline_steps(near, near_ranks, gpipe(2, schedule.micro_batches()),
                                     {.samples = ways.samples});
      auto told = pipeline_steps<Cut, Chunks>(gpu, ranks, schedule, ways);
      if (Chunks > 1) {  // other parameters are on the rank; the losses are those of all
        expected.resize(4);
        told.resize(4);
      }
      CHECK(told == expected);
    }
  });
  CHECK(!stand_in::some_at_once);
  CHECK(nothing_is_left());
}

}  // namespace

TEST_CASE("nccl: pipelines of every schedule") {
  using enum PipelineSchedule::Work;
  PipelineSchedule own(3);  // the last rank goes backward as late as it can
  own.add_rank(
      {{forward, 0}, {forward, 1}, {backward, 0}, {forward, 2}, {backward, 1}, {backward, 2}});
  own.add_rank(
      {{forward, 0}, {forward, 1}, {backward, 0}, {backward, 1}, {forward, 2}, {backward, 2}});
  check_pipeline<after_relu>({.pipeline = 2, .tensor = 2},
                             {one_f_one_b(2, 3), zero_bubble_h1(2, 3), own});
  check_pipeline<in_four_stages, 2>({.pipeline = 2, .data = 2}, {interleaved_one_f_one_b(2, 4, 2)},
                                    {.sums_in_backward = true, .samples = {3, 3, 3, 3}});
}
