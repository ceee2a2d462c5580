// Models of transformers, see transformers.hpp.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "ranks/transformers.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/gpt2_files.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/llama_files.hpp"
#include "shardwise/models/parallelism.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "witness/values.hpp"

using namespace shardwise;
using testing::filled;
using testing::transformers::directory;
using testing::transformers::text;
using testing::transformers::token;

namespace {

template <class P>
void check_gpt2(int size, const std::string& family = "gpt2") {
  const Gpt2Config config = read_gpt2_config(directory(family));
  testing::transformers::check<P>(family, gpt2<P>(config), gpt2_tensors(config), size);
}

template <class P, LlamaForm Form>
void check_llama(const std::string& family, int size) {
  const LlamaConfig config = read_llama_config(directory(family));
  testing::transformers::check<P>(family, llama<P, Form>(config), llama_tensors(config), size);
}

}  // namespace

TEST_CASE("a GPT-2 of transformers") {
  for (const int size : {1, 2, 3, 4, 7}) check_gpt2<TensorParallel>(size);
  for (const int size : {1, 3}) check_gpt2<ContextParallel>(size);
}

TEST_CASE("a GPT-2 of transformers with heads of one feature") {
  for (const int size : {1, 2, 3, 4, 5, 6, 7, 8}) {
    check_gpt2<TensorParallel>(size, "gpt2_heads");
    check_gpt2<SequenceParallel>(size, "gpt2_heads");
    check_gpt2<ContextParallel>(size, "gpt2_heads");
  }
}

TEST_CASE("models of the Llama family of transformers") {
  constexpr LlamaForm plain{}, windowed{.window = 4}, any_window{.window = dynamic},
      tied{.bias = true, .tied = true}, normed{.head_norms = true},
      biases{.bias = true, .output_bias = true, .perceptron_bias = true},
      normed_biases{.bias = true, .output_bias = true, .head_norms = true, .window = 4},
      upper{.bias = true, .tied = true, .window = dynamic, .two_windows = true},
      turns{.head_norms = true, .window = dynamic, .two_windows = true};
  for (const int size : {1, 2, 3, 5, 8}) {
    check_llama<TensorParallel, plain>("llama", size);
    check_llama<TensorParallel, windowed>("mistral", size);
    check_llama<TensorParallel, any_window>("phi3", size);
    check_llama<TensorParallel, any_window>("llama", size);
    check_llama<TensorParallel, tied>("qwen2", size);
    check_llama<TensorParallel, normed>("qwen3", size);
    check_llama<TensorParallel, biases>("llama_biases", size);
    check_llama<TensorParallel, normed_biases>("qwen3_biases", size);
    check_llama<TensorParallel, upper>("qwen2_upper", size);
    check_llama<TensorParallel, turns>("qwen3_turns", size);
  }
  for (const int size : {1, 3}) check_llama<ContextParallel, turns>("qwen3_turns", size);
  for (const int size : {2, 3}) check_llama<SequenceParallel, upper>("qwen2_upper", size);
  for (const int size : {1, 3}) check_llama<ContextParallel, any_window>("mistral", size);
  for (const int size : {2, 3}) check_llama<SequenceParallel, biases>("llama_biases", size);
}

TEST_CASE("a directory in float, as it lies there") {
  const witness::Values theirs("transformers_qwen3");
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    const std::filesystem::path qwen3 = directory("qwen3");
    // begin: directory
    const LlamaConfig config = read_llama_config(qwen3);  // its config.json
    auto net = llama<TensorParallel, LlamaForm{.head_norms = true}>(config);
    Model<decltype(net), Context<float, Reference, ThreadCommunicator>,
          Ends<TensorParallel::ids, TensorParallel::logits>, ForwardOnly>
        model(net, ranks, Seed{3}, text);
    load_weights(qwen3 / "model.safetensors", model,
                 {.names = names_in_order(model, llama_tensors(config))});
    // end: directory
    const auto ids = filled<std::int32_t, Invariant>(text, place_of(ranks), token);
    CHECK(testing::largest_difference_of_part(model.evaluate(ids.view()), [&](std::size_t i) {
            return theirs["logits"][i];
          }) < 1e-5);  // numbers up to 3, rounded in each layer
  });
}
