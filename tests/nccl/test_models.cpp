// Models over NCCL, on a stand-in for it and for CUDA whose streams are threads: steps of training
// come to the bits of those over thread ranks, which have one stream.

#include <doctest/doctest.h>

#include <chrono>

#include "nccl/host_gpu.hpp"
#include "nccl/ranks.hpp"
#include "nccl/stand_in.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
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
