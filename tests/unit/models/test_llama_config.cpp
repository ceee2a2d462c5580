// What is read of the config.json of transformers, versions 4 and 5, and what is refused.

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "shardwise/core/error.hpp"
#include "shardwise/layers/rope_frequencies.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/llama_files.hpp"
#include "support/messages.hpp"
#include "unit/models/config_text.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::check_refused;
using testing::Fields;
using testing::message_of;

namespace {

/// As version 4 writes a small Llama.
const Fields small{{"model_type", "\"llama\""},
                   {"hidden_act", "\"silu\""},
                   {"vocab_size", "100"},
                   {"hidden_size", "48"},
                   {"intermediate_size", "80"},
                   {"num_hidden_layers", "3"},
                   {"num_attention_heads", "6"},
                   {"num_key_value_heads", "2"},
                   {"max_position_embeddings", "64"},
                   {"rms_norm_eps", "1e-06"},
                   {"rope_theta", "500000.0"},
                   {"rope_scaling", "null"},
                   {"tie_word_embeddings", "false"},
                   {"torch_dtype", "\"bfloat16\""}};

const Fields of_experts{
    {"model_type", "\"mixtral\""}, {"num_local_experts", "8"}, {"num_experts_per_tok", "2"}};

LlamaConfig read_llama(const Fields& changed) {
  return testing::read_config(small, changed, read_llama_config);
}

Fields with_experts(const std::string& field, const std::string& value) {
  Fields changed = of_experts;
  changed[field] = value;
  return changed;
}

}  // namespace

TEST_CASE("what a config does not say is a plain Llama") {
  const LlamaConfig plain;
  CHECK(plain.form == LlamaForm{.bias = false,
                                .head_norms = false,
                                .tied = false,
                                .experts = false,
                                .balanced = false,
                                .window = 0});
  for (const std::size_t size :
       {plain.vocabulary, plain.features, plain.hidden, plain.experts, plain.chosen, plain.heads,
        plain.groups, plain.head_size, plain.layers})
    CHECK(size == 0);
  CHECK(plain.balance == 0);
  CHECK(plain.epsilon == 1e-5);
  CHECK(!plain.fused);
}

TEST_CASE("sizes and forms are those of the file") {
  const LlamaConfig llama = read_llama({});
  CHECK(llama.vocabulary == 100);
  CHECK(llama.features == 48);
  CHECK(llama.hidden == 80);
  CHECK(llama.layers == 3);
  CHECK(llama.heads == 6);
  CHECK(llama.groups == 2);
  CHECK(llama.head_size == 8);
  CHECK(llama.epsilon == 1e-6);
  CHECK(llama.form == LlamaForm{});
  CHECK(!llama.fused);
  CHECK(read_llama({{"head_dim", "10"}}).head_size == 10);
  CHECK(read_llama({{"num_key_value_heads", ""}}).groups == 6);
  CHECK(read_llama({{"model_type", "\"mistral\""}, {"sliding_window", "7"}}).form.window == 7);
  CHECK(read_llama({{"model_type", "\"mistral\""}, {"sliding_window", "null"}}).form.window == 0);
  CHECK(read_llama({{"model_type", "\"phi3\""}}).fused);
  const Fields qwen{
      {"model_type", "\"qwen2\""}, {"sliding_window", "7"}, {"tie_word_embeddings", "true"}};
  CHECK(read_llama(qwen).form == LlamaForm{.bias = true, .tied = true});
  Fields windowed = qwen;
  windowed["use_sliding_window"] = "true";
  CHECK(read_llama(windowed).form == LlamaForm{.bias = true, .tied = true, .window = 7});
  CHECK(read_llama({{"model_type", "\"qwen3\""}}).form == LlamaForm{.head_norms = true});
  const LlamaConfig mixtral = read_llama(of_experts);
  CHECK(mixtral.form == LlamaForm{.experts = true});
  CHECK(mixtral.experts == 8);
  CHECK(mixtral.chosen == 2);
}

