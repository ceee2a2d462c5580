// What is read of the config.json of transformers, versions 4 and 5, and what is refused.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/rope_frequencies.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/llama_files.hpp"
#include "shardwise/models/llama_forms.hpp"
#include "shardwise/models/parallelism.hpp"
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
  CHECK(read_llama({{"model_type", "\"phi3\""}}).fused);
  CHECK(read_llama({{"model_type", "\"qwen2\""}, {"tie_word_embeddings", "true"}}).form ==
        LlamaForm{.bias = true, .tied = true});
  CHECK(read_llama({{"model_type", "\"qwen3\""}}).form == LlamaForm{.head_norms = true});
  CHECK(read_llama({{"attention_bias", "true"}}).form ==
        LlamaForm{.bias = true, .output_bias = true});
  CHECK(read_llama({{"mlp_bias", "true"}}).form == LlamaForm{.perceptron_bias = true});
  const LlamaConfig mixtral = read_llama(of_experts);
  CHECK(mixtral.form == LlamaForm{.experts = true});
  CHECK(mixtral.experts == 8);
  CHECK(mixtral.chosen == 2);
}

TEST_CASE("what a file does not say is as in the family's class of transformers") {
  const auto without = [](const std::string& family, const std::string& field) {
    return read_llama({{"model_type", '"' + family + '"'}, {field, ""}});
  };
  CHECK(without("llama", "num_key_value_heads").groups == 6);
  CHECK(without("llama", "rms_norm_eps").epsilon == 1e-6);
  CHECK(without("mixtral", "rms_norm_eps").epsilon == 1e-5);
  CHECK(without("mixtral", "rope_theta").rope.theta == 1e6);
  CHECK(without("llama", "hidden_act").features == 48);
  CHECK(without("mistral", "sliding_window").form.window == 4096);
  CHECK(without("mixtral", "sliding_window").form.window == 0);
  CHECK(without("qwen3", "head_dim").head_size == 128);
  CHECK(without("llama", "vocab_size").vocabulary == 32000);
  const Fields yarn{{"max_position_embeddings", ""},
                    {"rope_scaling", R"({"type": "yarn", "factor": 4.0})"}};
  CHECK(read_llama(yarn).rope.scaling.original == 2048);
  for (const std::string family : {"mistral", "mixtral"}) {
    Fields eight{{"model_type", '"' + family + '"'}, {"num_key_value_heads", ""}};
    check_refused(read_llama, {{eight, {"num_key_value_heads is 8", "divide"}}});
    eight["num_attention_heads"] = "16";
    CHECK(read_llama(eight).groups == 8);
    eight["num_key_value_heads"] = "null";
    CHECK(read_llama(eight).groups == 16);
  }
}

namespace {

const std::string full = R"("full_attention")", part = R"("sliding_attention")";

/// The same with a window of 7, if the file has none.
LlamaConfig read_windowed(Fields changed, const char* family) {
  changed["model_type"] = '"' + std::string(family) + '"';
  changed.try_emplace("sliding_window", "7");
  return read_llama(changed);
}

/// A config of Qwen with layer types, `f` and `s`.
LlamaConfig read_layers(const std::string& letters, const char* family = "qwen3") {
  std::string types = "[";
  for (const char letter : letters)
    types += (types == "[" ? "" : ",") + (letter == 's' ? part : full);
  return read_windowed({{"use_sliding_window", "true"},
                        {"num_hidden_layers", std::to_string(letters.size())},
                        {"layer_types", types + ']'}},
                       family);
}

/// What the config says of the layers, in order: 0, or a window.
std::vector<std::size_t> windows(const LlamaConfig& config) {
  std::vector<std::size_t> all;
  if (!config.form.two_windows) return {config.layers, config.form.window};
  CHECK(config.form.window == dynamic);
  while (all.size() < config.layers)
    for (const LlamaRun& run : config.turn) all.insert(all.end(), run.layers, run.window);
  return all;
}

}  // namespace

