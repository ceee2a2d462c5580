#pragma once
// The config.json of a model of Hugging Face's transformers.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"

namespace shardwise {

/// The fields of a config.json, or of an object in it. Every error is a data_error that names the
/// file and the field. A field that is null counts as one that is not there.
class ConfigFile {
 public:
  /// Reads config.json in `directory`.
  /// throws   data_error for a file that cannot be read, has more than a million bytes, is no JSON
  ///          object, or has objects and lists in each other more than 16 deep
  explicit ConfigFile(const std::filesystem::path& directory)
      : where_("config " + (directory / "config.json").string()) {
    const auto file = detail::File::open(directory / "config.json", "config");
    constexpr std::uint64_t most = 1'000'000;
    if (file.size() > most) file.fail("has more than 1000000 bytes");
    const auto check_depth = [&file](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
      constexpr int deepest = 16;  // copies and comparisons of values are recursive
      if (depth > deepest) file.fail("has objects and lists in each other more than 16 deep");
      return true;
    };
    fields_ = nlohmann::json::parse(detail::read_text(file, 0, file.size()), check_depth, false);
    if (!fields_.is_object()) file.fail("is no JSON object");
  }

  /// Whether the field is there.
  bool has(const std::string& field) const {
    const auto found = fields_.find(field);
    return found != fields_.end() && !found->is_null();
  }

  ///@{
  /// A whole number of 1 to 2^29, so that no product of two wraps, nor of one and 4 times another;
  /// a finite number; a text. `otherwise` stands for a field that is not there; without it such a
  /// field is an error.
  std::size_t size(const std::string& field) const {
    const nlohmann::json& value = at(field);
    constexpr std::uint64_t most = std::uint64_t{1} << 29;
    if (!value.is_number_unsigned() || value == 0U || value > most) {
      refuse(field, "it must be a whole number of 1 to 536870912");
    }
    return value.get<std::size_t>();
  }
  std::size_t size(const std::string& field, std::size_t otherwise) const {
    return has(field) ? size(field) : otherwise;
  }
  double number(const std::string& field) const {
    const nlohmann::json& value = at(field);
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      refuse(field, "it must be a finite number");
    }
    return value.get<double>();
  }
  double number(const std::string& field, double otherwise) const {
    return has(field) ? number(field) : otherwise;
  }
  std::string text(const std::string& field) const {
    const nlohmann::json& value = at(field);
    if (!value.is_string()) refuse(field, "it must be a text");
    return value.get<std::string>();
  }
  std::string text(const std::string& field, const std::string& otherwise) const {
    return has(field) ? text(field) : otherwise;
  }
  ///@}

  /// A truth value; `otherwise` if the field is not there.
  bool flag(const std::string& field, bool otherwise) const {
    if (!has(field)) return otherwise;
    const nlohmann::json& value = at(field);
    if (!value.is_boolean()) refuse(field, "it must be true or false");
    return value.get<bool>();
  }

  /// The fields of an object.
  ConfigFile section(const std::string& field) const {
    const nlohmann::json& value = at(field);
    if (!value.is_object()) refuse(field, "it must be an object");
    return {where_, path_ + field + '.', value};
  }

  /// The number of fields of an object; `otherwise` if it is not there.
  std::size_t entries(const std::string& field, std::size_t otherwise) const {
    return has(field) ? section(field).fields_.size() : otherwise;
  }

  /// Whether the field is a list of which all elements are equal to the first; true if it is not
  /// there.
  bool is_uniform(const std::string& field) const {
    if (!has(field)) return true;
    const nlohmann::json& value = at(field);
    if (!value.is_array()) refuse(field, "it must be a list");
    for (const nlohmann::json& element : value) {
      if (element != value.front()) return false;
    }
    return true;
  }

  /// Throws data_error unless the text is the one that can be read.
  void require_text(const std::string& field, const std::string& only) const {
    if (text(field) != only) refuse(field, "only " + only + " can be read");
  }
  /// The same, if the field is there.
  void require_text_if_there(const std::string& field, const std::string& only) const {
    if (has(field)) require_text(field, only);
  }

  /// Throws data_error unless the truth values that are there are `needed`.
  void require_flags(bool needed, std::initializer_list<const char*> fields) const {
    for (const char* field : fields) {
      if (flag(field, needed) != needed)
        refuse(field, needed ? "only models with it can be read" : "models with it cannot be read");
    }
  }

  /// Throws data_error unless the size, if it is there, divides the other one.
  void require_divides(const std::string& field, const std::string& other) const {
    if (has(field) && size(other) % size(field) != 0) refuse(field, "it must divide " + other);
  }

  /// Throws data_error if one of the fields is a rate of dropout above 0.
  void refuse_dropout(std::initializer_list<const char*> rates) const {
    for (const char* rate : rates) {
      if (number(rate, 0) != 0) refuse(rate, "models with dropout cannot be read");
    }
  }

  /// Throws data_error: the field, its value, and `why` it cannot be.
  [[noreturn]] void refuse(const std::string& field, const std::string& why) const {
    throw data_error(
        {where_, ": ", path_, field, " is ", at(field).dump().substr(0, 100), ", but ", why});
  }

 private:
  ConfigFile(std::string where, std::string path, nlohmann::json fields)
      : where_(std::move(where)), path_(std::move(path)), fields_(std::move(fields)) {}

  const nlohmann::json& at(const std::string& field) const {
    if (!has(field)) throw data_error({where_, ": has no ", path_, field});
    return fields_.at(field);
  }

  std::string where_;
  std::string path_{};  // of the object, with a point at its end
  nlohmann::json fields_{};
};

}  // namespace shardwise
