// Narrow compute over wide parameters on oneDNN: the steps of the readable backend, but for
// rounding.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"
#include "support/onednn_dtypes.hpp"
#include "witness/formula.hpp"

using namespace shardwise;

namespace {

struct Mlp : Sequential<ColumnParallelLinear<40, 48>, Relu, RowParallelLinear<48, 10>> {};

template <class B>
std::vector<double> losses(ThreadCommunicator& ranks) {
  Model<Mlp, Context<Precision<bf16, float>, B, ThreadCommunicator>> model(ranks, Seed{1});
  Tensor<bf16, Invariant> x(Shape{{Axis::batch, 24}, {Axis::feature, 40}}, place_of(ranks));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = detail::rounded<bf16>(witness::made(3, static_cast<std::int64_t>(i)));
  }
  Tensor<std::int32_t, Invariant> labels(Shape{{Axis::batch, 24}}, place_of(ranks));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = witness::made_label(static_cast<std::int64_t>(i), 10);
  }
  Optimizer optimizer(model, AdamW{.learning_rate = 0.01});
  std::vector<double> found;
  for (int step = 0; step < 6; ++step) {
    found.push_back(train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer));
  }
  return found;
}

}  // namespace

// A sum in another order may round to the other neighbour in bf16, 2^-8 away: of logits below 2,
// less than a hundredth.
TEST_CASE("oneDNN takes the same steps in bf16 over parameters in float") {
  if (!testing::onednn_computes<bf16>()) return;
  for (const int size : {1, 2}) {
    run_ranks(size, [](ThreadCommunicator& ranks) {
      const auto expected = losses<Reference>(ranks);
      const auto found = losses<OneDnn>(ranks);
      CHECK(expected.back() < 0.9 * expected.front());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        INFO("step " << i << ": " << found[i] << " against " << expected[i]);
        CHECK(std::abs(found[i] - expected[i]) < 0.01);
      }
    });
  }
}