TEST_CASE("the window is that of all layers") {
  const auto window = [](const Fields& changed, const char* family) {
    const LlamaConfig read = read_windowed(changed, family);
    CHECK(!read.form.two_windows);
    return read.form.window;
  };
  const std::string all_full = '[' + full + ',' + full + ',' + full + ']';
  const std::string all_part = '[' + part + ',' + part + ',' + part + ']';
  const std::string mixed = '[' + full + ',' + part + ',' + part + ']';
  const auto refused = [&](const Fields& changed, const char* family, const char* field) {
    check_mentions(message_of<data_error>([&] { window(changed, family); }), {field});
  };
  for (const Fields& other : {Fields{}, Fields{{"layer_types", all_part}},
                              Fields{{"use_sliding_window", "true"}, {"max_window_layers", "0"}}})
    CHECK(window(other, "llama") == 0);
  for (const char* family : {"mistral", "mixtral", "phi3"}) {
    CHECK(window({}, family) == 7);
    CHECK(window({{"layer_types", all_part}}, family) == 7);
    CHECK(window({{"sliding_window", "null"}}, family) == 0);
    CHECK(window({{"sliding_window", "null"}, {"layer_types", all_full}}, family) == 0);
    refused({{"sliding_window", "null"}, {"layer_types", all_part}}, family, "layer_types is [");
    refused({{"layer_types", all_full}}, family, "layer_types is [");
    refused({{"layer_types", mixed}}, family, "layer_types is [");
    refused({{"sliding_window", "0"}}, family, "sliding_window is 0");
  }
  for (const char* family : {"qwen2", "qwen3"}) {
    const auto used = [](Fields more) {
      more["use_sliding_window"] = "true";
      return more;
    };
    CHECK(window({}, family) == 0);
    CHECK(window({{"max_window_layers", "0"}}, family) == 0);
    CHECK(window(used({}), family) == 0);  // from layer 28 on, and there are 3
    CHECK(window(used({{"max_window_layers", "3"}}), family) == 0);
    CHECK(window(used({{"max_window_layers", "0"}}), family) == 7);
    CHECK(window(used({{"sliding_window", "null"}, {"max_window_layers", "0"}}), family) == 0);
    CHECK(window(used({{"layer_types", all_full}, {"max_window_layers", "0"}}), family) == 0);
    CHECK(window(used({{"layer_types", all_part}}), family) == 7);
    refused({{"layer_types", all_part}}, family, "use_sliding_window");
  }
  CHECK(window({{"layer_types", mixed}}, "llama") == 0);
  refused({{"layer_types", '[' + part + ']'}}, "llama", "each of num_hidden_layers");
  refused({{"layer_types", '[' + part + ']'}}, "mistral", "each of num_hidden_layers");
  refused({{"layer_types", R"(["full_attention", "full_attention", 3])"}}, "qwen3",
          "list of texts");
  refused({{"layer_types", R"(["full_attention", "full_attention", "conv"])"}}, "qwen3",
          "layer_types is [");
}

TEST_CASE("two windows are in turns") {
  using Windows = std::vector<std::size_t>;
  for (const char* family : {"qwen2", "qwen3"}) {
    for (const char* first : {"1", "2"}) {
      const LlamaConfig upper =
          read_windowed({{"use_sliding_window", "true"}, {"max_window_layers", first}}, family);
      CHECK(windows(upper) == (*first == '1' ? Windows{0, 7, 7} : Windows{0, 0, 7}));
    }
    CHECK(windows(read_layers("fs", family)) == Windows{0, 7});
    CHECK(windows(read_layers("sf", family)) == Windows{7, 0});
    CHECK(windows(read_layers("fsfs", family)) == Windows{0, 7, 0, 7});
    CHECK(windows(read_layers("ssfssf", family)) == Windows{7, 7, 0, 7, 7, 0});
    CHECK(windows(read_layers("ffss", family)) == Windows{0, 0, 7, 7});
    CHECK(windows(read_layers("ssss", family)) == Windows{4, 7});
    CHECK(windows(read_layers("ffff", family)) == Windows{4, 0});
  }
  const auto refused = [](const char* letters, const std::vector<std::string>& said) {
    check_mentions(message_of<data_error>([&] { read_layers(letters); }), said);
  };
  refused("fsf", {"layer_types is [", "turn of 1 and 1 layers", "go on at layer 2;"});
  refused("fsfssf", {"turn of 1 and 1 layers", "go on at layer 4;"});
  refused("ssfssfs", {"turn of 2 and 1 layers", "go on at layer 6;", "as many layers each time"});
  refused("ssfsfs", {"turn of 2 and 1 layers", "go on at layer 4;"});
}

