#pragma once
// A perceptron's numbers, and what must come out of them.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "support/random_values.hpp"
#include "support/require_equal.hpp"

namespace bench {

/// n numbers in [-bound, bound).
template <class T>
std::vector<T> random_within(double bound, std::size_t n, unsigned seed) {
  std::vector<T> values = random_values<T>(n, seed);
  for (T& value : values)
    value = static_cast<T>(static_cast<float>(value) * static_cast<float>(bound));
  return values;
}

/// y = ReLU(x w1ᵀ + b1) w2ᵀ + b2 for x [rows, in], w1 [hidden, in], w2 [out, hidden], and a
/// gradient dy of y. Weights have the size at which training begins.
template <class T>
struct MlpProblem {
  MlpProblem(std::size_t rows_, std::size_t in_, std::size_t hidden_, std::size_t out_)
      : rows(rows_), in(in_), hidden(hidden_), out(out_) {}

  std::size_t rows, in, hidden, out;
  std::vector<T> x = random_values<T>(rows * in, 1);
  std::vector<T> w1 = random_within<T>(root(in), hidden* in, 2);
  std::vector<T> b1 = random_within<T>(root(in), hidden, 3);
  std::vector<T> w2 = random_within<T>(root(hidden), out* hidden, 4);
  std::vector<T> b2 = random_within<T>(root(hidden), out, 5);
  std::vector<T> dy = random_values<T>(rows * out, 6);

  /// Throws unless the first, middle and last row of y are what plain loops in double give.
  template <class Y>
  void require_output(const std::string& who, const Y* y) const {
    for (const std::size_t r : {std::size_t{0}, rows / 2, rows - 1}) {
      std::vector<double> h(hidden), exact(out);
      for (std::size_t j = 0; j < hidden; ++j) h[j] = unit(r, j);
      for (std::size_t o = 0; o < out; ++o) {
        exact[o] = number(b2[o]);
        for (std::size_t j = 0; j < hidden; ++j) exact[o] += h[j] * number(w2[o * hidden + j]);
      }
      require_near<T>(who + ": output, row " + std::to_string(r), exact,
                      [&](std::size_t o) { return y[r * out + o]; });
    }
  }

  /// Throws unless the gradients are exact in db2 and in what belongs to some of the hidden units,
  /// those at the ends of two ranks' halves.
  template <class Y>
  void require_gradients(const std::string& who, const Y* dw1, const Y* db1, const Y* dw2,
                         const Y* db2) const {
    const std::array<std::size_t, 4> units{0, hidden / 2 - 1, hidden / 2, hidden - 1};
    std::vector<double> exact_b1(units.size()), exact_b2(out);
    for (std::size_t i = 0; i < dy.size(); ++i) exact_b2[i % out] += number(dy[i]);
    for (std::size_t k = 0; k < units.size(); ++k) {
      const std::size_t j = units[k];
      std::vector<double> exact1(in), exact2(out);
      for (std::size_t r = 0; r < rows; ++r) {
        const double h = unit(r, j);
        double dh = 0;
        for (std::size_t o = 0; o < out; ++o) {
          exact2[o] += number(dy[r * out + o]) * h;
          dh += number(dy[r * out + o]) * number(w2[o * hidden + j]);
        }
        if (h <= 0) continue;
        exact_b1[k] += dh;
        for (std::size_t i = 0; i < in; ++i) exact1[i] += dh * number(x[r * in + i]);
      }
      const std::string unit_name = ", hidden unit " + std::to_string(j);
      require_near<T>(who + ": dw1" + unit_name, exact1,
                      [&](std::size_t i) { return dw1[j * in + i]; });
      require_near<T>(who + ": dw2" + unit_name, exact2,
                      [&](std::size_t o) { return dw2[o * hidden + j]; });
    }
    require_near<T>(who + ": db1", exact_b1, [&](std::size_t k) { return db1[units[k]]; });
    require_near<T>(who + ": db2", exact_b2, [&](std::size_t o) { return db2[o]; });
  }

 private:
  static double root(std::size_t fan_in) { return 1 / std::sqrt(static_cast<double>(fan_in)); }
  static double number(T value) { return static_cast<double>(static_cast<float>(value)); }

  /// Hidden unit j for row r.
  double unit(std::size_t r, std::size_t j) const {
    double sum = number(b1[j]);
    for (std::size_t i = 0; i < in; ++i) sum += number(x[r * in + i]) * number(w1[j * in + i]);
    return std::max(sum, 0.0);
  }
};

}  // namespace bench
