// Transformers split over thread ranks that share a device (under nvcc a GPU) learn what one rank
// of the host learns in double: a GPT-2 with dropout in its attention and a Llama with a window,
// whose heads, tables and perceptrons are uneven over the ranks and, over 8, empty on some. In bf16
// on a GPU cuDNN computes the attention of the Llama, and that of the GPT-2 where nothing is
// dropped.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/learned.hpp"
#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/key_value_cache.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/parallelism.hpp"
#include "shardwise/train/adamw.hpp"
#include "support/effort.hpp"
#include "support/far.hpp"
#include "support/seed.hpp"

using namespace shardwise;
using testing::Far;
using testing::FarMemory;
using namespace testing::learned;

namespace {

/// Steps that are as large as the weights, or bf16 would hide that a gradient is wrong; see also
/// test_models.cpp.
struct ByAdamW {
  static AdamW rule() { return {.learning_rate = 0.2, .epsilon = 0.1}; }
};

constexpr std::size_t vocabulary = 13, length = 11, heads = 4, size = 8;
const Shape text{{Axis::batch, 2}, {Axis::sequence, length}};

template <class Parallel>
auto gpt() {
  return gpt2<Parallel, Gpt2Form{.dropped = 1, .of = 10}>({.vocabulary = vocabulary,
                                                           .positions = length,
                                                           .features = heads * size,
                                                           .hidden = 21,
                                                           .heads = heads,
                                                           .layers = 2});
}

/// Three query heads read one key head: of 3 or 4 ranks, one has heads that read both.
template <class Parallel>
auto grouped() {
  constexpr LlamaForm form{.window = 5};
  return llama<Parallel, form>({.form = form,
                                .vocabulary = vocabulary,
                                .features = 20,
                                .hidden = 7,
                                .heads = 6,
                                .groups = 2,
                                .head_size = size,
                                .layers = 2});
}

/// Templates, since nvcc 13.0 cannot name the forms in the types of models that are none.
template <class Parallel>
struct GptOf : decltype(gpt<Parallel>()) {
  GptOf() : decltype(gpt<Parallel>())(gpt<Parallel>()) {}
};
template <class Parallel>
struct LlamaOf : decltype(grouped<Parallel>()) {
  LlamaOf() : decltype(grouped<Parallel>())(grouped<Parallel>()) {}
};
using Gpt = GptOf<TensorParallel>;
using Llama = LlamaOf<TensorParallel>;

using GptProblem = Problem<Gpt, ByLabels, ByAdamW>;
using LlamaProblem = Problem<Llama, ByLabels, ByAdamW, TensorParallel::logits>;

/// The logits of two texts of which so many tokens are evaluated at a time, on the first rank.
template <class Net, class T>
Numbers in_pieces(int ranks, const std::vector<std::size_t>& pieces) {
  using Group = DeviceThreadCommunicator<Far>;
  const auto memory = std::make_shared<FarMemory>();
  Numbers logits(text.elements() * vocabulary);
  run_ranks(ranks, [&](ThreadCommunicator& threads) {
    Far backend(memory);
    Group group(threads, backend);
    Model<Net, Context<T, Far, Group>, Ends<Invariant, Invariant>, ForwardOnly> model(
        Net{}, group, Seed{7}, {{Axis::batch, dynamic}, {Axis::sequence, dynamic}}, backend);
    KeyValueCache cache({.sequences = 2, .tokens = length});
    const auto all = drawn_ids(text, vocabulary, place_of(group), 7, 0);
    for (const std::size_t rows : pieces) {
      const std::size_t begin = cache.tokens(0);
      Tensor<std::int32_t, Invariant> ids({{Axis::batch, 2}, {Axis::sequence, rows}},
                                          place_of(group));
      const auto whole = [&](std::size_t row) { return row / rows * length + begin + row % rows; };
      for (std::size_t row = 0; row < ids.size(); ++row) ids[row] = all[whole(row)];
      const auto there = model.to_device(ids.view());
      const Numbers some = numbers(model.to_host(model.evaluate(there.view(), {.cache = &cache})));
      for (std::size_t i = 0; threads.rank() == 0 && i < some.size(); ++i)
        logits[whole(i / vocabulary) * vocabulary + i % vocabulary] = some[i];
    }
    threads.barrier();  // peers read this rank's memory until here
  });
  return logits;
}

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

TEST_CASE_TEMPLATE("tokens that follow those of a cache", T, float, bf16) {
  const Numbers of_gpt = in_pieces<Gpt, T>(1, {length});
  const Numbers of_llama = in_pieces<Llama, T>(1, {length});
  for (const int ranks : testing::at_ranks({1, 2, 3, 4, 8})) {
    CAPTURE(ranks);
    CHECK(difference(in_pieces<Gpt, T>(ranks, {5, 1, 1, 4}), of_gpt) <= bound<T>);
    CHECK(difference(in_pieces<Llama, T>(ranks, {2, 7, 1, 1}), of_llama) <= bound<T>);
  }
}
