#pragma once
// Columns of numbers in a size that a network learns from, and back.

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace example {

// begin: scale
/// Brings each column to mean 0 and deviation 1, for the rows that the network learns from.
struct Scale {
  std::vector<double> mean, deviation;

  Scale(std::span<const double> values, std::size_t width) : mean(width), deviation(width) {
    const auto rows = static_cast<double>(values.size()) / static_cast<double>(width);
    for (std::size_t i = 0; i < values.size(); ++i) mean[i % width] += values[i] / rows;
    for (std::size_t i = 0; i < values.size(); ++i)
      deviation[i % width] += std::pow(values[i] - mean[i % width], 2) / rows;
    for (double& each : deviation) each = std::sqrt(each);
  }
  Scale(const std::string& text, std::size_t width) : mean(width), deviation(width) {
    std::istringstream in(text);
    for (std::size_t c = 0; c < width; ++c) in >> mean[c] >> deviation[c];
    if (!in) throw std::runtime_error("the file is not one of a surrogate: it has no scales");
  }
  std::string text() const {
    std::ostringstream out;
    out.precision(std::numeric_limits<double>::max_digits10);
    for (std::size_t c = 0; c < mean.size(); ++c) out << mean[c] << ' ' << deviation[c] << ' ';
    return out.str();
  }
  void apply(std::span<double> values) const {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = (values[i] - mean[i % mean.size()]) / deviation[i % mean.size()];
  }
  void undo(std::span<double> values) const {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = mean[i % mean.size()] + deviation[i % mean.size()] * values[i];
  }
};
// end: scale

}  // namespace example
