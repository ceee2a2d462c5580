#pragma once
// A tensor of a file and the model's tensors that are rows of it.

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "shardwise/checkpoint/part.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/core/checked_size.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// A tensor of a file. The rows of its parts leave no gap; they may overlap.
struct WholeTensor {
  Shape shape{};                    // axes in the order of the file
  std::vector<TensorPart> parts{};  // in the order of their rows, at least one

  const std::string& name() const { return parts.front().file.name; }
  const FileDtype& dtype() const { return parts.front().dtype; }
  std::size_t bytes() const { return shape.elements() * parts.front().element_bytes(); }
};

/// Throws argument_error if the two cannot be rows of one tensor.
inline void require_alike(const TensorPart& a, const TensorPart& b) {
  Shape like_a = b.whole;
  if (a.whole.rank() == b.whole.rank() && a.whole.rank() > 0) {
    like_a[b.row_axis()] = a.whole[b.row_axis()];
  }
  if (a.dtype == b.dtype && a.file.transposed == b.file.transposed &&
      file_shape(a.whole) == file_shape(like_a)) {
    return;
  }
  const auto text = [](const TensorPart& part) {
    return std::string(part.dtype.name) + ' ' + shape_text(file_shape(part.whole)) +
           (part.file.transposed ? " transposed" : "");
  };
  throw argument_error({"checkpoint: tensors of ", text(a), " and of ", text(b),
                        " are to be rows of ", in_quotes(a.file.name),
                        ": they must be alike but for the number of rows; look at the names in the "
                        "options"});
}

/// Orders the parts of a tensor and sets its shape.
inline void join_rows(WholeTensor& tensor) {
  std::stable_sort(
      tensor.parts.begin(), tensor.parts.end(),
      [](const TensorPart& a, const TensorPart& b) { return a.file.first_row < b.file.first_row; });
  std::size_t rows = 0;
  for (const TensorPart& part : tensor.parts) {
    require_alike(tensor.parts.front(), part);
    if (part.file.first_row > rows) {
      throw argument_error({"checkpoint: row ", rows, " of ", in_quotes(part.file.name),
                            " belongs to no tensor of the model, but row ", part.file.first_row,
                            " does; look at the names in the options"});
    }
    rows = std::max(rows, part.file.first_row + part.rows());
  }
  const TensorPart& first = tensor.parts.front();
  tensor.shape = first.whole;
  if (tensor.shape.rank() > 0) {
    tensor.shape[first.row_axis()] = {first.whole[first.row_axis()].axis, rows};
  }
  for (TensorPart& part : tensor.parts) part.box.whole = tensor.shape;
}

/// The tensors of a file with these parts, in the order of their first parts.
/// throws   argument_error if parts of one tensor do not fit together
inline std::vector<WholeTensor> whole_tensors(const std::vector<TensorPart>& parts) {
  std::vector<WholeTensor> tensors;
  std::map<std::string, std::size_t> numbers;
  for (const TensorPart& part : parts) {
    const auto [known, is_new] = numbers.emplace(part.file.name, tensors.size());
    if (is_new) tensors.emplace_back();
    tensors[known->second].parts.push_back(part);
  }
  for (WholeTensor& tensor : tensors) join_rows(tensor);
  return tensors;
}

}  // namespace shardwise::detail
