#pragma once
// The index of a checkpoint in several safetensors files: the file of each tensor.
//
// Source: the `model.safetensors.index.json` of Hugging Face's libraries:
//     {"metadata": {"total_size": 123}, "weight_map": {"name": "model-00001-of-00002.safetensors"}}

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "shardwise/checkpoint/json.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// The file of each tensor, by the tensor's name.
struct SafetensorsIndex {
  std::map<std::string, std::string> files;  ///< names of files in the index's folder
};

/// Whether an index may name `file`: a safetensors file in its own folder. Links are followed,
/// because download caches consist of links.
constexpr bool is_shard_name(std::string_view file) {
  constexpr std::string_view ending = ".safetensors";
  for (const char c : file) {
    if (c == '/' || c == '\\' || c == ':' || static_cast<unsigned char>(c) < 0x20) return false;
  }
  return file.size() > ending.size() && file.size() < 256 && file.front() != '.' &&
         file.ends_with(ending);
}

/// Takes the content of the JSON of an index; a sink of read_json.
class IndexSink {
 public:
  IndexSink(const std::string& where, SafetensorsIndex& index) : where_(where), index_(index) {}

  static bool skips(const std::string& section) { return section != "weight_map"; }
  static bool may_be_null(const std::string&) { return false; }
  void begin(const std::string&) { has_map_ = true; }
  void member(std::string& name, JsonValue& value) {
    if (value.kind != JsonValue::Kind::text || !is_shard_name(value.text)) {
      throw data_error({where_, ": says that the tensor ", in_quotes(name), " is in ",
                        in_quotes(value.text),
                        ", which is no name of a .safetensors file beside it; a name with a folder "
                        "in it is not followed"});
    }
    index_.files.emplace(std::move(name), std::move(value.text));
  }
  void end() {}

  bool has_map() const { return has_map_; }

 private:
  const std::string& where_;
  SafetensorsIndex& index_;
  bool has_map_ = false;
};

/// Reads an index.
/// throws   data_error, beginning with `where`, for text that is not an index, and for names of
///          files that are not in the index's folder
inline SafetensorsIndex parse_safetensors_index(std::string_view json, const std::string& where) {
  SafetensorsIndex index;
  detail::IndexSink sink(where, index);
  detail::read_json(json, where, sink);
  if (!sink.has_map()) throw data_error({where, ": has no weight_map, so it is no index"});
  return index;
}

/// The text of an index of files with `total_bytes` bytes of tensors.
inline std::string safetensors_index_text(const SafetensorsIndex& index,
                                          std::uint64_t total_bytes) {
  std::string text =
      "{\"metadata\":{\"total_size\":" + std::to_string(total_bytes) + "},\n\"weight_map\":{";
  for (const auto& [name, file] : index.files) {
    text += '\n' + detail::json_string(name) + ':' + detail::json_string(file) + ',';
  }
  if (!index.files.empty()) text.pop_back();
  return text + "\n}}\n";
}

}  // namespace shardwise::detail
