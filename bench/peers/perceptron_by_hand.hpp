#pragma once
// The perceptron 1024 -> 4096 -> 1024 as one would write it without any library of layers: its
// numbers, and oneDNN's products of them.

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <vector>

#include "kernels/by_hand.hpp"
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
struct Part {
  static constexpr std::size_t in = 1024, hidden = 4096, out = 1024;

  Part(int rank, int ranks, const std::filesystem::path& problem)
      : folder(problem),
        mine(hidden / static_cast<std::size_t>(ranks)),
        first(static_cast<std::size_t>(rank) * mine),
        count(shape_of_x(folder)[0].extent()),
        x(load("x", matrix(count, in))),
        dy(load("dy", matrix(count, out))),
        w1(rows(load("0.weight", matrix(hidden, in)), in, first, mine)),
        b1(rows(load("0.bias", vector(hidden)), 1, first, mine)),
        w2(columns(load("2.weight", matrix(out, hidden)), hidden, first, mine)),
        b2(load("2.bias", vector(out))),
        h(count * mine),
        y(count * out),
        dh(h.size()),
        dw1(w1.size()),
        db1(b1.size()),
        dw2(w2.size()),
        db2(b2.size()) {
    if (rank != 0) std::fill(b2.begin(), b2.end(), 0.0F);  // the sum has it once
  }

  /// dh = 0 where ReLU gave h = 0.
  void take_slope() {
    for (std::size_t e = 0; e < dh.size(); ++e) dh[e] = h[e] > 0 ? dh[e] : 0.0F;
  }

  /// Throws unless run(training) leaves the folder's results: in y the sum over all ranks.
  template <class Run>
  void require_results(Run run, bool speaks) const {
    const Values exact_y = load("y", matrix(count, out));
    const auto require = [&](const char* name, const Values& got, const Values& exact) {
      require_exact<float>(name, got, exact, speaks);
    };
    run(false);
    require("y of evaluate", y, exact_y);
    run(true);
    require("y", y, exact_y);
    require("grad.0.weight", dw1, rows(load("grad.0.weight", matrix(hidden, in)), in, first, mine));
    require("grad.0.bias", db1, rows(load("grad.0.bias", vector(hidden)), 1, first, mine));
    require("grad.2.weight", dw2,
            columns(load("grad.2.weight", matrix(out, hidden)), hidden, first, mine));
    require("grad.2.bias", db2, load("grad.2.bias", vector(out)));
  }

  std::filesystem::path folder;
  std::size_t mine, first, count;
  Values x, dy, w1, b1, w2, b2;
  Values h, y, dh, dw1, db1, dw2, db2;

 private:
  static sw::Shape matrix(std::size_t rows, std::size_t columns) {
    return {{sw::Axis::output, rows}, {sw::Axis::input, columns}};
  }
  static sw::Shape vector(std::size_t n) { return {{sw::Axis::output, n}}; }

  Values load(const char* name, const sw::Shape& shape) const {
    return peers::load(folder, name, shape);
  }
};

/// By oneDNN. Forward for use has its weights packed once; in training they change with every step
/// and are used as they lie.
class ByOneDnn {
 public:
  explicit ByOneDnn(Part& part) : part_(&part) {
    using by_hand::Weights;
    const auto m = static_cast<dnnl_dim_t>(part.count), n = static_cast<dnnl_dim_t>(part.mine);
    constexpr dnnl_dim_t i = Part::in, o = Part::out;
    Part& p = part;
    up_packed_ = by_hand::matmul(library_, m, i, n, p.x.data(), p.w1.data(), true, p.h.data(),
                                 p.b1.data(), true, Weights::packed);
    down_packed_ = by_hand::matmul(library_, m, n, o, p.h.data(), p.w2.data(), true, p.y.data(),
                                   p.b2.data(), false, Weights::packed);
    up_ = by_hand::inner_product(library_, m, i, n, p.x.data(), p.w1.data(), p.h.data(),
                                 p.b1.data(), true);
    down_ = by_hand::inner_product(library_, m, n, o, p.h.data(), p.w2.data(), p.y.data(),
                                   p.b2.data(), false);
    weight2_ = by_hand::inner_product_backward(library_, m, n, o, p.h.data(), p.w2.data(),
                                               p.dy.data(), p.dw2.data(), p.db2.data());
    hidden_ = by_hand::inner_product_backward(library_, m, n, o, p.dh.data(), p.w2.data(),
                                              p.dy.data(), nullptr, nullptr);
    weight1_ = by_hand::inner_product_backward(library_, m, i, n, p.x.data(), p.w1.data(),
                                               p.dh.data(), p.dw1.data(), p.db1.data());
  }

  void forward(bool training) {
    training ? up_() : up_packed_();
    training ? down_() : down_packed_();
  }

  void backward() {
    weight2_();
    hidden_();
    part_->take_slope();
    weight1_();
  }

 private:
  Part* part_;
  by_hand::Library library_;
  by_hand::Product up_packed_, down_packed_, up_, down_, weight2_, hidden_, weight1_;
};

}  // namespace peers
