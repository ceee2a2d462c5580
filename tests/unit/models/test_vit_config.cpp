// What is read of the config.json of a vision transformer, and what is refused.

#include <doctest/doctest.h>

#include <vector>

#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/models/parallelism.hpp"
#include "shardwise/models/vit.hpp"
#include "shardwise/models/vit_files.hpp"
#include "support/messages.hpp"
#include "unit/models/config_text.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::check_refused;
using testing::Fields;
using testing::message_of;

namespace {

/// What the file of the base model says, but for what is not read and most of its classes.
VitConfig read_vit(const Fields& changed) {
  const Fields published{
      {"model_type", "\"vit\""},      {"hidden_act", "\"gelu\""},
      {"num_channels", "3"},          {"image_size", "224"},
      {"patch_size", "16"},           {"hidden_size", "768"},
      {"intermediate_size", "3072"},  {"num_attention_heads", "12"},
      {"num_hidden_layers", "12"},    {"layer_norm_eps", "1e-12"},
      {"qkv_bias", "true"},           {"id2label", R"({"0": "tench", "1": "shark", "2": "hen"})"},
      {"hidden_dropout_prob", "0.1"}, {"encoder_stride", "16"}};
  return testing::read_config(published, changed, read_vit_config);
}

}  // namespace

TEST_CASE("sizes are those of the file") {
  const VitConfig base = read_vit({});
  CHECK(base.channels == 3);
  CHECK(base.side == 224);
  CHECK(base.patch == 16);
  CHECK(base.tokens() == 197);
  CHECK(base.features == 768);
  CHECK(base.hidden == 3072);
  CHECK(base.heads == 12);
  CHECK(base.layers == 12);
  CHECK(base.classes == 3);
  CHECK(base.epsilon == 1e-12);
  CHECK(read_vit({{"id2label", ""}}).classes == 2);
  CHECK(read_vit({{"id2label", ""}, {"num_labels", "7"}}).classes == 7);
  CHECK(read_vit({{"image_size", "230"}}).tokens() ==
        197);  // 6 rows and columns belong to no patch
}

TEST_CASE("tensors have the names of the file, and some have axes in front") {
  VitConfig config = read_vit({});
  config.layers = 1;
  const std::vector<FileTensor> tensors = vit_tensors(config);
  REQUIRE(tensors.size() == 24);
  CHECK(tensors[0].name == "vit.embeddings.patch_embeddings.projection.weight");
  CHECK(tensors[0].ones == 0);
  CHECK(tensors[2].name == "vit.embeddings.cls_token");
  CHECK(tensors[2].ones == 2);
  CHECK(tensors[3].name == "vit.embeddings.position_embeddings");
  CHECK(tensors[3].ones == 1);
  CHECK(tensors[4].name == "vit.encoder.layer.0.layernorm_before.weight");
  CHECK(tensors[23].name == "classifier.bias");
}

TEST_CASE("what cannot be built is refused by its field") {
  check_refused(read_vit,
                {{{{"model_type", "\"deit\""}}, {"model_type is \"deit\""}},
                 {{{"hidden_act", "\"relu\""}}, {"only \"gelu\""}},
                 {{{"qkv_bias", "false"}}, {"qkv_bias is false"}},
                 {{{"num_attention_heads", "7"}}, {"is 7, but it must divide hidden_size"}},
                 {{{"head_dim", "32"}}, {"head_dim is 32, but it must be hidden_size"}},
                 {{{"patch_size", "225"}}, {"patch_size is 225"}},
                 {{{"image_size", "[224, 192]"}}, {"image_size is [224,192]"}},
                 {{{"id2label", "3"}}, {"id2label is 3, but it must be an object"}},
                 {{{"id2label", "{}"}}, {"id2label is {}, but a model has at least one"}},
                 {{{"layer_norm_eps", "null"}}, {"has no layer_norm_eps"}}});
  check_mentions(message_of<argument_error>([] {
                   vit(read_vit({{"patch_size", "14"}}));
                 }),
                 {"VitForm{.patch = 16}", "patches of 14"});
  check_mentions(message_of<argument_error>([] { vit({.patch = 16, .features = 10, .heads = 3}); }),
                 {"vit: ", "10 features", "3 heads"});
}
