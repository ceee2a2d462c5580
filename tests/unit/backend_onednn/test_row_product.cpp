// The product of one to eight rows, which OneDnn::Linear takes on one thread.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "support/onednn_dtypes.hpp"
#include "unit/backend/linear_problem.hpp"

using namespace shardwise;
using backend_test::LinearProblem;

namespace {

/// As a layer calls it in training or in evaluation; both with a bias.
template <class T>
std::vector<T> forward(OneDnn& backend, const LinearProblem<T>& problem, bool stays,
                       Activation activation = Activation::none) {
  OneDnn::Linear<T> kernel(backend, problem.in, problem.out);
  auto y = backend_test::unwritten<T>(problem.out);
  kernel.forward(1, problem.x.data(), {problem.w.data(), 1, stays}, problem.bias.data(), activation,
                 y.data());
  return y;
}

}  // namespace

TEST_CASE_TEMPLATE("few rows: sums of a formula, with a bias or ReLU, at every remainder", T, float,
                   bf16) {
  if (!detail::onednn::has(dnnl_cpu_isa_avx512_core)) return;
  // x[r, i] = i + 1 + r and w[o, i] = o - i: y[r, o] = o in (in + 1) / 2 - (in - 1) in (in + 1) / 3
  // + r (o in - in (in - 1) / 2) + bias[o], with bias[o] = o.
  const auto number = [](std::size_t n) { return static_cast<float>(n); };
  for (std::size_t rows = 1; rows <= detail::onednn::most_product_rows<T>; ++rows) {
    for (std::size_t in = 1; in <= 70; in += rows == 1 ? 1 : 3) {
      for (std::size_t out = 1; out <= 150; out += out < 26 ? 1 : 31) {
        std::vector<T> x, w, bias, y = backend_test::unwritten<T>(rows * out);
        for (std::size_t r = 0; r < rows; ++r)
          for (std::size_t i = 0; i < in; ++i) x.push_back(static_cast<T>(number(i + 1 + r)));
        for (std::size_t o = 0; o < out; ++o) {
          bias.push_back(static_cast<T>(number(o)));
          for (std::size_t i = 0; i < in; ++i) w.push_back(static_cast<T>(number(o) - number(i)));
        }
        for (const T* const added :
             {static_cast<const T*>(bias.data()), static_cast<const T*>(nullptr)}) {
          const Activation activation = added == nullptr ? Activation::relu : Activation::none;
          detail::onednn::RowProduct<T>{
              {rows, in, out, x.data(), w.data(), added, activation, y.data()}}
              .run();
          std::size_t wrong = 0;
          for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t o = 0; o < out; ++o) {
              const float of_first_row =
                  number(o * (in * (in + 1) / 2)) - number((in - 1) * in * (in + 1) / 3);
              const float sum =
                  of_first_row + number(r) * (number(o * in) - number(in * (in - 1) / 2));
              const float expected = added == nullptr ? std::max(sum, 0.0F) : sum + number(o);
              wrong += static_cast<float>(y[r * out + o]) !=
                       static_cast<float>(static_cast<T>(expected));
            }
          }
          CAPTURE(rows);
          CAPTURE(in);
          CAPTURE(out);
          CHECK(wrong == 0);
        }
      }
    }
  }
}

TEST_CASE("few rows: more inputs than are read at once") {
  if (!detail::onednn::has(dnnl_cpu_isa_avx512_core)) return;
  for (const std::size_t rows : {4U, 5U, 8U}) {
    const auto problem = LinearProblem<float>::of_integers(rows, 2 * 1024 + 37, 70);
    auto y = backend_test::unwritten<float>(rows * problem.out);
    detail::onednn::RowProduct<float>{{rows, problem.in, problem.out, problem.x.data(),
                                       problem.w.data(), problem.bias.data(), Activation::none,
                                       y.data()}}
        .run();
    CAPTURE(rows);
    CHECK(backend_test::same(y, backend_test::rounded<float>(problem.forward(true))));
  }
}

TEST_CASE_TEMPLATE("one row: what is no number stays so, in every input and output", T, float,
                   bf16) {
  if (!testing::onednn_computes<T>()) return;
  OneDnn backend;
  const auto problem = LinearProblem<T>::of_reals(1, 70, 19);
  for (std::size_t i = 0; i < problem.in; ++i) {
    auto broken = problem;
    const std::size_t o = i % problem.out;
    broken.w[o * problem.in + i] = static_cast<T>(std::nanf(""));
    const std::vector<T> y = forward(backend, broken, true, Activation::relu);
    std::size_t wrong = 0;
    for (std::size_t k = 0; k < y.size(); ++k)
      wrong += std::isnan(static_cast<float>(y[k])) != (k == o);
    CAPTURE(i);
    CHECK(wrong == 0);
  }
}

TEST_CASE_TEMPLATE("one row: equal bits in training and in evaluation, and no copy", T, float,
                   bf16) {
  if (!testing::onednn_computes<T>()) return;
  if (!detail::onednn::gains_from_row_product<T>(1, 200))
    return;  // then it is a product of the library
  OneDnn backend;
  auto problem = LinearProblem<T>::of_reals(1, 200, 130);
  CHECK(backend_test::same(forward(backend, problem, true), forward(backend, problem, false)));

  problem = LinearProblem<T>::of_integers(1, 200, 130);
  OneDnn::Linear<T> kernel(backend, 200, 130);
  std::vector<T> y(130);
  for (int change = 0; change < 2; ++change) {
    for (T& weight : problem.w) weight = static_cast<T>(static_cast<float>(weight) + 1.0F);
    kernel.forward(1, problem.x.data(), {problem.w.data(), 1, true}, problem.bias.data(),
                   Activation::none, y.data());
    CHECK(backend_test::same(y, backend_test::rounded<T>(problem.forward(true))));
  }
}

TEST_CASE_TEMPLATE("one row is the same as that row among others, and with several threads", T,
                   float, bf16) {
  if (!testing::onednn_computes<T>()) return;
  const auto problem = LinearProblem<T>::of_integers(3, 200, 130);
  const auto all = backend_test::rounded<T>(problem.forward(true));
  for (const int threads : {1, 2}) {
    OneDnn backend(threads);
    OneDnn::Linear<T> kernel(backend, 200, 130);
    std::vector<T> y(all.size());
    for (const bool stays : {false, true}) {
      for (std::size_t row = 0; row < problem.rows; ++row)
        kernel.forward(1, problem.x.data() + row * 200, {problem.w.data(), 1, stays},
                       problem.bias.data(), Activation::none, y.data() + row * 130);
      CAPTURE(threads);
      CAPTURE(stays);
      CHECK(backend_test::same(y, all));
    }
  }
}
