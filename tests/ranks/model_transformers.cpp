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

#include "ranks/model_gpt.hpp"
#include "ranks/model_llama.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/model/model.hpp"
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
using testing::gpt::text;
using testing::gpt::token;

namespace gpt = testing::gpt;
namespace llama = testing::llama;

namespace {

/// Of all parameters, in the order in which a model visits them.
using Places = std::vector<FileTensor>;

void append_weight_and_bias(Places& places, const std::string& name, bool transposed = false,
                            std::size_t first_row = 0) {
  places.emplace_back(name + ".weight", first_row, transposed);
  places.emplace_back(name + ".bias", first_row);
}

// begin: gpt2
/// GPT-2 has all weights of linear layers transposed, and those of queries, keys and values in one.
Places places_of_gpt2() {
  Places places{"transformer.wte.weight", "transformer.wpe.weight"};
  for (const std::string block : {"transformer.h.0.", "transformer.h.1."}) {
    append_weight_and_bias(places, block + "ln_1");
    for (std::size_t i = 0; i < 3; ++i) {
      append_weight_and_bias(places, block + "attn.c_attn", true, i * gpt::wide);
    }
    append_weight_and_bias(places, block + "attn.c_proj", true);
    append_weight_and_bias(places, block + "ln_2");
    append_weight_and_bias(places, block + "mlp.c_fc", true);
    append_weight_and_bias(places, block + "mlp.c_proj", true);
  }
  append_weight_and_bias(places, "transformer.ln_f");
  return places;
}
// end: gpt2

/// Queries, keys and values of a block.
void append_heads(Places& places, const std::string& block, llama::Form form, bool fused) {
  const std::string attention = block + "self_attn.";
  const std::size_t queries = llama::heads * llama::size, keys = llama::groups * llama::size;
  const std::size_t first_rows[] = {0, queries, queries + keys};
  const std::string letters = "qkv";
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string one = attention + letters[i];
    if (fused) {
      places.emplace_back(attention + "qkv_proj.weight", first_rows[i]);
    } else {
      places.emplace_back(one + "_proj.weight");
    }
    if (form.bias) places.emplace_back(one + "_proj.bias");
    if (form.head_norms && i < 2) places.emplace_back(one + "_norm.weight");
  }
}

/// Phi-3 is `fused`: it has queries, keys and values in one weight, and the gate with its factor.
Places places_of_llama(llama::Form form, bool fused) {
  Places places{"model.embed_tokens.weight"};
  for (const std::string block : {"model.layers.0.", "model.layers.1."}) {
    places.emplace_back(block + "input_layernorm.weight");
    append_heads(places, block, form, fused);
    places.emplace_back(block + "self_attn.o_proj.weight");
    places.emplace_back(block + "post_attention_layernorm.weight");
    if (fused) {
      places.emplace_back(block + "mlp.gate_up_proj.weight");
      places.emplace_back(block + "mlp.gate_up_proj.weight", llama::hidden);
    } else {
      places.emplace_back(block + "mlp.gate_proj.weight");
      places.emplace_back(block + "mlp.up_proj.weight");
    }
    places.emplace_back(block + "mlp.down_proj.weight");
  }
  places.emplace_back("model.norm.weight");
  places.emplace_back("lm_head.weight");
  return places;
}

/// Loads a model, runs a step, and saves it to `path`. With a rate of 0 the step leaves weights as
/// they are, and the moments of AdamW tell the gradients.
template <class Net, class Ids, class Logits>
void run(ThreadCommunicator& ranks, const std::filesystem::path& original, const Places& places,
         const witness::Values& theirs, const std::filesystem::path& path) {
  const Place place = place_of(ranks);
  Model<Net, Context<double, Reference, ThreadCommunicator>, Ends<Ids, Logits>> model(
      Net{}, ranks, Seed{3}, text);
  TensorNames names;
  auto next = places.begin();
  model.visit_parameters([&](auto& p) { names.emplace(p.name, *next++); });
  REQUIRE(next == places.end());
  load_weights(original, model, {.names = names, .convert = true});

  const auto ids = filled<std::int32_t, Ids>(text, place, token);
  const auto labels = filled<std::int32_t, Invariant>(text, place, [&](std::size_t i) {
    return i == 3 || i == gpt::positions - 1 ? -100 : token(i + 1);
  });
  const auto logits = model.evaluate(ids.view());
  CHECK(testing::largest_difference_of_part(
            logits, [&](std::size_t i) { return theirs["logits"][i]; }) < 1e-11);
  Optimizer optimizer(model, AdamW{.learning_rate = 0});
  const double loss = train_step(model, ids.view(), labels.view(), MaskedCrossEntropy{}, optimizer);
  CHECK(loss == doctest::Approx(theirs.number("loss")).epsilon(1e-12));
  save_checkpoint(path, model, optimizer, {}, {.names = names});
}

template <class Net, class Ids = Invariant, class Logits = Sharded<Axis::feature>>
void check(const std::string& family, const Places& places, int size) {
  CAPTURE(family);
  CAPTURE(size);
  const witness::Values theirs("transformers/" + family);
  const auto original = std::filesystem::path(__FILE__).parent_path().parent_path() / "witness" /
                        "values" / "hugging_face" / family / "model.safetensors";
  const testing::TemporaryFolder folder("shardwise_transformers");
  const auto path = folder.path() / "ours.safetensors";
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    run<Net, Ids, Logits>(ranks, original, places, theirs, path);
  });
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

}  // namespace

TEST_CASE("a GPT-2 of transformers") {
  using gpt::ContextPlan;
  using gpt::TensorPlan;
  for (const int size : {1, 2, 3, 4, 7}) {
    check<gpt::Gpt2<TensorPlan, gpt::heads, 0>>("gpt2", places_of_gpt2(), size);
  }
  for (const int size : {1, 3}) {
    check<gpt::Gpt2<ContextPlan, gpt::heads, 0>, ContextPlan::ids, ContextPlan::logits>(
        "gpt2", places_of_gpt2(), size);
  }
}

TEST_CASE("models of the Llama family of transformers") {
  constexpr llama::Form scaled{.scaled = true}, windowed{.window = 4}, biased{.bias = true},
      normed{.head_norms = true};
  for (const int size : {1, 2, 3, 5, 8}) {
    check<llama::Llama<scaled>>("llama", places_of_llama(scaled, false), size);
    check<llama::Llama<windowed>>("mistral", places_of_llama(windowed, false), size);
    check<llama::Llama<windowed>>("phi3", places_of_llama(windowed, true), size);
    check<llama::Llama<biased>>("qwen2", places_of_llama(biased, false), size);
    check<llama::Llama<normed>>("qwen3", places_of_llama(normed, false), size);
  }
}
