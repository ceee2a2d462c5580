#pragma once
// The perceptron 1024 -> 4096 -> 1024 as one would write it without any library of layers: its
// numbers, and oneDNN's products of them.

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <vector>

#include "models/mlp_by_hand.hpp"
#include "peers/results.hpp"

namespace peers {

using Values = std::vector<float>;

/// Columns [first, first + count) of a matrix with `width` of them.
inline Values columns(const Values& all, std::size_t width, std::size_t first, std::size_t count) {
  Values part;
  for (std::size_t row = 0; row < all.size(); row += width) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row + first);
    part.insert(part.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  return part;
}
inline Values rows(const Values& all, std::size_t width, std::size_t first, std::size_t count) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first * width);
  return {begin, begin + static_cast<std::ptrdiff_t>(count * width)};
}

/// What one of some ranks has of a problem: an equal part of the hidden features. y is a summand.
class Part {
 public:
  static constexpr std::size_t in = 1024, hidden = 4096, out = 1024;

  Part(int rank, int ranks, const std::filesystem::path& problem)
      : folder_(problem),
        mine_(hidden / static_cast<std::size_t>(ranks)),
        first_(static_cast<std::size_t>(rank) * mine_),
        count_(shape_of_x(folder_)[0].extent()),
        by_onednn(library_, problem_of(rank), by_hand::By::inner_product) {}

  std::size_t count() const { return count_; }

  /// Forward for use has its weights packed once; in training they are used as they lie.
  void forward(bool training) { training ? by_onednn.forward() : by_onednn.forward_packed(); }

  /// Throws unless run(training) leaves the folder's results: in y the sum over all ranks.
  template <class Run>
  void require_results(Run run, bool speaks) const {
    const Values exact_y = load("y", matrix(count_, out));
    const auto& m = by_onednn;
    const auto require = [&](const char* name, const Values& got, const Values& exact) {
      require_exact<float>(name, got, exact, speaks);
    };
    run(false);
    require("y of evaluate", m.y, exact_y);
    run(true);
    require("y", m.y, exact_y);
    require("grad.0.weight", m.dw1, rows_of("grad.0.weight", in));
    require("grad.0.bias", m.db1, rows_of("grad.0.bias", 1));
    require("grad.2.weight", m.dw2, columns_of("grad.2.weight"));
    require("grad.2.bias", m.db2, load("grad.2.bias", matrix(out, 1)));
  }

 private:
  static sw::Shape matrix(std::size_t rows, std::size_t columns) {
    if (columns == 1) return {{sw::Axis::output, rows}};
    return {{sw::Axis::output, rows}, {sw::Axis::input, columns}};
  }

  Values load(const char* name, const sw::Shape& shape) const {
    return peers::load(folder_, name, shape);
  }
  Values rows_of(const char* name, std::size_t width) const {
    return rows(load(name, matrix(hidden, width)), width, first_, mine_);
  }
  Values columns_of(const char* name) const {
    return columns(load(name, matrix(out, hidden)), hidden, first_, mine_);
  }

  bench::MlpProblem<float> problem_of(int rank) const {
    bench::MlpProblem<float> p(count_, in, mine_, out);
    p.x = load("x", matrix(count_, in));
    p.dy = load("dy", matrix(count_, out));
    p.w1 = rows_of("0.weight", in);
    p.b1 = rows_of("0.bias", 1);
    p.w2 = columns_of("2.weight");
    p.b2 = load("2.bias", matrix(out, 1));
    if (rank != 0) std::fill(p.b2.begin(), p.b2.end(), 0.0F);  // the sum has it once
    return p;
  }

  std::filesystem::path folder_;
  std::size_t mine_, first_, count_;
  by_hand::Library library_;

 public:
  by_hand::Mlp<float> by_onednn;
};

}  // namespace peers
