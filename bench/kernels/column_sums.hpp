#pragma once
// The gradient of a bias by hand.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace by_hand {

/// Adds up the columns of row-major matrices in float, in memory of its own.
template <class T>
class ColumnSums {
 public:
  /// As many columns as `sums` has elements.
  void operator()(const std::vector<T>& matrix, std::vector<T>& sums) {
    const std::size_t columns = sums.size();
    floats_.assign(columns, 0.0F);
    for (std::size_t row = 0; row < matrix.size(); row += columns) {
      for (std::size_t j = 0; j < columns; ++j) floats_[j] += static_cast<float>(matrix[row + j]);
    }
    std::transform(floats_.begin(), floats_.end(), sums.begin(),
                   [](float sum) { return static_cast<T>(sum); });
  }

 private:
  std::vector<float> floats_;
};

}  // namespace by_hand
