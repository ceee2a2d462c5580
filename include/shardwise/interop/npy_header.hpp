#pragma once
// The header of a .npy file, in which NumPy keeps one array.
//
// Source of the format: NumPy Enhancement Proposal 1 and the documentation of numpy.lib.format.
//
//     6 bytes        0x93 "NUMPY"
//     2 bytes        version: 1.0, 2.0 or 3.0
//     2 or 4 bytes   N, the length of the header (4 from version 2.0 on), lowest byte first
//     N bytes        {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, a literal of
//                    Python, and spaces up to a line end
//     the rest       the elements, dense
//
// This reader accepts headers with exactly these three keys, in any order, little-endian elements
// of the types below, and C order. It rejects every other literal of Python.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/core/checked_size.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// The content of a header.
struct NpyHeader {
  Dtype dtype{};                       ///< of its elements
  std::vector<std::uint64_t> shape{};  ///< outermost axis first; empty for a scalar
};

namespace detail {

/// The position of the header's text in the file; the elements follow it.
struct NpyStart {
  std::uint64_t begin = 0;   ///< byte in the file
  std::uint64_t length = 0;  ///< in bytes
};

/// Longer headers are rejected, as in NumPy.
inline constexpr std::uint64_t longest_npy_header = 10'000;
/// Shapes of more axes are rejected: NumPy has no such arrays (NPY_MAXDIMS).
inline constexpr std::size_t most_npy_axes = 64;

static_assert(
    std::endian::native == std::endian::little,
    ".npy files of little-endian numbers are read and written as they lie in memory: this "
    "machine needs a conversion that is not there.");

/// NumPy has no bfloat16: packages that add it save its elements as two bytes without a type, and
/// so does this library. NumPy itself reads such a type as '|V2'.
inline constexpr std::array<std::pair<std::string_view, Dtype>, 8> npy_dtypes{{
    {"<f4", Dtype::float32},
    {"<f8", Dtype::float64},
    {"<f2", Dtype::float16},
    {"<V2", Dtype::bfloat16},
    {"|V2", Dtype::bfloat16},
    {"<i4", Dtype::int32},
    {"<i8", Dtype::int64},
    {"|u1", Dtype::uint8},
}};

inline std::optional<Dtype> find_npy_dtype(std::string_view descr) {
  for (const auto& [name, dtype] : npy_dtypes) {
    if (name == descr) return dtype;
  }
  return std::nullopt;
}

constexpr std::string_view npy_name(Dtype dtype) {
  for (const auto& [name, named] : npy_dtypes) {
    if (named == dtype) return name;
  }
  return {};
}

/// Reads the literal, one token after the other.
class NpyLiteral {
 public:
  NpyLiteral(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  NpyHeader read() {
    expect('{');
    while (!take('}')) {
      member();
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_spaces();
    if (at_ != text_.size()) fail("goes on behind its closing brace");
    if (!dtype_ || !order_ || !shape_) fail("lacks descr, fortran_order or shape");
    return {*dtype_, std::move(*shape_)};
  }

 private:
  void member() {
    const std::string_view key = string("a key");
    expect(':');
    if (key == "descr" && !dtype_) return descr();
    if (key == "fortran_order" && !order_) return fortran_order();
    if (key == "shape" && !shape_) return shape();
    fail("has the key '" + printable(key) + "' twice, or the format does not know it");
  }

  void descr() {
    skip_spaces();
    if (at_ < text_.size() && text_[at_] == '[') {
      fail("describes elements of several fields; save one field, x['name']");
    }
    const std::string_view name = string("descr");
    dtype_ = find_npy_dtype(name);
    if (!dtype_) {
      fail("describes elements of type '" + printable(name) +
           "'; read are '<f4', '<f8', '<f2', '<V2' (bfloat16), '<i4', '<i8' and '|u1': convert "
           "it with x.astype('<f4')");
    }
  }

  void fortran_order() {
    if (word("True")) fail("is in Fortran order; save numpy.ascontiguousarray(x)");
    if (!word("False")) fail("has a fortran_order that is neither True nor False");
    order_ = true;
  }

  void shape() {
    expect('(');
    shape_.emplace();
    while (!take(')')) {
      if (shape_->size() == most_npy_axes)
        fail("has a shape of more than " + std::to_string(most_npy_axes) + " axes");
      shape_->push_back(number());
      if (take(',')) continue;
      expect(')');
      if (shape_->size() == 1) fail("has a shape that is no tuple");
      break;
    }
  }

  /// A number, with the suffix L of Python 2.
  std::uint64_t number() {
    skip_spaces();
    const std::size_t begin = at_;
    std::optional<std::uint64_t> value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      value = checked_product(*value, 10);
      if (!value || *value > UINT64_MAX - digit) fail("has an extent above 2^64");
      *value += digit;
    }
    const bool leads_with_zero = at_ > begin + 1 && text_[begin] == '0';
    if (at_ == begin || leads_with_zero) fail("has an extent that is no number from 0 on");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    return *value;
  }

  /// The text between quotes of either kind; the format needs no escapes.
  std::string_view string(const char* what) {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const std::size_t end =
        quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) fail(std::string("has no text in quotes for ") + what);
    const std::string_view content = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return content;
  }

