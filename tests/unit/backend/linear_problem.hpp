#pragma once
// Data for one linear layer and its products by naive loops in double, for any backend's tests.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/dtype.hpp"
#include "unit/backend/typed_numbers.hpp"

namespace backend_test {

using shardwise::Activation;
using shardwise::Weight;
using shardwise::Write;

/// Numbers from a small linear congruential generator (Numerical Recipes' "quick" one).
class Numbers {
 public:
  explicit Numbers(std::uint32_t seed) : state_(seed) {}

  /// An integer in [-bound, bound].
  int integer(int bound) {
    return static_cast<int>(next() % static_cast<std::uint32_t>(2 * bound + 1)) - bound;
  }
  /// A real number in [-1, 1).
  float real() { return static_cast<float>(next()) * 0x1p-23F - 1.0F; }

 private:
  std::uint32_t next() {
    state_ = state_ * 1664525U + 1013904223U;
    return state_ >> 8;
  }
  std::uint32_t state_;
};

struct Sizes {
  std::size_t rows, in, out;
};

/// Every way in which a product can be empty.
inline constexpr Sizes empty_products[] = {{0, 3, 2}, {3, 0, 2}, {3, 2, 0}, {0, 0, 2},
                                           {3, 0, 0}, {0, 2, 0}, {0, 0, 0}};

/// x [rows, in], w [out, in], bias [out], dy [rows, out], and what dw and db hold beforehand.
template <class T>
struct LinearProblem {
  std::size_t rows, in, out;
  std::vector<T> x, w, bias, dy, dw, db;

  /// Integers of magnitude 2 at most: every sum is exact in float.
  static LinearProblem of_integers(std::size_t rows, std::size_t in, std::size_t out) {
    Numbers numbers(static_cast<std::uint32_t>(rows * 10007 + in * 101 + out));
    return make(rows, in, out,
                [&] { return static_cast<T>(static_cast<float>(numbers.integer(2))); });
  }

  /// Real numbers in [-1, 1); others for another `salt`.
  static LinearProblem of_reals(std::size_t rows, std::size_t in, std::size_t out,
                                std::uint32_t salt = 0) {
    Numbers numbers(static_cast<std::uint32_t>(rows * 10007 + in * 101 + out) ^ salt);
    return make(rows, in, out, [&] { return static_cast<T>(numbers.real()); });
  }

  /// x wᵀ (+ bias)
  std::vector<double> forward(bool with_bias) const {
    std::vector<double> y(rows * out);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t o = 0; o < out; ++o) {
        double sum = with_bias ? number_of(bias[o]) : 0.0;
        for (std::size_t i = 0; i < in; ++i)
          sum += number_of(x[r * in + i]) * number_of(w[o * in + i]);
        y[r * out + o] = sum;
      }
    }
    return y;
  }

  /// dy w
  std::vector<double> backward_input() const {
    std::vector<double> dx(rows * in);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < in; ++i) {
        double sum = 0;
        for (std::size_t o = 0; o < out; ++o)
          sum += number_of(dy[r * out + o]) * number_of(w[o * in + i]);
        dx[r * in + i] = sum;
      }
    }
    return dx;
  }

  /// dyᵀ x, added to dw for Write::add
  std::vector<double> weight_gradient(Write write) const {
    std::vector<double> result(out * in);
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t i = 0; i < in; ++i) {
        double sum = write == Write::add ? number_of(dw[o * in + i]) : 0.0;
        for (std::size_t r = 0; r < rows; ++r)
          sum += number_of(dy[r * out + o]) * number_of(x[r * in + i]);
        result[o * in + i] = sum;
      }
    }
    return result;
  }

  /// column sums of dy, added to db for Write::add
  std::vector<double> bias_gradient(Write write) const {
    std::vector<double> result(out);
    for (std::size_t o = 0; o < out; ++o) {
      result[o] = write == Write::add ? number_of(db[o]) : 0.0;
      for (std::size_t r = 0; r < rows; ++r) result[o] += number_of(dy[r * out + o]);
    }
    return result;
  }

 private:
  template <class Draw>
  static LinearProblem make(std::size_t rows, std::size_t in, std::size_t out, Draw draw) {
    LinearProblem p{rows, in, out, {}, {}, {}, {}, {}, {}};
    const auto fill = [&](std::vector<T>& values, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) values.push_back(draw());
    };
    fill(p.x, rows * in);
    fill(p.w, out * in);
    fill(p.bias, out);
    fill(p.dy, rows * out);
    fill(p.dw, out * in);
    fill(p.db, out);
    return p;
  }
};

