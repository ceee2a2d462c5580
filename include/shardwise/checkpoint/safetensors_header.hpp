#pragma once
// The header of a safetensors file: its tensors and their positions.
//
// Source of the format: the README of huggingface/safetensors, "Format", and docs/source there;
// the malicious files are those of its `attacks` folder and of bug reports of other readers.
//
//     8 bytes   N, the length of the header, lowest byte first
//     N bytes   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//                "__metadata__": {"any": "text"}}, in UTF-8
//     the rest  the tensors, dense, row-major, little-endian, one after another
//
// This reader accepts what the reference implementation accepts, except ambiguous files: it rejects
// duplicate keys, members of a tensor that are not in the format, a byte order mark, and text after
// a zero byte. It also rejects offsets that leave a hole, overlap, or do not end with the file;
// their order in the text does not matter.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/dtype.hpp"
#include "shardwise/core/compiled.hpp"

namespace shardwise::detail {

/// The entry of one tensor. `begin` and `end` count bytes from the end of the header.
struct TensorInfo {
  FileDtype dtype{};                   ///< of its elements
  std::vector<std::uint64_t> shape{};  ///< outermost axis first; empty for a scalar
  std::uint64_t begin = 0;             ///< its first byte
  std::uint64_t end = 0;               ///< one past its last byte
};

/// The content of a header.
struct SafetensorsHeader {
  std::map<std::string, TensorInfo> tensors;    ///< by name
  std::map<std::string, std::string> metadata;  ///< texts of the file's author, by name
};

/// Longer headers are rejected, as in the reference implementation.
inline constexpr std::uint64_t longest_safetensors_header = 100'000'000;

/// The tensors in their order in the file.
inline std::vector<std::pair<const std::string, TensorInfo>*> by_offset(SafetensorsHeader& header) {
  std::vector<std::pair<const std::string, TensorInfo>*> tensors;
  for (auto& tensor : header.tensors) tensors.push_back(&tensor);
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  return tensors;
}

/// The length in the first eight bytes of a file of `file_bytes` bytes.
/// throws   data_error, beginning with `where`, if the file cannot have such a header
std::uint64_t safetensors_header_length(std::array<unsigned char, 8> first,
                                        std::uint64_t file_bytes, const std::string& where);

/// Reads the JSON of a header in front of `data_bytes` bytes of data. The memory that it needs
/// grows with the text and never with the numbers in it.
/// throws   data_error, beginning with `where`, for everything that is not in the format
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const std::string& where);

/// The first bytes of a file with this header: length and JSON, with spaces at the end so that the
/// data begin at a multiple of 8. There is no other white space.
/// throws   argument_error for names that are not UTF-8, and for more data than the format allows
std::string safetensors_header_bytes(SafetensorsHeader header);

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

#include <cstddef>
#include <optional>

#include "shardwise/checkpoint/json.hpp"
#include "shardwise/core/checked_size.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// Bytes of a dense tensor; nothing if an intermediate product overflows 64 bits, or if the bits
/// are not whole bytes.
inline std::optional<std::uint64_t> checked_bytes(const FileDtype& dtype,
                                                  const std::vector<std::uint64_t>& shape) {
  const std::optional<std::uint64_t> bits = checked_product(dtype.bits, shape);
  if (!bits || *bits % 8 != 0) return std::nullopt;
  return *bits / 8;
}

/// Takes the content of the JSON of a header; a sink of read_json.
class HeaderSink {
 public:
  HeaderSink(const std::string& where, SafetensorsHeader& header)
      : where_(where), header_(header) {}

  static bool skips(const std::string&) { return false; }
  static bool may_be_null(const std::string& section) { return section == "__metadata__"; }
  void begin(const std::string& section) {
    name_ = section;
    is_metadata_ = section == "__metadata__";
    info_ = {};
    has_dtype_ = has_shape_ = has_offsets_ = false;
  }

  void member(std::string& name, JsonValue& value) {
    if (is_metadata_) return metadata(name, value);
    if (name == "dtype") return dtype(value);
    if (name == "shape") return shape(value);
    if (name == "data_offsets") return offsets(value);
    fail("has a member " + in_quotes(name) + ", which the format does not know");
  }

  void end() {
    if (is_metadata_) return;
    if (!has_dtype_ || !has_shape_ || !has_offsets_) fail("lacks dtype, shape or data_offsets");
    const auto bytes = checked_bytes(info_.dtype, info_.shape);
    if (!bytes) {
      fail("has the shape " + shape_text(info_.shape) + " of " + std::string(info_.dtype.name) +
           ", which is no number of bytes below 2^61");
    }
    if (info_.begin > info_.end || info_.end - info_.begin != *bytes) {
      fail("has the shape " + shape_text(info_.shape) + " of " + std::string(info_.dtype.name) +
           ", which is " + std::to_string(*bytes) + " bytes, but lies at " +
           std::to_string(info_.begin) + " to " + std::to_string(info_.end));
    }
    header_.tensors.emplace(std::move(name_), std::move(info_));
  }

