// What a Precision costs: the bytes that a rank holds, and nothing that is allocated in a step.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/step.hpp"
#include "support/count_allocations.hpp"

using namespace shardwise;

namespace {

// Sizes whose blocks on two ranks fill whole cache lines in every dtype.
struct Mlp : Sequential<ColumnParallelLinear<64, 256>, Gelu, RowParallelLinear<256, 64>> {};
constexpr std::size_t of_rank = (64 * 128 + 128) + (128 * 64 + 64);

/// Bytes that a new model takes from its pool on one of two ranks.
template <class P, class Use = Train>
std::size_t held(ThreadCommunicator& ranks) {
  Model<Mlp, Context<P, Reference, ThreadCommunicator>, Ends<Invariant, Invariant>, Use> model(
      ranks, Seed{1});
  CHECK(model.run().parameters.size() == of_rank);
  return model.run().pool.reserved();
}

/// The bytes of a block of a pool, which rounds up.
std::size_t block(std::size_t bytes) {
  Pool pool;
  const Buffer buffer = pool.take(bytes);
  return pool.reserved();
}

template <class P>
std::size_t allocated(ThreadCommunicator& ranks, const StepOptions& options) {
  Model<Mlp, Context<P, Reference, ThreadCommunicator>> model(ranks, Seed{1}, {.bucket_bytes = 64});
  using T = typename decltype(model)::dtype;
  const Tensor<T, Invariant> x(Shape{{Axis::batch, 3}, {Axis::feature, 64}}, place_of(ranks));
  const Tensor<std::int32_t, Invariant> labels(Shape{{Axis::batch, 3}}, place_of(ranks));
  Optimizer optimizer(model, AdamW{});
  return testing::allocated_after_second(
      [&] { train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer, options); });
}

}  // namespace

TEST_CASE("one dtype for all holds parameters and gradients, and nothing else") {
  run_ranks(2, [](ThreadCommunicator& ranks) {
    CHECK(held<float>(ranks) == 2 * block(4 * of_rank));
    CHECK(held<Precision<float>>(ranks) == held<float>(ranks));
    CHECK(held<bf16>(ranks) == 2 * block(2 * of_rank));
    CHECK(held<float, ForwardOnly>(ranks) == block(4 * of_rank));
  });
}

TEST_CASE("narrow compute holds a copy of parameters more, and one of gradients") {
  run_ranks(2, [](ThreadCommunicator& ranks) {
    using P = Precision<bf16, float>;
    CHECK(held<P>(ranks) == 2 * block(4 * of_rank) + 2 * block(2 * of_rank));
    CHECK(held<P, ForwardOnly>(ranks) == block(4 * of_rank) + block(2 * of_rank));
  });
}

TEST_CASE("no step allocates, whatever its precision and options") {
  run_ranks(2, [](ThreadCommunicator& ranks) {
    LossScaler scaler(DynamicLossScale{});
    const StepOptions options{.clip_norm = 1.0, .scaler = &scaler};
    CHECK(allocated<float>(ranks, options) == 0);
    CHECK(allocated<Precision<bf16, float>>(ranks, options) == 0);
    CHECK(allocated<Precision<bf16, float>>(ranks, {}) == 0);
  });
}
