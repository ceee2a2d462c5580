// What is read of the config.json of a BERT, and what is refused.

#include <doctest/doctest.h>

#include "shardwise/core/error.hpp"
#include "shardwise/models/bert.hpp"
#include "shardwise/models/bert_files.hpp"
#include "support/messages.hpp"
#include "unit/models/config_text.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::check_refused;
using testing::Fields;
using testing::message_of;

namespace {

/// What the file of the smaller published model says, but for what is not read.
BertConfig read_bert(const Fields& changed) {
  const Fields published{{"model_type", "\"bert\""},    {"hidden_act", "\"gelu\""},
                         {"vocab_size", "30522"},       {"max_position_embeddings", "512"},
                         {"type_vocab_size", "2"},      {"hidden_size", "768"},
                         {"intermediate_size", "3072"}, {"num_attention_heads", "12"},
                         {"num_hidden_layers", "12"},   {"layer_norm_eps", "1e-12"},
                         {"hidden_dropout_prob", "0.1"}};
  return testing::read_config(published, changed, read_bert_config);
}

}  // namespace

TEST_CASE("sizes are those of the file") {
  const BertConfig base = read_bert({});
  CHECK(base.vocabulary == 30522);
  CHECK(base.positions == 512);
  CHECK(base.types == 2);
  CHECK(base.features == 768);
  CHECK(base.hidden == 3072);
  CHECK(base.heads == 12);
  CHECK(base.layers == 12);
  CHECK(base.epsilon == 1e-12);
  CHECK(bert_tensors(base).size() == 3 + 2 + 12 * 16 + 4 + 1);
}

TEST_CASE("what cannot be built is refused by its field") {
  check_refused(read_bert,
                {{{{"model_type", "\"roberta\""}}, {"model_type is \"roberta\""}},
                 {{{"hidden_act", "\"gelu_new\""}}, {"hidden_act is \"gelu_new\""}},
                 {{{"position_embedding_type", "\"relative_key\""}}, {"only \"absolute\""}},
                 {{{"tie_word_embeddings", "false"}}, {"tie_word_embeddings is false"}},
                 {{{"is_decoder", "true"}}, {"is_decoder is true"}},
                 {{{"add_cross_attention", "true"}}, {"add_cross_attention is true"}},
                 {{{"num_attention_heads", "7"}}, {"num_attention_heads is 7, but it must divide"}},
                 {{{"type_vocab_size", "0"}}, {"type_vocab_size is 0"}},
                 {{{"type_vocab_size", "null"}}, {"has no type_vocab_size"}}});
  check_mentions(message_of<argument_error>([] { bert({.features = 10, .heads = 3}); }),
                 {"bert: 10 features", "3 heads"});
}
