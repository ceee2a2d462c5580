// What is read of the config.json of a GPT-J and of a Falcon, and what is refused.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/models/falcon_files.hpp"
#include "shardwise/models/gptj_files.hpp"
#include "shardwise/models/parallel_gpt.hpp"
#include "support/messages.hpp"
#include "unit/models/config_text.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::check_refused;
using testing::Fields;
using testing::message_of;

namespace {

/// What the published file says, but for what is not read.
ParallelGptConfig read_gptj(const Fields& changed) {
  const Fields published{{"model_type", "\"gptj\""}, {"activation_function", "\"gelu_new\""},
                         {"vocab_size", "50400"},    {"n_embd", "4096"},
                         {"n_inner", "null"},        {"n_head", "16"},
                         {"n_layer", "28"},          {"layer_norm_epsilon", "1e-05"},
                         {"rotary_dim", "64"},       {"resid_pdrop", "0.0"}};
  return testing::read_config(published, changed, read_gptj_config);
}

/// What the published file of 7 billion parameters says, but for what is not read.
ParallelGptConfig read_falcon(const Fields& changed) {
  const Fields published{{"model_type", "\"falcon\""}, {"vocab_size", "65024"},
                         {"hidden_size", "4544"},      {"num_attention_heads", "71"},
                         {"num_hidden_layers", "32"},  {"layer_norm_epsilon", "1e-05"},
                         {"alibi", "false"},           {"bias", "false"},
                         {"multi_query", "true"},      {"new_decoder_architecture", "false"},
                         {"parallel_attn", "true"},    {"hidden_dropout", "0.0"}};
  return testing::read_config(published, changed, read_falcon_config);
}

/// What that of 40 billion says otherwise.
const Fields forty{{"hidden_size", "8192"},
                   {"num_attention_heads", "128"},
                   {"num_kv_heads", "8"},
                   {"new_decoder_architecture", "true"}};

}  // namespace

TEST_CASE("the sizes of a GPT-J are those of the file") {
  const ParallelGptConfig gptj = read_gptj({});
  CHECK(gptj.form == gptj_form);
  CHECK(gptj.vocabulary == 50400);
  CHECK(gptj.features == 4096);
  CHECK(gptj.hidden == 4 * 4096);
  CHECK(gptj.heads == 16);
  CHECK(gptj.groups == 16);
  CHECK(gptj.head_size == 256);
  CHECK(gptj.layers == 28);
  CHECK(gptj.epsilon == 1e-5);
  CHECK(gptj.rope.features == 64);
  CHECK(gptj.rope.pairs == Rope::Pairs::neighbours);
  CHECK(read_gptj({{"n_inner", "100"}}).hidden == 100);
}

TEST_CASE("sizes and forms of Falcons are those of the file") {
  const ParallelGptConfig seven = read_falcon({});
  CHECK(seven.form == ParallelGptForm{.tied = true});
  CHECK(seven.vocabulary == 65024);
  CHECK(seven.features == 4544);
  CHECK(seven.hidden == 4 * 4544);
  CHECK(seven.heads == 71);
  CHECK(seven.groups == 1);
  CHECK(seven.head_size == 64);
  CHECK(seven.layers == 32);
  CHECK(seven.rope.features == 64);
  CHECK(seven.rope.pairs == Rope::Pairs::halves);
  CHECK(read_falcon({{"ffn_hidden_size", "100"}}).hidden == 100);
  CHECK(read_falcon({{"multi_query", "false"}}).groups == 71);
  const ParallelGptForm biased{.attention_bias = true, .perceptron_bias = true};
  CHECK(read_falcon({{"bias", "true"}, {"tie_word_embeddings", "false"}}).form == biased);

  CHECK(read_falcon(forty).groups == 8);
  CHECK(read_falcon(forty).form == ParallelGptForm{.two_norms = true, .tied = true});
  Fields eleven = forty;
  eleven["num_ln_in_parallel_attn"] = "1";
  CHECK(read_falcon(eleven).form == ParallelGptForm{.tied = true});
}

TEST_CASE("the heads of a Falcon are in turns in the file") {
  const std::vector<FileTensor> tensors = falcon_tensors(read_falcon(forty));
  // begin: pieces
  // 8 times 16 query heads, their key head and their value head, of 64 features each.
  const std::string name = "transformer.h.0.self_attention.query_key_value.weight";
  const std::vector<FileTensor> heads{FileTensor{name}.in_pieces(16 * 64, 18 * 64),
                                      FileTensor{name, 16 * 64}.in_pieces(64, 18 * 64),
                                      FileTensor{name, 17 * 64}.in_pieces(64, 18 * 64)};
  // end: pieces
  for (std::size_t i = 0; i < 3; ++i) {
    const FileTensor& made = tensors.at(3 + i);
    CHECK(made.name == heads[i].name);
    CHECK(made.first_row == heads[i].first_row);
    CHECK(made.piece == heads[i].piece);
    CHECK(made.apart == heads[i].apart);
  }
}

TEST_CASE("what cannot be built is refused by its field") {
  check_refused(read_gptj, {{{{"model_type", "\"gpt2\""}}, {"model_type is \"gpt2\""}},
                            {{{"activation_function", "\"relu\""}}, {"only \"gelu_new\""}},
                            {{{"tie_word_embeddings", "true"}}, {"tie_word_embeddings is true"}},
                            {{{"attn_pdrop", "0.1"}}, {"attn_pdrop is 0.1"}},
                            {{{"n_head", "7"}}, {"n_head is 7, but it must divide"}},
                            {{{"rotary_dim", "63"}}, {"rotary_dim is 63"}},
                            {{{"rotary_dim", "258"}}, {"rotary_dim is 258"}},
                            {{{"rotary_dim", "null"}}, {"has no rotary_dim"}}});
  check_refused(
      read_falcon,
      {{{{"model_type", "\"RefinedWeb\""}}, {"model_type is \"RefinedWeb\""}},
       {{{"activation", "\"relu\""}}, {"activation is \"relu\""}},
       {{{"alibi", "true"}}, {"alibi is true"}},
       {{{"parallel_attn", "false"}}, {"parallel_attn is false"}},
       {{{"apply_residual_connection_post_layernorm", "true"}}, {"post_layernorm is true"}},
       {{{"hidden_dropout", "0.1"}}, {"hidden_dropout is 0.1"}},
       {{{"num_attention_heads", "70"}}, {"num_attention_heads is 70"}},
       {{{"num_ln_in_parallel_attn", "2"}}, {"num_ln_in_parallel_attn is 2"}},
       {{{"rope_scaling", R"({"type": "dynamic", "factor": 2})"}}, {"rope_scaling.type"}},
       {{{"new_decoder_architecture", "true"}, {"num_kv_heads", "7"}}, {"num_kv_heads is 7"}}});
}

TEST_CASE("a type of another form, and heads that do not fit, are refused") {
  ParallelGptConfig config = read_gptj({});
  check_mentions(message_of<argument_error>(
                     [&] { parallel_gpt<TensorParallel, ParallelGptForm{.tied = true}>(config); }),
                 {"parallel_gpt: the type has the ParallelGptForm{.two_norms = false",
                  "needs the ParallelGptForm{.two_norms = false", ".gelu_tanh = true}"});
  config.groups = 5;
  check_mentions(message_of<argument_error>([&] { parallel_gpt(config); }),
                 {"16 query heads", "5 key heads"});
}
