// Any bytes as the config.json of a model: either a data_error, or sizes that fit each other.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "fuzz/fuzz.hpp"
#include "shardwise/models/bert_files.hpp"
#include "shardwise/models/falcon_files.hpp"
#include "shardwise/models/gpt2_files.hpp"
#include "shardwise/models/gptj_files.hpp"
#include "shardwise/models/llama_files.hpp"
#include "shardwise/models/vit_files.hpp"

using namespace shardwise;

namespace {

/// No size is 0, and the product of any two has room in 64 bits.
void require_sizes(std::initializer_list<std::size_t> sizes) {
  for (const std::size_t size : sizes)
    fuzz::require(size > 0 && size <= std::size_t{1} << 31, "a size can be multiplied");
}

template <class Config>
void require_heads(const Config& config) {
  fuzz::require(config.features % config.heads == 0, "heads divide features");
}

template <class Config>
void require_rope(const Config& config) {
  require_sizes({config.groups, config.head_size});
  fuzz::require(config.heads % config.groups == 0, "groups divide heads");
  fuzz::require(config.rope.features <= config.head_size, "a rope turns no more than the head");
  fuzz::require(std::isfinite(config.rope.theta), "theta is a number");
}

template <class Read, class Require>
void try_model(std::string_view type, std::string_view bytes, const Read& read,
               const Require& require) {
  if (bytes.find(type) == std::string_view::npos) return;  // it would be refused
  fuzz::may_reject<data_error>([&] {
    const auto config = read(fuzz::folder());
    require_sizes({config.features, config.hidden, config.heads, config.layers});
    fuzz::require(std::isfinite(config.epsilon), "epsilon is a number");
    require(config);
  });
}

/// Reads `field` as everything that it can be.
void try_field(const ConfigFile& config, const char* field) {
  fuzz::may_reject<data_error>([&] { config.size(field, 1); });
  fuzz::may_reject<data_error>([&] { config.number(field, 1); });
  fuzz::may_reject<data_error>([&] { config.text(field); });
  fuzz::may_reject<data_error>([&] { config.flag(field); });
  fuzz::may_reject<data_error>([&] { config.entries(field); });
  fuzz::may_reject<data_error>([&] { config.texts(field); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFile file(fuzz::folder() / "config.json");
  const std::string_view bytes = fuzz::text_of(data, size);
  file.hold(bytes);
  fuzz::may_reject<data_error>([] {
    const ConfigFile config(fuzz::folder());
    for (const char* field : {"layer_types", "id2label"}) try_field(config, field);
  });
  const auto other_llama = {"llama", "mistral", "mixtral", "phi3", "qwen2", "qwen3"};
  for (const char* type : other_llama)
    try_model(type, bytes, read_llama_config, require_rope<LlamaConfig>);
  try_model("gpt2", bytes, read_gpt2_config, require_heads<Gpt2Config>);
  try_model("bert", bytes, read_bert_config, require_heads<BertConfig>);
  try_model("gptj", bytes, read_gptj_config, require_rope<ParallelGptConfig>);
  try_model("falcon", bytes, read_falcon_config, require_rope<ParallelGptConfig>);
  try_model("vit", bytes, read_vit_config, [](const VitConfig& config) {
    require_heads(config);
    require_sizes({config.channels, config.side, config.patch, config.classes});
  });
  return 0;
}
