#pragma once
// The options of a Rope in a config.json of transformers.

#include <cmath>
#include <cstddef>

#include "shardwise/checkpoint/config_file.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/layers/rope_frequencies.hpp"

namespace shardwise::detail {

/// Kinds of scaling, a bit each, and their names in the order of the bits.
enum RopeKind : unsigned { of_plain = 1, of_linear = 2, of_llama3 = 4, of_yarn = 8 };
inline constexpr const char* rope_kind_names[] = {"default", "linear", "llama3", "yarn"};
inline constexpr unsigned of_ropes = 2 * of_yarn - 1;

/// What an object of rope_scaling or rope_parameters may have.
inline constexpr ConfigField rope_fields[] = {
    {"rope_type", of_ropes, nullptr},
    {"type", of_ropes, nullptr},
    {"rope_theta", of_ropes, nullptr},
    {"partial_rotary_factor", of_ropes, nullptr},
    {"factor", of_ropes & ~of_plain, nullptr},
    {"factor", of_plain, "null", FieldEffect::none},
    {"original_max_position_embeddings", of_llama3 | of_yarn, nullptr},
    {"original_max_position_embeddings", of_plain | of_linear, "null", FieldEffect::none},
    {"low_freq_factor", of_llama3, nullptr},
    {"low_freq_factor", of_ropes & ~of_llama3, "null", FieldEffect::none},
    {"high_freq_factor", of_llama3, nullptr},
    {"high_freq_factor", of_ropes & ~of_llama3, "null", FieldEffect::none},
    {"attention_factor", of_yarn, "null"},
    {"attention_factor", of_ropes & ~of_yarn, "null", FieldEffect::none},
    {"beta_fast", of_yarn, "32"},
    {"beta_fast", of_ropes & ~of_yarn, "null", FieldEffect::none},
    {"beta_slow", of_yarn, "1"},
    {"beta_slow", of_ropes & ~of_yarn, "null", FieldEffect::none},
    {"mscale", of_yarn, "null"},
    {"mscale", of_ropes & ~of_yarn, "null", FieldEffect::none},
    {"mscale_all_dim", of_yarn, "null"},
    {"mscale_all_dim", of_ropes & ~of_yarn, "null", FieldEffect::none},
    {"truncate", of_yarn, "true", FieldEffect::refused},
    {"truncate", of_ropes & ~of_yarn, "null", FieldEffect::none},
};

/// The factor of cos and sin.
inline double yarn_amplitude(const ConfigFile& yarn, double factor) {
  const auto usual = [factor](double scale) {
    return factor > 1 ? 0.1 * scale * std::log(factor) + 1 : 1;
  };
  const double above = yarn.number("mscale", 0), below = yarn.number("mscale_all_dim", 0);
  const bool both = above != 0 && below != 0;
  return yarn.number("attention_factor", both ? usual(above) / usual(below) : usual(1));
}

/// `positions` are those of the original training, where no field says them.
inline RopeScaling rope_scaling(const ConfigFile& rope, unsigned kind, double positions) {
  if (kind == of_plain) return {};
  const double factor = rope.number("factor");
  if (kind == of_linear) return RopeScaling::linear(factor);
  const double original = rope.number("original_max_position_embeddings", positions);
  if (kind == of_llama3) {
    return RopeScaling::llama3(factor, rope.number("low_freq_factor"),
                               rope.number("high_freq_factor"), original);
  }
  const auto or_usual = [&rope](const char* field, double usual) {
    const double said = rope.number(field, usual);
    return said == 0 ? usual : said;  // as transformers does
  };
  RopeScaling yarn =
      RopeScaling::yarn(factor, original, or_usual("beta_fast", 32), or_usual("beta_slow", 1));
  yarn.amplitude = yarn_amplitude(rope, factor);
  return yarn;
}

/// rope_scaling, of transformers 4, goes before rope_parameters, of 5; what that object does not
/// say is beside it. A part of each head turns if `in_part`.
inline Rope::Options rope_options(const ConfigFile& config, std::size_t head_size, unsigned kinds,
                                  bool in_part) {
  ConfigFile rope = config;
  unsigned kind = of_plain;
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (config.entries(field) == 0) continue;
    const ConfigFile section = config.section(field);
    for (const char* type : {"type", "rope_type"}) {  // the second goes before the first
      if (section.has(type)) kind = section.one_of(type, rope_kind_names, kinds);
    }
    rope = section.with_fields(rope_fields, {}, kind);
    break;
  }
  Rope::Options options;
  const auto said = [&](const char* field) {
    return rope.has(field) ? rope.number(field) : config.number(field);
  };
  options.theta = said("rope_theta");
  const double part = said("partial_rotary_factor");
  const double features = std::floor(static_cast<double>(head_size) * part);
  const bool is_even = features >= 2 && std::fmod(features, 2) == 0;
  if (part != 1 && !(in_part && part < 1 && is_even)) {
    const char* const field = "partial_rotary_factor";
    (rope.has(field) ? rope : config)
        .refuse(field, in_part ? "it must be up to 1, and turn an even number of features"
                               : "only 1 can be read");
  }
  options.features = static_cast<std::size_t>(features);
  options.scaling =
      rope_scaling(rope, kind, static_cast<double>(config.size("max_position_embeddings")));
  return options;
}

}  // namespace shardwise::detail
