// What a file has beside the tensors of a model is passed over only where that is right: masks by
// their names, copies if they are equal, others if a program asks for it, and then it is told.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/models/names.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::message_of;
using testing::TemporaryFolder;

namespace {

/// Its table is tied, so the file's head has no place in it.
struct Tied : Sequential<ColumnParallelLinear<5, 7, false>> {};
using Ctx = Context<double, Reference, ThreadCommunicator>;

const TensorNames names{{"0.weight", "model.embed_tokens.weight"}};

/// Saves the model, and beside its table a tensor `name` of these values.
void save_with(const std::filesystem::path& path, const std::string& name,
               const std::vector<double>& values, const Shape& shape) {
  run_ranks(1, [&](ThreadCommunicator& ranks) {
    Model<Tied, Ctx> model(ranks, Seed{4});
    Tensor<double, Invariant> more(shape, place_of(ranks));
    for (std::size_t i = 0; i < values.size(); ++i) more[i] = values[i];
    save_weights(path, model, {.names = names, .own = {part_of(name, more.view())}});
  });
}

/// The values of the table that save_with saves.
std::vector<double> table() {
  std::vector<double> values;
  run_ranks(1, [&](ThreadCommunicator& ranks) {
    Model<Tied, Ctx> model(ranks, Seed{4});
    model.visit_parameters(
        [&](auto& p) { values.assign(p.value.data(), p.value.data() + p.value.size()); });
  });
  return values;
}

/// The error of all ranks that load it; the same on each. A model that is refused keeps its values.
std::string told(const std::filesystem::path& path, int size, const LoadOptions& options) {
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    Model<Tied, Ctx> model(ranks, Seed{9});
    const auto before = model.gather("0.weight");
    std::string& text = texts[static_cast<std::size_t>(ranks.rank())];
    text = message_of<data_error>([&] { load_weights(path, model, options); });
    const auto after = model.gather("0.weight");
    const std::vector<double> saved = table();
    for (std::size_t i = 0; i < saved.size(); ++i)
      CHECK(after[i] == (text.empty() ? saved[i] : before[i]));
  });
  for (const std::string& text : texts) CHECK(text.empty() == texts[0].empty());
  return texts[0];
}

const Shape square{{Axis::output, 7}, {Axis::input, 5}};

}  // namespace

TEST_CASE("a tied head that is no copy of its table is refused, wherever it differs") {
  const TemporaryFolder folder("shardwise_tied");
  const auto path = folder.path() / "tied.safetensors";
  const std::vector<double> right = table();
  for (const int size : {1, 2, 3, 8}) {
    CAPTURE(size);
    save_with(path, "lm_head.weight", right, square);
    CHECK(told(path, size, {.names = names, .others = transformers_others()}) == "");
    check_mentions(told(path, size, {.names = names}), {"unexpected: 'lm_head.weight'"});
    for (const std::size_t at : {0U, 17U, 34U}) {
      std::vector<double> wrong = right;
      wrong[at] += 1e-9;
      save_with(path, "lm_head.weight", wrong, square);
      for (const bool ignore : {false, true})
        check_mentions(
            told(path, size,
                 {.names = names, .others = transformers_others(), .ignore_unexpected = ignore}),
            {"the tensor 'lm_head.weight' is another one than "
             "'model.embed_tokens.weight'",
             "tie_word_embeddings"});
    }
    save_with(path, "lm_head.weight", right, Shape{{Axis::output, 5}, {Axis::input, 7}});
    check_mentions(told(path, size, {.names = names, .others = transformers_others()}),
                   {"is another one than"});
  }
}

TEST_CASE("a copy whose original is not in the file is unexpected") {
  const TemporaryFolder folder("shardwise_no_original");
  const auto path = folder.path() / "file.safetensors";
  save_with(path, "cls.predictions.decoder.weight", table(), square);
  check_mentions(told(path, 2, {.names = names, .others = transformers_others()}),
                 {"unexpected: 'cls.predictions.decoder.weight'"});
}

TEST_CASE("masks, positions and frequencies are passed over, and what is like them is not") {
  const TemporaryFolder folder("shardwise_masks");
  const auto path = folder.path() / "masks.safetensors";
  const LoadOptions options{.names = names, .others = transformers_others()};
  for (const char* name :
       {"h.0.attn.bias", "transformer.h.11.attn.masked_bias",
        "model.layers.0.self_attn.rotary_emb.inv_freq", "bert.embeddings.position_ids"}) {
    CAPTURE(name);
    save_with(path, name, {1, 2}, Shape{{Axis::feature, 2}});
    CHECK(told(path, 2, options) == "");
  }
  for (const char* name :
       {"h.0.attn.c_attn.bias", "attn.bias", "model.norm.bias", "inv_freq.weight"}) {
    CAPTURE(name);
    save_with(path, name, {1, 2}, Shape{{Axis::feature, 2}});
    check_mentions(told(path, 2, options), {"unexpected: '" + std::string(name) + "'"});
  }
}

TEST_CASE("what ignore_unexpected passes over is told") {
  const TemporaryFolder folder("shardwise_passed_over");
  const auto path = folder.path() / "more.safetensors";
  save_with(path, "pooler.dense.bias", {1, 2}, Shape{{Axis::feature, 2}});
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    Model<Tied, Ctx> model(ranks, Seed{9});
    std::vector<std::string> passed_over;
    load_weights(path, model,
                 {.names = names, .ignore_unexpected = true, .passed_over = &passed_over});
    CHECK(passed_over == std::vector<std::string>{"pooler.dense.bias"});
  });
}
