// Models of transformers, read from the directories that it writes, give its logits, loss and
// gradients, and are written back under its names. The directories are those of
// tests/witness/make_transformers.py.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/gpt2_files.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/llama_files.hpp"
#include "shardwise/models/plan.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/step.hpp"
#include "support/file_tensors.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/temporary_folder.hpp"
#include "witness/values.hpp"

using namespace shardwise;
using testing::filled;
using testing::numbers_of;

namespace {

constexpr Shape text{{Axis::batch, 2}, {Axis::sequence, 11}};

constexpr std::int32_t token(std::size_t i) { return static_cast<std::int32_t>(i * i % 13); }

std::filesystem::path directory(const std::string& family) {
  return std::filesystem::path(__FILE__).parent_path().parent_path() / "witness" / "values" /
         "hugging_face" / family;
}

/// Loads a model, runs a step, and saves it to `path`. With a rate of 0 the step leaves weights as
/// they are, and the moments of AdamW tell the gradients.
template <class P, class Net>
void run(ThreadCommunicator& ranks, const Net& net, const std::filesystem::path& original,
         const std::vector<FileTensor>& places, const witness::Values& theirs,
         const std::filesystem::path& path) {
  const Place place = place_of(ranks);
  Model<Net, Context<double, Reference, ThreadCommunicator>,
        Ends<typename P::ids, typename P::logits>>
      model(net, ranks, Seed{3}, text);
  const TensorNames names = names_in_order(model, places);
  load_weights(original, model, {.names = names, .convert = true});

  const auto ids = filled<std::int32_t, typename P::ids>(text, place, token);
  const auto labels = filled<std::int32_t, Invariant>(
      text, place, [&](std::size_t i) { return i == 3 || i == 10 ? -100 : token(i + 1); });
  const auto logits = model.evaluate(ids.view());
  CHECK(testing::largest_difference_of_part(
            logits, [&](std::size_t i) { return theirs["logits"][i]; }) < 1e-11);
  Optimizer optimizer(model, AdamW{.learning_rate = 0});
  const double loss = train_step(model, ids.view(), labels.view(), MaskedCrossEntropy{}, optimizer);
  CHECK(loss == doctest::Approx(theirs.number("loss")).epsilon(1e-12));
  save_checkpoint(path, model, optimizer, {}, {.names = names});
}

template <class P, class Net>
void check(const std::string& family, const Net& net, const std::vector<FileTensor>& places,
           int size) {
  CAPTURE(family);
  CAPTURE(size);
  const witness::Values theirs("transformers/" + family);
  const auto original = directory(family) / "model.safetensors";
  const testing::TemporaryFolder folder("shardwise_transformers");
  const auto path = folder.path() / "ours.safetensors";
  run_ranks(size,
            [&](ThreadCommunicator& ranks) { run<P>(ranks, net, original, places, theirs, path); });
  const TensorFiles before(original), ours(path);
  CHECK(ours.tensors().size() == 3 * before.tensors().size());
  for (const auto& tensor : before.tensors()) {
    const std::string& name = tensor.first;
    CAPTURE(name);
    CHECK(ours.tensors().at(name).info.shape == tensor.second.info.shape);
    CHECK(numbers_of<double>(ours, name) == numbers_of<float>(before, name));
    const auto gradient = theirs["gradient " + name];
    const auto mean = numbers_of<double>(ours, "optimizer." + name + ".moment0");
    const auto square = numbers_of<double>(ours, "optimizer." + name + ".moment1");
    REQUIRE(mean.size() == gradient.size());
    double largest = 0;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      largest = std::max({largest, std::abs(mean[i] / 0.1 - gradient[i]),
                          std::abs(square[i] / 0.001 - gradient[i] * gradient[i])});
    }
    CHECK(largest < 1e-11);
  }
}

template <class P>
void check_gpt2(int size) {
  const Gpt2Config config = read_gpt2_config(directory("gpt2"));
  check<P>("gpt2", gpt2<P>(config), gpt2_tensors(config), size);
}

template <class P, LlamaForm Form>
void check_llama(const std::string& family, int size) {
  const LlamaConfig config = read_llama_config(directory(family));
  check<P>(family, llama<P, Form>(config), llama_tensors(config), size);
}

}  // namespace

TEST_CASE("a GPT-2 of transformers") {
  for (const int size : {1, 2, 3, 4, 7}) check_gpt2<TensorPlan>(size);
  for (const int size : {1, 3}) check_gpt2<ContextPlan>(size);
}

TEST_CASE("models of the Llama family of transformers") {
  constexpr LlamaForm plain{}, windowed{.window = 4}, tied{.bias = true, .tied = true},
      normed{.head_norms = true};
  for (const int size : {1, 2, 3, 5, 8}) {
    check_llama<TensorPlan, plain>("llama", size);
    check_llama<TensorPlan, windowed>("mistral", size);
    check_llama<TensorPlan, windowed>("phi3", size);
    check_llama<TensorPlan, tied>("qwen2", size);
    check_llama<TensorPlan, normed>("qwen3", size);
  }
}

TEST_CASE("a directory in float, as it lies there") {
  const witness::Values theirs("transformers/qwen3");
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    const std::filesystem::path qwen3 = directory("qwen3");
    // begin: directory
    const LlamaConfig config = read_llama_config(qwen3);  // its config.json
    auto net = llama<TensorPlan, LlamaForm{.head_norms = true}>(config);
    Model<decltype(net), Context<float, Reference, ThreadCommunicator>,
          Ends<TensorPlan::ids, TensorPlan::logits>, ForwardOnly>
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
