#pragma once
// The config.json of a model of Hugging Face's transformers.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shardwise/core/compiled.hpp"

namespace shardwise {

namespace detail {

/// What a field of a config.json does to what a model computes.
enum class FieldEffect : std::uint8_t {
  honoured,  ///< its value is read
  none,      ///< no value changes anything
  refused    ///< other values than the default would change it, and cannot be read
};

/// A field that some families of models have.
struct ConfigField {
  const char* name;   ///< its key
  unsigned families;  ///< a bit for each
  const char*
      otherwise;  ///< the value, as JSON, that it has where it is not there; none if nullptr
  FieldEffect effect = FieldEffect::honoured;  ///< see there
};

}  // namespace detail

/// The fields of a config.json, or of an object in it. Every error is a data_error that names the
/// file and the field. A field that is null counts as one that is not there.
class ConfigFile {
 public:
  /// Reads config.json in `directory`.
  /// throws   data_error for a file that cannot be read, has more than a million bytes, is no JSON
  ///          object, or has objects and lists in each other more than 16 deep
  explicit ConfigFile(const std::filesystem::path& directory);

  /// Whether the field is there.
  bool has(const std::string& field) const;

  ///@{
  /// A whole number of 1 to 2^29, so that no product of two wraps, nor of one and 4 times another;
  /// a finite number; a text. `otherwise` stands for a field that is not there; without it such a
  /// field is an error.
  std::size_t size(const std::string& field) const;
  std::size_t size(const std::string& field, std::size_t otherwise) const {
    return has(field) ? size(field) : otherwise;
  }
  double number(const std::string& field) const;
  double number(const std::string& field, double otherwise) const {
    return has(field) ? number(field) : otherwise;
  }
  std::string text(const std::string& field) const;
  ///@}

  /// A truth value.
  bool flag(const std::string& field) const;

  /// The fields of an object.
  ConfigFile section(const std::string& field) const;

  /// The number of fields of an object, or 0 if it is not there.
  std::size_t entries(const std::string& field) const;

  /// The bit of a text's place in `names`; those without a bit in `allowed` are refused.
  unsigned one_of(const std::string& field, std::span<const char* const> names,
                  unsigned allowed) const;

  /// The texts of a list.
  std::vector<std::string> texts(const std::string& field) const;

  /// These fields, and the defaults of those in `known` that are not there. Of `known` the rows of
  /// `family` count. A null is a value like others: it does not become the default.
  /// throws   data_error for fields that are in neither list, and for refused values
  ConfigFile with_fields(std::span<const detail::ConfigField> known,
                         std::span<const char* const> without_effect, unsigned family) const;

  /// Throws data_error unless the size, if it is there, divides the other one.
  void require_divides(const std::string& field, const std::string& other) const;

  /// Throws data_error: the field, its value, and `why` it cannot be.
  [[noreturn]] void refuse(const std::string& field, const std::string& why) const;

 private:
  struct Fields;
  ConfigFile(std::string where, std::string path, const Fields& fields);

  static constexpr std::size_t longest_shown = 100;

  std::string where_;
  std::string path_{};  // of the object, with a point at its end
  std::shared_ptr<const Fields> fields_;
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"

namespace shardwise {

struct ConfigFile::Fields {
  nlohmann::json all;

  explicit Fields(nlohmann::json fields) : all(std::move(fields)) {}