TEST_CASE("the frequencies of positions are read from both versions") {
  CHECK(read_llama({}).rope.theta == 500000);
  CHECK(read_llama({{"rope_theta", ""}}).rope.theta == 10000);
  CHECK(read_llama({{"partial_rotary_factor", "0.5"}}).rope.features == 4);
  CHECK(
      read_llama({{"rope_scaling", R"({"type": "linear", "factor": 2.0})"}}).rope.scaling.factor ==
      2);
  const std::string llama3 = R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 32})";
  for (const Fields& fields :
       {Fields{{"rope_scaling", "{" + llama3}},
        Fields{{"rope_theta", ""}, {"rope_parameters", "{\"rope_theta\": 500000.0, " + llama3}}}) {
    const RopeOptions rope = read_llama(fields).rope;
    CHECK(rope.theta == 500000);
    CHECK(rope.scaling.kind == RopeScaling::Kind::llama3);
    CHECK(rope.scaling.factor == 8);
    CHECK(rope.scaling.low == 1);
    CHECK(rope.scaling.high == 4);
    CHECK(rope.scaling.original == 32);
  }
  const RopeScaling yarn =
      read_llama({{"rope_scaling", R"({"rope_type": "yarn", "factor": 4.0})"}}).rope.scaling;
  CHECK(yarn.original == 64);
  CHECK(yarn.low == 1);
  CHECK(yarn.high == 32);
  CHECK(yarn.amplitude == doctest::Approx(0.1 * std::log(4.0) + 1));
  CHECK(
      read_llama({{"rope_scaling", R"({"type": "yarn", "factor": 4.0, "attention_factor": 1.5})"}})
          .rope.scaling.amplitude == 1.5);
}

TEST_CASE("what cannot be built is refused by its field") {
  check_refused(
      read_llama,
      {{{{"model_type", "\"gemma2\""}}, {"config.json", "model_type is \"gemma2\"", "qwen3"}},
       {{{"model_type", "3"}}, {"model_type is 3", "a text"}},
       {{{"hidden_act", "\"gelu\""}}, {"hidden_act is \"gelu\"", "only silu"}},
       {{{"attention_bias", "true"}}, {"attention_bias is true"}},
       {{{"mlp_bias", "1"}}, {"mlp_bias is 1", "true or false"}},
       {{{"attention_dropout", "0.1"}}, {"attention_dropout is 0.1"}},
       {{{"layer_types", R"(["full_attention", "sliding_attention"])"}}, {"layer_types is ["}},
       {{{"vocab_size", ""}}, {"has no vocab_size"}},
       {{{"hidden_size", "0"}}, {"hidden_size is 0", "1 to 536870912"}},
       {{{"hidden_size", "-48"}}, {"hidden_size is -48"}},
       {{{"head_dim", "536870913"}}, {"head_dim is 536870913", "1 to 536870912"}},
       {{{"layer_types", std::string(300'000, '[') + std::string(300'000, ']')}},
        {"config.json", "more than 16 deep"}},
       {{{"hidden_size", "50"}}, {"num_attention_heads is 6", "divide hidden_size"}},
       {{{"num_key_value_heads", "4"}}, {"num_key_value_heads is 4", "divide"}},
       {{{"rms_norm_eps", "\"small\""}}, {"rms_norm_eps is \"small\"", "finite number"}},
       {{{"rope_scaling", "3"}}, {"rope_scaling is 3", "an object"}},
       {{{"rope_scaling", R"({"type": "longrope", "factor": 4})"}},
        {"rope_scaling.type is \"longrope\"", "yarn"}},
       {{{"rope_scaling", R"({"type": "linear"})"}}, {"has no rope_scaling.factor"}},
       {{{"rope_scaling", R"({"type": "yarn", "factor": 4, "mscale": 0.7})"}},
        {"rope_scaling.mscale is 0.7"}},
       {{{"partial_rotary_factor", "1.5"}}, {"partial_rotary_factor is 1.5"}},
       {{{"rope_parameters", R"({"full_attention": {}})"}}, {"has no rope_parameters.rope_theta"}},
       {with_experts("num_experts_per_tok", "9"), {"num_experts_per_tok is 9", "no more than"}},
       {with_experts("num_experts_per_tok", "0"), {"num_experts_per_tok is 0"}},
       {with_experts("num_local_experts", ""), {"has no num_local_experts"}},
       {with_experts("router_jitter_noise", "0.1"), {"router_jitter_noise is 0.1", "noise"}},
       {{{"vocab_size", "nonsense"}}, {"no JSON object"}}});
  CHECK(message_of<data_error>([] { read_llama_config("/nowhere"); }) != "");
}

TEST_CASE("a type of another form, and heads that do not fit, are refused") {
  LlamaConfig config = read_llama({{"model_type", "\"qwen2\""}});
  check_mentions(message_of<argument_error>([&] { llama(config); }),
                 {"LlamaForm{.bias = false", "needs the LlamaForm{.bias = true"});
  config.groups = 4;
  check_mentions(message_of<argument_error>([&] { llama(config); }),
                 {"6 query heads", "4 key heads"});
}