 private:
  void metadata(std::string& name, JsonValue& value) {
    if (value.kind != JsonValue::Kind::text) fail("has the key " + in_quotes(name) + ", no text");
    header_.metadata.emplace(std::move(name), std::move(value.text));
  }
  void dtype(const JsonValue& value) {
    const auto found = find_file_dtype(value.text);
    if (value.kind != JsonValue::Kind::text || !found) {
      fail("has a dtype that the format does not know: " + in_quotes(value.text));
    }
    info_.dtype = *found;
    has_dtype_ = true;
  }
  void shape(JsonValue& value) {
    if (value.kind != JsonValue::Kind::numbers) fail("has a shape that is no list");
    info_.shape = std::move(value.numbers);
    has_shape_ = true;
  }
  void offsets(const JsonValue& value) {
    if (value.kind != JsonValue::Kind::numbers || value.numbers.size() != 2) {
      fail("has data_offsets that are no list of two numbers");
    }
    info_.begin = value.numbers[0];
    info_.end = value.numbers[1];
    has_offsets_ = true;
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw data_error({where_, ": ", in_quotes(name_), " ", why});
  }

  const std::string& where_;
  SafetensorsHeader& header_;
  std::string name_;
  bool is_metadata_ = false;
  TensorInfo info_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
};

/// Checks that every byte of the data belongs to exactly one tensor.
inline void check_cover(SafetensorsHeader& header, std::uint64_t data_bytes,
                        const std::string& where) {
  std::uint64_t covered = 0;
  for (const auto* tensor : by_offset(header)) {
    if (tensor->second.begin != covered) {
      throw data_error({where, ": ", in_quotes(tensor->first), " begins at byte ",
                        tensor->second.begin, " of the data, but the tensors before it end at ",
                        covered, ": they overlap or leave a hole"});
    }
    covered = tensor->second.end;
  }
  if (covered != data_bytes) {
    throw data_error({where, ": the tensors end at byte ", covered,
                      " of the data, but the file has ", data_bytes,
                      " bytes of it; it is cut short or damaged, get it again"});
  }
}

SHARDWISE_INLINE std::uint64_t safetensors_header_length(std::array<unsigned char, 8> first,
                                                         std::uint64_t file_bytes,
                                                         const std::string& where) {
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | first[i];
  if (length > longest_safetensors_header || file_bytes < 8 || length > file_bytes - 8) {
    throw data_error({where, ": announces a header of ", length, " bytes in a file of ", file_bytes,
                      " (at most ", longest_safetensors_header,
                      " are read); it is no safetensors file, or cut short"});
  }
  return length;
}

SHARDWISE_INLINE SafetensorsHeader parse_safetensors_header(std::string_view json,
                                                            std::uint64_t data_bytes,
                                                            const std::string& where) {
  SafetensorsHeader header;
  detail::HeaderSink sink(where, header);
  detail::read_json(json, where, sink);
  detail::check_cover(header, data_bytes, where);
  return header;
}

SHARDWISE_INLINE std::string safetensors_header_bytes(SafetensorsHeader header) {
  std::string json;
  const auto open = [&json](const std::string& name) {
    json += (json.empty() ? '{' : ',') + detail::json_string(name) + ":{";
  };
  if (!header.metadata.empty()) {
    open("__metadata__");
    for (const auto& [key, text] : header.metadata) {
      json += detail::json_string(key) + ':' + detail::json_string(text) + ',';
    }
    json.back() = '}';
  }
  for (const auto* tensor : detail::by_offset(header)) {
    const TensorInfo& info = tensor->second;
    open(tensor->first);
    json += "\"dtype\":\"" + std::string(info.dtype.name) +
            "\",\"shape\":" + detail::shape_text(info.shape) +
            ",\"data_offsets\":" + detail::shape_text({info.begin, info.end}) + '}';
  }
  json += json.empty() ? "{}" : "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > longest_safetensors_header) {
    throw argument_error({"checkpoint: the names of ", header.tensors.size(),
                          " tensors make a header of ", json.size(), " bytes, and a file can have ",
                          longest_safetensors_header, ": use smaller shards"});
  }
  std::string bytes;
  for (std::uint64_t length = json.size(), i = 0; i < 8; ++i, length >>= 8) {
    bytes += static_cast<char>(length & 0xffU);
  }
  return bytes + json;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
