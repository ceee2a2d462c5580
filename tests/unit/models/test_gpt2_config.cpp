// What is read of the config.json of a GPT-2, and what is refused.

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/gpt2_files.hpp"
#include "support/messages.hpp"
#include "unit/models/config_text.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::check_refused;
using testing::Fields;
using testing::message_of;

namespace {

/// What the file of the smallest published model says, but for what is not read.
Gpt2Config read_gpt2(const Fields& changed) {
  const Fields published{{"model_type", "\"gpt2\""}, {"activation_function", "\"gelu_new\""},
                         {"vocab_size", "50257"},    {"n_positions", "1024"},
                         {"n_embd", "768"},          {"n_head", "12"},
                         {"n_layer", "12"},          {"layer_norm_epsilon", "1e-05"},
                         {"resid_pdrop", "0.1"}};
  return testing::read_config(published, changed, read_gpt2_config);
}

}  // namespace

TEST_CASE("sizes are those of the file") {
  const Gpt2Config small = read_gpt2({});
  CHECK(small.vocabulary == 50257);
  CHECK(small.positions == 1024);
  CHECK(small.features == 768);
  CHECK(small.hidden == 3072);
  CHECK(small.heads == 12);
  CHECK(small.layers == 12);
  CHECK(small.epsilon == 1e-5);
  CHECK(read_gpt2({{"n_inner", "100"}}).hidden == 100);
}

TEST_CASE("the tensors of the published file are named without a prefix") {
  Gpt2Config config = read_gpt2({});
  config.layers = 1;
  const std::vector<FileTensor> tensors = gpt2_tensors(config, "");
  REQUIRE(tensors.size() == 20);
  CHECK(tensors.front().name == "wte.weight");
  // begin: fused
  const std::vector<FileTensor> heads{{"h.0.attn.c_attn.weight", 0, true},      // queries
                                      {"h.0.attn.c_attn.weight", 768, true},    // keys
                                      {"h.0.attn.c_attn.weight", 1536, true}};  // values
  // end: fused
  for (std::size_t i = 0; i < 3; ++i) {
    const FileTensor &weight = tensors[4 + 2 * i], &bias = tensors[5 + 2 * i];
    CHECK(weight.name == heads[i].name);
    CHECK(weight.first_row == heads[i].first_row);
    CHECK(weight.transposed);
    CHECK(bias.name == "h.0.attn.c_attn.bias");
    CHECK(bias.first_row == heads[i].first_row);
    CHECK(!bias.transposed);
  }
}

TEST_CASE("a refusal of which a test says no word fails the test" * doctest::expected_failures(2)) {
  check_refused(read_gpt2, {{{{"n_head", "7"}}, {}}, {{{"n_head", "7"}}, {""}}});
}

TEST_CASE("what cannot be built is refused by its field") {
  check_refused(read_gpt2, {{{{"model_type", "\"bert\""}}, {"model_type is \"bert\""}},
                            {{{"activation_function", "\"relu\""}}, {"only \"gelu_new\""}},
                            {{{"scale_attn_weights", "false"}}, {"scale_attn_weights"}},
                            {{{"tie_word_embeddings", "false"}}, {"tie_word_embeddings"}},
                            {{{"add_cross_attention", "true"}}, {"add_cross_attention"}},
                            {{{"n_head", "7"}}, {"n_head is 7, but it must divide"}},
                            {{{"n_embd", "null"}}, {"has no n_embd"}}});
  check_mentions(message_of<argument_error>([] { gpt2({.features = 10, .heads = 3}); }),
                 {"10 features", "3 heads"});
}