TEST_CASE("two windows need a type that has them, and whole turns") {
  LlamaConfig config = read_layers("ssfssf");
  const auto refused = [&](auto&& make) { return message_of<argument_error>(make); };
  constexpr LlamaForm one{.head_norms = true, .window = dynamic},
      two{.head_norms = true, .window = dynamic, .two_windows = true};
  check_mentions(refused([&] { llama<TensorParallel, one>(config); }),
                 {"the type has the LlamaForm{", ".two_windows = false}, but this model needs the",
                  ".window = dynamic, .two_windows = true} for layers in turn: 2 with a window of "
                  "7, then 1 without a window"});
  check_mentions(
      refused([&] { with_llama(config, [](const auto&) {}); }),
      {".two_windows = true} for layers in turn: 2 with a window of 7, then 1 without a window"});
  CHECK(llama<TensorParallel, two>(config).layer<2>().times() == 2);
  config.layers = 7;
  check_mentions(refused([&] { llama<TensorParallel, two>(config); }),
                 {"7 layers are no whole number of turns of 2 and 1 layers"});
  config.turn[0] = config.turn[1] = {};
  check_mentions(refused([&] { llama<TensorParallel, two>(config); }), {"turns of 0 and 0 layers"});
  check_mentions(refused([&] { llama<TensorParallel, two>(read_layers("ffff")); }),
                 {"needs the", ".two_windows = false}"});
}

TEST_CASE("the frequencies of positions are read from both versions") {
  CHECK(read_llama({}).rope.theta == 500000);
  CHECK(read_llama({{"rope_theta", ""}}).rope.theta == 10000);
  const Fields phi3{{"model_type", "\"phi3\""}, {"partial_rotary_factor", "0.5"}};
  CHECK(read_llama(phi3).rope.features == 4);
  const Rope::Options both = read_llama({{"rope_parameters", R"({"rope_theta": 300.0})"},
                                         {"rope_scaling", R"({"type": "linear", "factor": 2.0})"}})
                                 .rope;
  CHECK(both.theta == 500000);
  CHECK(both.scaling.factor == 2);
  CHECK(read_llama({{"rope_parameters", R"({"rope_theta": 300.0})"}}).rope.theta == 300);
  CHECK(read_llama({{"rope_parameters", R"({"rope_type": "default"})"}}).rope.theta == 500000);
  CHECK(
      read_llama({{"rope_scaling", R"({"type": "linear", "factor": 2.0})"}}).rope.scaling.factor ==
      2);
  const std::string llama3 = R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 32})";
  for (const Fields& fields :
       {Fields{{"rope_scaling", "{" + llama3}},
        Fields{{"rope_theta", ""}, {"rope_parameters", "{\"rope_theta\": 500000.0, " + llama3}}}) {
    const Rope::Options rope = read_llama(fields).rope;
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
  const auto amplitude = [](const std::string& more) {
    const std::string yarn = R"({"type": "yarn", "factor": 4.0, )" + more + '}';
    return read_llama({{"rope_scaling", yarn}}).rope.scaling.amplitude;
  };
  CHECK(amplitude(R"("attention_factor": 1.5)") == 1.5);
  CHECK(amplitude(R"("mscale": 0.7, "truncate": true)") == yarn.amplitude);
  CHECK(amplitude(R"("mscale": 0.7, "mscale_all_dim": 2)") ==
        doctest::Approx((0.07 * std::log(4.0) + 1) / (0.2 * std::log(4.0) + 1)));
}

