// Every field of config.json of every family: with another value, and where it is not there, a
// model computes what transformers computes, or the field is refused. The cases are those of
// tests/witness/make_config_fields.py; the models are those of transformers.hpp.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ranks/transformers.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/models/bert.hpp"
#include "shardwise/models/bert_files.hpp"
#include "shardwise/models/config_fields.hpp"
#include "shardwise/models/falcon_files.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/gpt2_files.hpp"
#include "shardwise/models/gptj_files.hpp"
#include "shardwise/models/llama_files.hpp"
#include "shardwise/models/llama_forms.hpp"
#include "shardwise/models/parallel_gpt.hpp"
#include "shardwise/models/parallelism.hpp"
#include "shardwise/models/vit.hpp"
#include "shardwise/models/vit_files.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/temporary_folder.hpp"
#include "witness/formula.hpp"
#include "witness/values.hpp"

using namespace shardwise;
using nlohmann::json;
using testing::filled;
using testing::transformers::directory;
using testing::transformers::text;
using testing::transformers::token;

namespace {

/// The largest difference of the logits of a model from `theirs`, over the rows of tokens.
class Difference {
 public:
  Difference(std::filesystem::path weights, std::span<const double> theirs)
      : weights_(std::move(weights)), theirs_(theirs) {}

  template <class Model_, class View>
  double of(Model_& model, const std::vector<FileTensor>& places, const View& view,
            const std::vector<Segment>& segments = {}) const {
    load_weights(weights_, model, {.names = names_in_order(model, places), .convert = true});
    const auto logits = model.evaluate(view, {.segments = segments});
    REQUIRE(logits.size() == theirs_.size());
    const auto counts = [&](std::size_t i) {
      const std::size_t row = i / logits.global().back().extent();
      return segments.empty() ||
             std::any_of(segments.begin(), segments.end(), [row](const Segment& one) {
               return row >= one.row && row < one.row + one.rows;
             });
    };
    return testing::largest_difference_of_part(
        logits, [&](std::size_t i) { return theirs_[i]; }, counts);
  }

  template <class Ends_, class Net, class Shapes>
  static auto model(const Net& net, SingleRank& alone, const Shapes& shapes) {
    return Model<Net, Context<double, Reference, SingleRank>, Ends_, ForwardOnly>(net, alone,
                                                                                  Seed{3}, shapes);
  }

 private:
  std::filesystem::path weights_;
  std::span<const double> theirs_;
};

/// No weights here have so large a size, and to make such a model takes seconds.
template <class Config>
void require_small(const Config& config) {
  for (const std::size_t size : {config.features, config.hidden}) {
    if (size > 64) throw data_error({"the weights have no size of ", size});
  }
}

/// The same of a model of text.
template <class Config>
void require_small_table(const Config& config) {
  require_small(config);
  if (config.vocabulary > 64) throw data_error({"the table has no ", config.vocabulary, " rows"});
}

using TextEnds = Ends<TensorParallel::ids, TensorParallel::logits>;

template <class Net>
double of_text(const Difference& difference, const Net& net,
               const std::vector<FileTensor>& places) {
  SingleRank alone;
  auto model = Difference::model<TextEnds>(net, alone, text);
  return difference.of(model, places, filled<std::int32_t, Invariant>(text, {}, token).view());
}

double of_pairs(const Difference& difference, const BertConfig& config) {
  require_small_table(config);
  SingleRank alone;
  auto model =
      Difference::model<BertEnds<TensorParallel>>(bert(config), alone, std::array{text, text});
  const auto ids = filled<std::int32_t, Invariant>(text, {}, token);
  const auto types = filled<std::int32_t, Invariant>(
      text, {}, [](std::size_t row) { return row % 11 >= (row < 11 ? 5U : 7U) ? 1 : 0; });
  return difference.of(model, bert_tensors(config), std::tuple(ids.view(), types.view()),
                       {{.row = 0, .rows = 9}, {.row = 11 + 3, .rows = 8, .position = 3}});
}

double of_images(const Difference& difference, const VitConfig& config) {
  require_small(config);
  const Shape shape{{Axis::batch, 3}, {Axis::channel, 2}, {Axis::height, 10}, {Axis::width, 10}};
  SingleRank alone;
  auto model = Difference::model<Ends<Invariant, Invariant>>(
      vit<TensorParallel, VitForm{.patch = 3}>(config), alone, shape);
  const auto images = filled<double, Invariant>(
      shape, {}, [](std::size_t i) { return witness::made(7, static_cast<std::int64_t>(i)); });
  return difference.of(model, vit_tensors(config), images.view());
}

double of_llama(const Difference& difference, const LlamaConfig& config) {
  require_small_table(config);
  using Forms =
      LlamaForms<LlamaForm{.window = dynamic},
                 LlamaForm{.bias = true, .tied = true, .window = dynamic},
                 LlamaForm{.head_norms = true, .window = dynamic},
                 LlamaForm{.experts = true, .window = dynamic},
                 LlamaForm{.bias = true, .tied = true, .window = dynamic, .two_windows = true},
                 LlamaForm{.head_norms = true, .window = dynamic, .two_windows = true}>;
  double found = 0;
  with_llama<TensorParallel, Forms>(
      config, [&](const auto& net) { found = of_text(difference, net, llama_tensors(config)); });
  return found;
}

double difference_of(const std::string& family, const std::filesystem::path& folder,
                     const Difference& difference) {
  if (family == "bert") return of_pairs(difference, read_bert_config(folder));
  if (family == "vit") return of_images(difference, read_vit_config(folder));
  if (family == "gpt2") {
    const Gpt2Config config = read_gpt2_config(folder);
    require_small_table(config);
    return of_text(difference, gpt2(config), gpt2_tensors(config));
  }
  if (family == "gptj") {
    const ParallelGptConfig config = read_gptj_config(folder);
    require_small_table(config);
    return of_text(difference, parallel_gpt(config), gptj_tensors(config));
  }
  if (family == "falcon") {
    const ParallelGptConfig config = read_falcon_config(folder);
    require_small_table(config);
    return of_text(difference, parallel_gpt<TensorParallel, ParallelGptForm{.tied = true}>(config),
                   falcon_tensors(config));
  }
  return of_llama(difference, read_llama_config(folder));
}

/// The difference, or nothing if the config is refused, or these weights are not those of the model
/// that it says.
std::optional<double> difference_or_refused(const std::string& family, const json& config,
                                            std::span<const double> theirs) {
  const testing::TemporaryFolder folder("shardwise_fields");
  folder.write("config.json", config.dump());
  try {
    return difference_of(family, folder.path(),
                         Difference(directory(family) / "model.safetensors", theirs));
  } catch (const error&) {  // refused, or a model of another type or of other weights
    return std::nullopt;
  }
}

json json_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return json::parse(file);
}

