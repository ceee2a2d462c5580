#pragma once
// The JSON of checkpoints: an object of objects.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// The value of a member of an inner object: a string, a whole number from 0 to 2^64 - 1, a list of
/// such numbers, or any other value, whose content is dropped.
struct JsonValue {
  enum class Kind { text, number, numbers, other };

  Kind kind = Kind::other;
  std::string text{};
  std::vector<std::uint64_t> numbers{};
};

/// Lists with more numbers than this are rejected; no tensor has as many axes.
inline constexpr std::size_t longest_json_list = 64;

/// Turns the events of the parser into calls of a sink, and rejects everything that is not of the
/// form
///
///     {"section": {"member": value, "member": value}, "section": {}}
///
/// The sink has `begin(section)`, `member(name, value)` and `end()`, in the order of the text. What
/// stands in a section of which `skips(section)` says so may be any JSON, and is passed over; one
/// of which `may_be_null(section)` says so may be null in place of an object.
template <class Sink>
class JsonSections {
  using Json = nlohmann::json;

 public:
  JsonSections(const std::string& where, Sink& sink) : where_(where), sink_(sink) {}

  // Called by nlohmann's parser.
  bool null() {
    if (depth_ == 1 && !skips_ && sink_.may_be_null(section_)) return true;
    return scalar({});
  }
  bool boolean(bool) { return scalar({}); }
  bool number_integer(Json::number_integer_t) { return scalar({}); }  // it has a minus sign
  bool number_float(Json::number_float_t, const std::string&) { return scalar({}); }
  bool number_unsigned(Json::number_unsigned_t n) {
    if (!in_list_) return scalar({JsonValue::Kind::number, {}, {n}});
    if (list_.numbers.size() == longest_json_list) {
      fail("the list " + in_quotes(member_) + " of " + in_quotes(section_) + " has more than " +
           std::to_string(longest_json_list) + " numbers");
    }
    list_.numbers.push_back(n);
    return true;
  }
  bool string(std::string& text) { return scalar({JsonValue::Kind::text, std::move(text), {}}); }
  bool binary(Json::binary_t&) { return scalar({}); }

  bool start_object(std::size_t) {
    if (skips_) return skip_into();
    if (in_list_ || depth_ == 2) fail_nested();
    if (depth_++ == 1) sink_.begin(section_);
    return true;
  }
  bool end_object() {
    if (skips_) return skip_out();
    if (depth_-- == 2) {
      sink_.end();
      members_.clear();
    }
    return true;
  }
  bool key(std::string& name) {
    if (skips_) return true;
    if (!(depth_ == 1 ? sections_ : members_).insert(name).second) {
      fail("the key " + in_quotes(name) + (depth_ == 1 ? "" : " of " + in_quotes(section_)) +
           " is there twice");
    }
    skips_ = depth_ == 1 && sink_.skips(name);
    (depth_ == 1 ? section_ : member_) = std::move(name);
    return true;
  }
  bool start_array(std::size_t) {
    if (skips_) return skip_into();
    if (depth_ < 2) fail_form();
    if (in_list_) fail_nested();
    in_list_ = true;
    list_ = {JsonValue::Kind::numbers, {}, {}};
    return true;
  }
  bool end_array() {
    if (skips_) return skip_out();
    in_list_ = false;
    sink_.member(member_, list_);
    return true;
  }
  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception&) {
    fail("is no JSON in UTF-8 from byte " + std::to_string(position) + " of it on");
    return false;
  }

  [[noreturn]] void fail(const std::string& why) const { throw data_error({where_, ": ", why}); }

 private:
  bool skip_into() {
    ++skipped_depth_;
    return true;
  }
  bool skip_out() {
    skips_ = --skipped_depth_ > 0;
    return true;
  }

  bool scalar(JsonValue value) {
    if (skips_) {
      skips_ = skipped_depth_ > 0;
      return true;
    }
    if (depth_ < 2) fail_form();
    if (in_list_) {
      fail("the list " + in_quotes(member_) + " of " + in_quotes(section_) +
           " holds something else than whole numbers from 0 to 2^64 - 1");
    }
    sink_.member(member_, value);
    return true;
  }

  [[noreturn]] void fail_form() const {
    if (depth_ == 0) fail("is no JSON object");
    fail(in_quotes(section_) + " is no JSON object");
  }
  [[noreturn]] void fail_nested() const {
    fail(in_quotes(section_) + " is nested deeper than a checkpoint's can be");
  }

  const std::string& where_;
  Sink& sink_;
  int depth_ = 0;  // of objects
  bool in_list_ = false;
  bool skips_ = false;             // what it reads now
  std::size_t skipped_depth_ = 0;  // of objects and lists in it
  std::string section_;
  std::string member_;
  JsonValue list_;
  std::set<std::string> sections_;  // names so far
  std::set<std::string> members_;
};

/// Reads `text`; messages call it `where`. Needs memory of a small multiple of the text's bytes.
/// throws   data_error for anything that is not such an object of objects, or has a key twice;
///          and what the sink throws
template <class Sink>
void read_json(std::string_view text, const std::string& where, Sink& sink) {
  JsonSections<Sink> sections(where, sink);
  // nlohmann's lexer skips a byte order mark, and takes a zero byte for the end of the text.
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') sections.fail("is no JSON object");
  if (text.find('\0') != std::string_view::npos) sections.fail("has a zero byte");
  nlohmann::json::sax_parse(text.begin(), text.end(), &sections);
}

/// `text` as a JSON string, with its quotation marks.
/// throws   argument_error if it is not UTF-8
inline std::string json_string(std::string_view text) try {
  return nlohmann::json(text).dump();
} catch (const nlohmann::json::exception&) {
  throw argument_error({"checkpoint: the name or text ", in_quotes(text),
                        " is not UTF-8 and cannot be written; choose another"});
}

/// The number that `text` is in JSON; nothing for any other text. In place of from_chars, which
/// libc++ 19 lacks for double, and of strtod, which depends on the locale.
inline std::optional<double> json_number(std::string_view text) {
  const nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  if (!value.is_number()) return std::nullopt;
  return value.get<double>();
}

}  // namespace shardwise::detail