  bool word(std::string_view wanted) {
    skip_spaces();
    if (text_.substr(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  bool take(char wanted) { return word({&wanted, 1}); }

  void expect(char wanted) {
    if (take(wanted)) return;
    fail(std::string("has no '") + wanted + "' at character " + std::to_string(at_));
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) {
      ++at_;
    }
  }

  /// The beginning of an untrusted text, for messages.
  static std::string printable(std::string_view text) {
    std::string result(text.substr(0, 40));
    for (char& c : result) {
      if (c < ' ' || c > '~') c = '?';
    }
    return result;
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw data_error({where_, ": its header ", why});
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::optional<Dtype> dtype_;
  std::optional<bool> order_;
  std::optional<std::vector<std::uint64_t>> shape_;
};

/// The position of the header in a file of `file_bytes` bytes that begins with `first`, its first
/// 12 bytes or the whole file.
/// throws   data_error, beginning with `where`, if it is not such a file
inline NpyStart find_npy_header(std::string_view first, std::uint64_t file_bytes,
                                const std::string& where) {
  const auto byte = [&first](std::size_t i) { return static_cast<unsigned char>(first[i]); };
  if (!first.starts_with("\x93NUMPY") || first.size() < 12) {
    throw data_error({where, ": is no .npy file, or cut short: it does not begin as they do"});
  }
  const unsigned major = byte(6);
  const unsigned minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    throw data_error({where, ": is of version ", major, ".", minor,
                      " of the format; 1.0, 2.0 and 3.0 are read"});
  }
  NpyStart start{major == 1 ? 10U : 12U, 0};
  for (std::size_t i = start.begin; i-- > 8;) start.length = start.length << 8 | byte(i);
  if (start.length > longest_npy_header || start.length > file_bytes - start.begin) {
    throw data_error({where, ": announces a header of ", start.length, " bytes in a file of ",
                      file_bytes, " (at most ", longest_npy_header,
                      " are read); it is damaged or cut short"});
  }
  return start;
}

/// Reads the text of a header in front of `data_bytes` bytes of elements.
/// throws   data_error, beginning with `where`, for text in another form than described above
inline NpyHeader parse_npy_header(std::string_view text, std::uint64_t data_bytes,
                                  const std::string& where) {
  NpyHeader header = detail::NpyLiteral(text, where).read();
  const auto bytes = detail::checked_product(size_of(header.dtype), header.shape);
  if (!bytes || *bytes != data_bytes) {
    throw data_error({where, ": has the shape ", detail::shape_text(header.shape), " of ",
                      name(header.dtype), ", which is ",
                      bytes ? std::to_string(*bytes) : "more than 2^64", " bytes, but holds ",
                      data_bytes, "; it is damaged, cut short, or holds more than one array"});
  }
  return header;
}

/// The first bytes of a file with this header, in version 1.0, like those of NumPy except for the
/// number of spaces. Elements begin at a multiple of 64.
inline std::string npy_header_bytes(const NpyHeader& header) {
  std::string shape = detail::shape_text(header.shape);
  shape = shape.substr(1, shape.size() - 2) + (header.shape.size() == 1 ? "," : "");
  std::string text = "{'descr': '" + std::string(detail::npy_name(header.dtype)) +
                     "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr std::size_t begin = 10;
  text.resize((begin + text.size() + 1 + 63) / 64 * 64 - begin - 1, ' ');
  text += '\n';
  return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(text.size() & 0xffU) +
         static_cast<char>(text.size() >> 8) + text;
}

}  // namespace detail

}  // namespace shardwise
