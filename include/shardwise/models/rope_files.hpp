#pragma once
// The options of a Rope in a config.json of transformers.

#include <cstddef>
#include <string>

#include "shardwise/checkpoint/config_file.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/layers/rope_frequencies.hpp"

namespace shardwise::detail {

/// `original` stands for a field that is not there.
inline RopeScaling rope_scaling(const ConfigFile& rope, double original) {
  const std::string field = rope.has("rope_type") ? "rope_type" : "type";
  const std::string kind = rope.text(field, "default");
  if (kind == "default") return {};
  const double factor = rope.number("factor");
  original = rope.number("original_max_position_embeddings", original);
  if (kind == "linear") return RopeScaling::linear(factor);
  if (kind == "llama3") {
    return RopeScaling::llama3(factor, rope.number("low_freq_factor"),
                               rope.number("high_freq_factor"), original);
  }
  if (kind != "yarn") rope.refuse(field, "default, linear, llama3 and yarn can be read");
  for (const char* other : {"mscale", "mscale_all_dim", "truncate"}) {
    if (rope.has(other)) rope.refuse(other, "a yarn with this field cannot be read");
  }
  RopeScaling yarn = RopeScaling::yarn(factor, original, rope.number("beta_fast", 32),
                                       rope.number("beta_slow", 1));
  yarn.amplitude = rope.number("attention_factor", yarn.amplitude);
  return yarn;
}

/// transformers 5 has all in rope_parameters, and 4 has rope_theta beside rope_scaling. `positions`
/// are those of the longest sequence.
inline RopeOptions rope_options(const ConfigFile& config, std::size_t head_size,
                                std::size_t positions) {
  const auto original = static_cast<double>(positions);
  const bool is_new = config.has("rope_parameters");
  const ConfigFile rope = is_new ? config.section("rope_parameters") : config;
  RopeOptions options;
  options.theta = is_new ? rope.number("rope_theta") : rope.number("rope_theta", options.theta);
  const double part = rope.number("partial_rotary_factor", 1);
  if (!(part > 0 && part <= 1)) rope.refuse("partial_rotary_factor", "it must be above 0, up to 1");
  options.features = static_cast<std::size_t>(static_cast<double>(head_size) * part);
  if (is_new) {
    options.scaling = rope_scaling(rope, original);
  } else if (config.has("rope_scaling")) {
    options.scaling = rope_scaling(config.section("rope_scaling"), original);
  }
  return options;
}

}  // namespace shardwise::detail
