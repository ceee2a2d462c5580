// Transformers split over thread ranks that share a device (under nvcc a GPU) learn what one rank
// of the host learns in double: a GPT-2 with dropout in its attention and a Llama with a window,
// whose heads, tables and perceptrons are uneven over the ranks and, over 8, empty on some. In bf16
// on a GPU cuDNN computes the attention of the Llama, and that of the GPT-2 where nothing is
// dropped.

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "gpu/learned.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/plan.hpp"
#include "shardwise/train/adamw.hpp"
#include "support/seed.hpp"

using namespace shardwise;
using namespace testing::learned;

namespace {

/// Steps that are as large as the weights, or bf16 would hide that a gradient is wrong; see also
/// test_models.cpp.
struct ByAdamW {
  static AdamW rule() { return {.learning_rate = 0.2, .epsilon = 0.1}; }
};

constexpr std::size_t vocabulary = 13, length = 11, heads = 4, size = 8;
const Shape text{{Axis::batch, 2}, {Axis::sequence, length}};

template <class Plan>
auto gpt() {
  return gpt2<Plan, Gpt2Form{.dropped = 1, .of = 10}>({.vocabulary = vocabulary,
                                                       .positions = length,
                                                       .features = heads * size,
                                                       .hidden = 21,
                                                       .heads = heads,
                                                       .layers = 2});
}

/// Three query heads read one key head: of 3 or 4 ranks, one has heads that read both.
template <class Plan>
auto grouped() {
  constexpr LlamaForm form{.window = 5};
  return llama<Plan, form>({.form = form,
                            .vocabulary = vocabulary,
                            .features = 20,
                            .hidden = 7,
                            .heads = 6,
                            .groups = 2,
                            .head_size = size,
                            .layers = 2});
}

/// Templates, since nvcc 13.0 cannot name the forms in the types of models that are none.
template <class Plan>
struct GptOf : decltype(gpt<Plan>()) {
  GptOf() : decltype(gpt<Plan>())(gpt<Plan>()) {}
};
template <class Plan>
struct LlamaOf : decltype(grouped<Plan>()) {
  LlamaOf() : decltype(grouped<Plan>())(grouped<Plan>()) {}
};
using Gpt = GptOf<TensorPlan>;
using Llama = LlamaOf<TensorPlan>;

using GptProblem = Problem<Gpt, ByLabels, ByAdamW>;
using LlamaProblem = Problem<Llama, ByLabels, ByAdamW, TensorPlan::logits>;

}  // namespace

TEST_CASE_TEMPLATE("a GPT-2 with dropout, by cross-entropy of whole rows", T, float, bf16) {
  check<T>(GptProblem{text, vocabulary, testing::seed()});
}

TEST_CASE_TEMPLATE("a Llama with a window, by cross-entropy over the ranks", T, float, bf16) {
  check<T>(LlamaProblem{text, vocabulary, testing::seed()});
}

TEST_CASE_TEMPLATE("both on packed documents with padding", T, float, bf16) {
  // Row 10 is padding, and the third document lacks its beginning.
  const std::vector<Segment> documents{{0, 4}, {4, 6}, {length, 3, 5}, {length + 3, 8}};
  check<T>(GptProblem{text, vocabulary, testing::seed(), documents});
  check<T>(LlamaProblem{text, vocabulary, testing::seed(), documents});
}
