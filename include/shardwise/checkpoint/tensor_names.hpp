#pragma once
// The names of a model's tensors in a file, and their rows of the file's tensors.

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/version.hpp"

namespace shardwise {

/// Where a file has a tensor of the model: as a tensor of its own, or as some rows of a larger one.
/// Rows are elements of the outermost axis of the model's tensor: of a weight [output, input] those
/// are its outputs.
///
///     FileTensor{"fc1.weight"}
///     FileTensor{"qkv_proj.weight", 48}             from row 48 on
///     FileTensor{"c_attn.weight", 48, true}         [input, output] in the file: from column 48 on
///     FileTensor{"query_key_value.weight", 48}.in_pieces(16, 80)
///                                                   16 rows from row 48 on, 16 from row 128 on,
///                                                   ...
///     FileTensor{"cls_token"}.behind_ones(2)        [1, 1, feature] in the file
///     FileTensor{"experts.*.w1.weight"}             a tensor for each element of the outermost
///                                                   axis, whose number from 0 on stands for the *
///
/// With a * the rows are those of each tensor of the file, which lacks the outermost axis.
struct FileTensor {
  std::string name;           ///< of the file's tensor, or of several
  std::size_t first_row = 0;  ///< of the file's tensor that belongs to the model's tensor
  bool transposed = false;    ///< whether the file has the two axes of a matrix in the other order
  std::size_t piece = 0;      ///< neighbouring rows in the file, 0 for all; see `in_pieces`
  std::size_t apart = 0;      ///< rows of the file from the beginning of a piece to the next one's
  std::size_t ones = 0;       ///< see `behind_ones`

  ///@{
  /// A name converts to the whole tensor of that name.
  FileTensor(std::string in_file, std::size_t first = 0, bool is_transposed = false)
      : name(std::move(in_file)), first_row(first), transposed(is_transposed) {}
  FileTensor(const char* in_file, std::size_t first = 0, bool is_transposed = false)
      : FileTensor(std::string(in_file), first, is_transposed) {}
  ///@}

  /// The same, with its rows in pieces of `rows` rows that begin `rows_apart` rows of the file's
  /// tensor apart: where a file has heads of several tensors by turns.
  FileTensor in_pieces(std::size_t rows, std::size_t rows_apart) const {
    FileTensor other = *this;
    other.piece = rows;
    other.apart = rows_apart;
    return other;
  }

  /// The same, where the file has `axes` axes of extent 1 in front of the tensor's.
  FileTensor behind_ones(std::size_t axes) const {
    FileTensor other = *this;
    other.ones = axes;
    return other;
  }
};

/// Where a file has the tensors of a model, by the model's names; other names are the same in both.
/// For example, with {{"0.weight", "fc1.weight"}} the file calls 0.weight fc1.weight.
using TensorNames = std::map<std::string, FileTensor>;

/// Tensors that a file may have beside those of the model, and that are passed over.
struct OtherTensors {
  std::vector<std::string> without_meaning{};  ///< such as masks; a * stands for any text
  /// Names of a tensor, and of the one of which it must be a copy, such as a head and the table to
  /// which it is tied.
  std::vector<std::pair<std::string, std::string>> copies{};
};

namespace detail {

/// A name for messages: short, and without control characters.
inline std::string in_quotes(std::string_view name) {
  constexpr std::size_t longest = 100;
  std::string text = "'";
  for (const char c : name.substr(0, longest)) {
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return text + (name.size() > longest ? "...'" : "'");
}

}  // namespace detail

}  // namespace shardwise
