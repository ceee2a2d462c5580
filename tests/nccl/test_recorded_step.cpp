// Recorded training steps of ranks over NCCL, on a stand-in for NCCL and CUDA that records.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "nccl/host_gpu.hpp"
#include "nccl/ranks.hpp"
#include "nccl/stand_in.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/recorded_step.hpp"
#include "shardwise/train/sgd.hpp"
#include "unit/far_train/launches_on_mesh.hpp"
#include "unit/far_train/machine.hpp"
#include "unit/far_train/ten_steps.hpp"

using namespace testing;
using namespace std::chrono_literals;

namespace {

using Ahead = Ends<Invariant, Invariant>;

/// Steps that are launched over NCCL come to the bits of steps that threads are called for.
template <class Run>
void check_launches(const Run& run) {
  for (const int size : {1, 2, 3}) {
    CAPTURE(size);
    run_nccl_ranks(size, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
      Threads near_ranks(threads);
      Reference near;
      const Bits expected = run.called(near, near_ranks);
      {
        HostGpu gpu(nccl.stream());
        CHECK(run.launched(gpu, nccl) == expected);
      }
      CHECK(nccl.close());
    });
    CHECK(nothing_is_left());
  }
}

}  // namespace

TEST_CASE("nccl: launches over NCCL, with statistics, dropout and clipped gradients") {
  check_launches(TenSteps<Dropping, float, Ahead, AdamW, CrossEntropy>{
      AdamW{.weight_decay = 0.1}, {0.1}, {.clip_norm = 0.05}});
}

TEST_CASE("nccl: launches over NCCL of layers in 16 bits, with rows of each rank") {
  check_launches(
      TenSteps<ByFeature, Precision<bf16, float>, Ends<Invariant, Batch>, Sgd, MeanSquaredError>{
          Sgd{.momentum = 0.9}, {}});
}

TEST_CASE("nccl: launches over NCCL on a mesh whose ranks keep shares, with two losses") {
  run_nccl_ranks(4, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    const mesh sizes{.data = 2, .tensor = 2};
    const StepOptions options{.clip_norm = 0.2};
    using P = Precision<bf16, float>;
    MeshRanks<Threads> near_ranks(Threads(threads), sizes);
    Reference near;
    const Bits expected =
        OnMesh<P, Reference, MeshRanks<Threads>>(near, near_ranks, Keep::whole, options).called();
    MeshRanks<NcclCommunicator> ranks(nccl, sizes);
    for (const Keep keep :
         {Keep::whole, Keep::state_over_data, Keep::gradients_over_data, Keep::all_over_data}) {
      HostGpu gpu(nccl.stream());
      OnMesh<P, HostGpu, MeshRanks<NcclCommunicator>> training(gpu, ranks, keep, options);
      const Bits launched = training.launched();
      if (keep == Keep::whole) CHECK(launched == expected);
      CHECK(std::equal(launched.begin(), launched.begin() + 12, expected.begin()));
    }
    CHECK(ranks.close());
  });
  CHECK(nothing_is_left());
}

TEST_CASE(
    "nccl: a launch that a rank does not join ends by the time-out, and then the graph refuses") {
  for (const int size : {2, 3}) {
    CAPTURE(size);
    run_nccl_ranks(size, 1s, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
      HostGpu gpu(nccl.stream());
      Training<ByFeature, float, Ahead, AdamW, HostGpu, NcclCommunicator> t(gpu, nccl, AdamW{});
      RecordedStep recorded(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
      for (int step = 1; step <= 4; ++step) recorded.launch();
      recorded.loss();
      if (nccl.rank() != 1) {
        recorded.launch();
        const std::string late = error_of([&] { recorded.loss(); });
        CAPTURE(late);
        CHECK(late.starts_with("peer_error: rank " + std::to_string(nccl.rank()) +
                               ": recorded() at step "));
        CHECK(late.find(" was not done within 1 s: another rank has left") != std::string::npos);
        const std::uint64_t steps = t.optimizer.steps();
        const std::string refused = error_of([&] { recorded.launch(); });
        CAPTURE(refused);
        CHECK(refused.find("recorded() at step 6 comes too late: recorded() at step 5, call ") !=
              std::string::npos);
        CHECK(error_of([&] { recorded.loss(); }) == late);
        CHECK(t.optimizer.steps() == steps);
      }
      threads.barrier();
    });
    CHECK(nothing_is_left());
  }
}

TEST_CASE("nccl: a NaN of one rank is in both norms, though a maximum may lose it") {
  for (const Norm norm : {Norm::euclidean, Norm::infinity}) {
    run_nccl_ranks(3, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
      HostGpu gpu(nccl.stream());
      Training<ByFeature, float, Ahead, Sgd, HostGpu, NcclCommunicator> t(gpu, nccl, Sgd{});
      const StepOptions options{.clip_norm = 1, .norm = norm};
      Step step(t.optimizer, samples, options);
      step.add(t.x.view(), t.labels.view(), CrossEntropy{});
      const float none = std::numeric_limits<float>::quiet_NaN();
      if (nccl.rank() == 2) gpu.to_device(&none, 1, &t.model.gradients().back());
      CHECK(message_of([&] { step.finish(); }).find("the norm of all gradients is ") !=
            std::string::npos);
      CHECK(t.optimizer.steps() == 0);
    });
    CHECK(nothing_is_left());
  }
}