/// How far a float sum of `length` products of reals in [-1, 1) may lie from the exact one:
/// 8 eps sqrt(K) |a| |b|, where a vector of K such numbers has norm |a| = sqrt(K / 3).
inline double float_bound(std::size_t length) {
  const auto k = static_cast<double>(length);
  return 8 * 0x1p-23 * std::sqrt(k) * k / 3;
}

/// |ours - exact| within the bound of a sum of `length` products, see `float_bound`, in T's
/// rounding.
template <class T>
bool close(const std::vector<T>& ours, const std::vector<double>& exact, std::size_t length) {
  constexpr double rounding = static_cast<double>(std::numeric_limits<T>::epsilon()) / 0x1p-23;
  bool all = ours.size() == exact.size();
  for (std::size_t i = 0; all && i < ours.size(); ++i)
    all = std::abs(static_cast<double>(ours[i]) - exact[i]) <= float_bound(length) * rounding;
  return all;
}

/// Checks every product of B's kernel on reals in [-1, 1) with `close`.
template <class B, class T>
bool products_are_close(B& backend, std::size_t rows, std::size_t in, std::size_t out) {
  const auto problem = LinearProblem<T>::of_reals(rows, in, out);
  typename B::template Linear<T> kernel(backend, in, out);
  const Weight<T> weight{problem.w.data(), 1};
  auto y = unwritten<T>(rows * out), dx = unwritten<T>(rows * in);
  auto dw = problem.dw, db = problem.db;
  kernel.forward(rows, problem.x.data(), weight, problem.bias.data(), Activation::none, y.data());
  kernel.backward_input(rows, problem.dy.data(), weight, dx.data());
  kernel.backward_weight(rows, problem.x.data(), problem.dy.data(), Write::add, dw.data(),
                         db.data());
  return close(y, problem.forward(true), in + 1) && close(dx, problem.backward_input(), out) &&
         close(dw, problem.weight_gradient(Write::add), rows + 1) &&
         close(db, problem.bias_gradient(Write::add), rows + 1);
}

/// Checks every product of B's kernel on integer-valued data with ==.
template <class B, class T>
bool products_are_exact(B& backend, std::size_t rows, std::size_t in, std::size_t out) {
  const auto problem = LinearProblem<T>::of_integers(rows, in, out);
  typename B::template Linear<T> kernel(backend, in, out);
  const Weight<T> weight{problem.w.data(), 1};
  bool exact = true;

  for (const bool with_bias : {false, true}) {
    for (const Activation activation : {Activation::none, Activation::relu}) {
      std::vector<double> expected = problem.forward(with_bias);
      if (activation == Activation::relu) {
        for (double& value : expected) value = value > 0 ? value : 0;
      }
      auto y = unwritten<T>(rows * out);
      kernel.forward(rows, problem.x.data(), weight, with_bias ? problem.bias.data() : nullptr,
                     activation, y.data());
      exact = exact && same(y, rounded<T>(expected));
    }
  }

  auto dx = unwritten<T>(rows * in);
  kernel.backward_input(rows, problem.dy.data(), weight, dx.data());
  exact = exact && same(dx, rounded<T>(problem.backward_input()));

  for (const Write write : {Write::replace, Write::add}) {
    for (const bool with_bias : {false, true}) {
      auto dw = write == Write::add ? problem.dw : unwritten<T>(out * in);
      auto db = write == Write::add ? problem.db : unwritten<T>(out);
      const auto db_before = db;
      kernel.backward_weight(rows, problem.x.data(), problem.dy.data(), write, dw.data(),
                             with_bias ? db.data() : nullptr);
      exact = exact && same(dw, rounded<T>(problem.weight_gradient(write)));
      exact = exact && same(db, with_bias ? rounded<T>(problem.bias_gradient(write)) : db_before);
    }
  }
  return exact;
}

}  // namespace backend_test