TEST_CASE("what cannot be built is refused by its field") {
  check_refused(
      read_llama,
      {{{{"model_type", "\"gemma2\""}}, {"config.json", "model_type is \"gemma2\"", "qwen3"}},
       {{{"model_type", "3"}}, {"model_type is 3", "a text"}},
       {{{"hidden_act", "\"gelu\""}}, {"hidden_act is \"gelu\"", "only \"silu\""}},
       {{{"model_type", "\"mistral\""}, {"attention_bias", "true"}}, {"attention_bias is true"}},
       {{{"a_field_of_tomorrow", "false"}},
        {"a_field_of_tomorrow is false", "take it out of the file if"}},
       {{{"mlp_bias", "1"}}, {"mlp_bias is 1", "true or false"}},
       {{{"attention_dropout", "0.1"}}, {"attention_dropout is 0.1"}},
       {{{"vocab_size", "null"}}, {"has no vocab_size"}},
       {{{"hidden_size", "0"}}, {"hidden_size is 0", "1 to 536870912"}},
       {{{"hidden_size", "-48"}}, {"hidden_size is -48"}},
       {{{"model_type", "\"qwen3\""}, {"head_dim", "null"}}, {"has no head_dim"}},
       {{{"head_dim", "536870913"}}, {"head_dim is 536870913", "1 to 536870912"}},
       {{{"layer_types", std::string(300'000, '[') + std::string(300'000, ']')}},
        {"config.json", "more than 16 deep"}},
       {{{"hidden_size", "50"}}, {"num_attention_heads is 6", "divide hidden_size"}},
       {{{"num_key_value_heads", "4"}}, {"num_key_value_heads is 4", "divide"}},
       {{{"rms_norm_eps", "\"small\""}}, {"rms_norm_eps is \"small\"", "finite number"}},
       {{{"rope_scaling", "3"}}, {"rope_scaling is 3", "an object"}},
       {{{"rope_scaling", R"({"type": "longrope", "long_factor": [2]})"}},
        {"rope_scaling.type is \"longrope\"", "yarn"}},
       {{{"rope_scaling", R"({"type": "su"})"}}, {"rope_scaling.type is \"su\""}},
       {{{"rope_scaling", R"({"type": "mrope"})"}}, {"rope_scaling.type is \"mrope\""}},
       {{{"rope_scaling", R"({"rope_type": "dynamic"})"}},
        {"rope_scaling.rope_type is \"dynamic\""}},
       {{{"rope_scaling", R"({"type": "linear", "mrope_section": [1]})"}},
        {"mrope_section is [1]"}},
       {{{"model_type", "\"phi3\""}, {"rope_scaling", R"({"type": "yarn", "factor": 2})"}},
        {"rope_scaling.type is \"yarn\"", "default"}},
       {{{"rope_scaling", R"({"type": "linear"})"}}, {"has no rope_scaling.factor"}},
       {{{"rope_scaling", R"({"type": "yarn", "factor": 4, "truncate": false})"}},
        {"rope_scaling.truncate is false"}},
       {{{"model_type", "\"phi3\""}, {"partial_rotary_factor", "0.4"}},
        {"partial_rotary_factor is 0.4", "even number"}},
       {{{"partial_rotary_factor", "1.5"}}, {"partial_rotary_factor is 1.5"}},
       {{{"rope_parameters", R"({"full_attention": {}})"}}, {"full_attention is {}"}},
       {{{"rope_parameters", R"({"partial_rotary_factor": 0.5})"}},
        {"rope_parameters.partial_rotary_factor is 0.5"}},
       {with_experts("num_experts_per_tok", "9"), {"num_experts_per_tok is 9", "no more than"}},
       {with_experts("num_experts_per_tok", "0"), {"num_experts_per_tok is 0"}},
       {with_experts("num_local_experts", "null"), {"has no num_local_experts"}},
       {with_experts("router_jitter_noise", "0.1"), {"router_jitter_noise is 0.1", "only 0.0"}},
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