json all_cases() {
  return json_of(directory("").parent_path().parent_path() / "config_fields.json");
}

json with_changes(json config, const json& one) {
  for (const auto& [field, value] : one["set"].items()) config[field] = value;
  for (const json& field : one["without"]) config.erase(field.get<std::string>());
  return config;
}

void check_field(const detail::ConfigField& row, const json& one, bool computed, bool same) {
  if (one["set"].size() != 1 || !one["without"].empty()) return;
  const json& value = one["set"][row.name];
  if (row.effect == detail::FieldEffect::none) CHECK((computed && same));
  if (row.effect == detail::FieldEffect::refused)
    CHECK(computed == (value == json::parse(row.otherwise) && !one["logits"].is_null()));
}

/// All cases of a family, and what they show of its rows.
void check_family(const std::string& family, unsigned bit, const json& listed) {
  const json usual = json_of(directory(family) / "config.json");
  const witness::Values changed("config_fields"), same("transformers_" + family);
  std::set<std::string> seen;
  for (const json& one : listed["cases"]) {
    CAPTURE(one.dump());
    const json& logits = one["logits"];
    const bool is_same = logits == "same";
    const std::span<const double> theirs =
        is_same || logits.is_null() ? same["logits"] : changed[logits.get<std::string>()];
    const auto difference = difference_or_refused(family, with_changes(usual, one), theirs);
    if (logits.is_null()) CHECK(!difference);
    if (difference) CHECK(*difference < 1e-9);  // a float has 1e-7
    const bool has_windows = (bit & detail::of_qwens) != 0 && one["set"].contains("sliding_window");
    if (has_windows && !is_same && !logits.is_null()) CHECK(difference);  // also if layers differ
    for (const auto& item : one["set"].items()) seen.insert(item.key());
    for (const detail::ConfigField& row : detail::config_fields)
      if ((row.families & bit) != 0 && one["set"].contains(row.name))
        check_field(row, one, difference.has_value(), is_same);
  }
  for (const detail::ConfigField& row : detail::config_fields) {
    if ((row.families & bit) == 0 || row.name == std::string("model_type")) continue;
    CAPTURE(row.name);
    CHECK(seen.contains(row.name));
  }
}

/// The default of each row is that of the class in transformers, and each field of that has a row.
void check_defaults(unsigned bit, const json& defaults) {
  std::set<std::string> known(std::begin(detail::fields_without_effect),
                              std::end(detail::fields_without_effect));
  for (const detail::ConfigField& row : detail::config_fields) {
    if ((row.families & bit) == 0) continue;
    CAPTURE(row.name);
    CHECK(known.insert(row.name).second);
    if (defaults.contains(row.name)) CHECK(json::parse(row.otherwise) == defaults[row.name]);
  }
  for (const auto& item : defaults.items()) {
    CAPTURE(item.key());
    CHECK(known.contains(item.key()));
  }
}

}  // namespace

TEST_CASE("each field of each family is honoured, has no effect, or is refused") {
  const json all = all_cases();
  CHECK(all.size() == std::size(detail::family_names));
  for (std::size_t i = 0; i < std::size(detail::family_names); ++i) {
    const std::string family = detail::family_names[i];
    CAPTURE(family);
    check_defaults(1U << i, all[family]["defaults"]);
    check_family(family, 1U << i, all[family]);
  }
}