  /// The value of a field of `config`.
  /// throws   data_error if it is not there
  static const nlohmann::json& at(const ConfigFile& config, const std::string& field) {
    if (!config.has(field)) throw data_error({config.where_, ": has no ", config.path_, field});
    return config.fields_->all.at(field);
  }
};

SHARDWISE_INLINE ConfigFile::ConfigFile(std::string where, std::string path, const Fields& fields)
    : where_(std::move(where)),
      path_(std::move(path)),
      fields_(std::make_shared<const Fields>(fields)) {}

SHARDWISE_INLINE ConfigFile::ConfigFile(const std::filesystem::path& directory)
    : where_("config " + (directory / "config.json").string()) {
  const auto file = detail::File::open(directory / "config.json", "config");
  constexpr std::uint64_t most = 1'000'000;
  if (file.size() > most) file.fail("has more than 1000000 bytes");
  const auto check_depth = [&file](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    constexpr int deepest = 16;  // copies and comparisons of values are recursive
    if (depth > deepest) file.fail("has objects and lists in each other more than 16 deep");
    return true;
  };
  const std::string text = detail::read_text(file, 0, file.size());
  fields_ = std::make_shared<const Fields>(nlohmann::json::parse(text, check_depth, false));
  if (!fields_->all.is_object()) file.fail("is no JSON object");
}

SHARDWISE_INLINE bool ConfigFile::has(const std::string& field) const {
  const auto found = fields_->all.find(field);
  return found != fields_->all.end() && !found->is_null();
}

SHARDWISE_INLINE std::size_t ConfigFile::size(const std::string& field) const {
  const nlohmann::json& value = Fields::at(*this, field);
  constexpr std::uint64_t most = std::uint64_t{1} << 29;
  if (!value.is_number_unsigned() || value == 0U || value > most) {
    refuse(field, "it must be a whole number of 1 to 536870912");
  }
  return value.get<std::size_t>();
}

SHARDWISE_INLINE double ConfigFile::number(const std::string& field) const {
  const nlohmann::json& value = Fields::at(*this, field);
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    refuse(field, "it must be a finite number");
  }
  return value.get<double>();
}

SHARDWISE_INLINE std::string ConfigFile::text(const std::string& field) const {
  const nlohmann::json& value = Fields::at(*this, field);
  if (!value.is_string()) refuse(field, "it must be a text");
  return value.get<std::string>();
}

SHARDWISE_INLINE bool ConfigFile::flag(const std::string& field) const {
  const nlohmann::json& value = Fields::at(*this, field);
  if (!value.is_boolean()) refuse(field, "it must be true or false");
  return value.get<bool>();
}

SHARDWISE_INLINE ConfigFile ConfigFile::section(const std::string& field) const {
  const nlohmann::json& value = Fields::at(*this, field);
  if (!value.is_object()) refuse(field, "it must be an object");
  return {where_, path_ + field + '.', Fields(value)};
}

SHARDWISE_INLINE std::size_t ConfigFile::entries(const std::string& field) const {
  return has(field) ? section(field).fields_->all.size() : 0;
}

SHARDWISE_INLINE unsigned ConfigFile::one_of(const std::string& field,
                                             std::span<const char* const> names,
                                             unsigned allowed) const {
  const std::string said = text(field);
  std::string others;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if ((allowed >> i & 1U) == 0) continue;
    if (said == names[i]) return 1U << i;
    others += (others.empty() ? "" : ", ") + std::string(names[i]);
  }
  refuse(field, "this can be read here: " + others);
}

SHARDWISE_INLINE std::vector<std::string> ConfigFile::texts(const std::string& field) const {
  const nlohmann::json& value = Fields::at(*this, field);
  std::vector<std::string> made;
  for (const nlohmann::json& element : value) {
    if (!value.is_array() || !element.is_string()) refuse(field, "it must be a list of texts");
    made.push_back(element.get<std::string>());
  }
  return made;
}

SHARDWISE_INLINE ConfigFile ConfigFile::with_fields(std::span<const detail::ConfigField> known,
                                                    std::span<const char* const> without_effect,
                                                    unsigned family) const {
  nlohmann::json all = fields_->all, others = all;
  for (const char* name : without_effect) others.erase(name);
  for (const detail::ConfigField& field : known) {
    if ((field.families & family) == 0) continue;
    others.erase(field.name);
    if (field.otherwise == nullptr) continue;
    const nlohmann::json& value =
        all.emplace(field.name, nlohmann::json::parse(field.otherwise)).first.value();
    if (field.effect == detail::FieldEffect::refused &&
        value != nlohmann::json::parse(field.otherwise)) {
      refuse(field.name, std::string("only ") + field.otherwise + " can be read");
    }
  }
  if (others.empty()) return {where_, path_, Fields(std::move(all))};
  refuse(others.begin().key(),
         "no field of this name is known here; take it out of the file if it does not change what "
         "the model computes");
}

SHARDWISE_INLINE void ConfigFile::require_divides(const std::string& field,
                                                  const std::string& other) const {
  if (has(field) && size(other) % size(field) != 0) refuse(field, "it must divide " + other);
}

SHARDWISE_INLINE void ConfigFile::refuse(const std::string& field, const std::string& why) const {
  const std::string value = fields_->all.value(field, nlohmann::json()).dump();
  throw data_error({where_, ": ", path_, field.substr(0, longest_shown), " is ",
                    value.substr(0, longest_shown), ", but ", why});
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
