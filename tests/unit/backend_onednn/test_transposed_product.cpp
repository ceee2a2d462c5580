// The product of a few rows as the transpose of the weight's product with them, and which products
// OneDnn::Linear takes for a weight that is in no cache.

#include <doctest/doctest.h>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/reference.hpp"
#include "support/largest_difference.hpp"
#include "support/onednn_dtypes.hpp"
#include "unit/backend/linear_problem.hpp"

using namespace shardwise;
using backend_test::LinearProblem;
using detail::onednn::TransposedProduct;

namespace {

template <class T>
std::vector<T> transposed(detail::onednn::Session& session, const LinearProblem<T>& problem,
                          const T* bias) {
  TransposedProduct<T> product(problem.in, problem.out);
  auto y = backend_test::unwritten<T>(problem.rows * problem.out);
  product.run(session, {problem.rows, problem.in, problem.out, problem.x.data(), problem.w.data(),
                        bias, Activation::none, y.data()});
  return y;
}

/// One to four and up to 48 have products of their own.
constexpr std::size_t row_counts[] = {1, 2, 3, 4, 5, 17, 33, 48, 49};

/// The least outputs of 1024 inputs that are in no cache, and three.
template <class T>
constexpr std::size_t outputs = (2 << 20) / sizeof(T) / 1024 + 3;

}  // namespace

TEST_CASE_TEMPLATE("transposed: integers are exact, at every remainder of vectors", T, float,
                   bf16) {
  if (!testing::onednn_computes<T>() || !detail::onednn::has(dnnl_cpu_isa_avx512_core)) return;
  detail::onednn::Session session;
  for (const std::size_t rows : {1U, 2U, 7U, 15U, 16U, 17U, 32U, 48U}) {
    for (const std::size_t in : {1U, 33U, 70U}) {
      for (std::size_t out = 1; out <= 50; out += out < 18 ? 1 : 7) {
        const auto problem = LinearProblem<T>::of_integers(rows, in, out);
        CAPTURE(rows);
        CAPTURE(in);
        CAPTURE(out);
        CHECK(backend_test::same(transposed(session, problem, problem.bias.data()),
                                 backend_test::rounded<T>(problem.forward(true))));
        CHECK(backend_test::same(transposed<T>(session, problem, nullptr),
                                 backend_test::rounded<T>(problem.forward(false))));
      }
    }
  }
}

TEST_CASE_TEMPLATE("transposed: what is no number stays so, where it belongs", T, float, bf16) {
  if (!testing::onednn_computes<T>() || !detail::onednn::has(dnnl_cpu_isa_avx512_core)) return;
  detail::onednn::Session session;
  for (std::size_t row = 0; row < 19; ++row) {
    auto problem = LinearProblem<T>::of_reals(19, 40, 21);
    const std::size_t o = (row + 5) % 21;
    problem.x[row * 40 + row] = static_cast<T>(std::nanf(""));
    problem.w[o * 40 + row] = static_cast<T>(std::nanf(""));
    const std::vector<T> y = transposed(session, problem, problem.bias.data());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < y.size(); ++i)
      wrong += std::isnan(static_cast<float>(y[i])) != (i / 21 == row || i % 21 == o);
    CAPTURE(row);
    CHECK(wrong == 0);
  }
}

TEST_CASE_TEMPLATE("a large weight: activations are those of the reference, in all products", T,
                   float, bf16) {
  if (!testing::onednn_computes<T>()) return;
  Reference reference;
  // Sums of 1024 products below 1 are below 64: in float some 1024 roundings of 2^-19 at most, seen
  // 2e-5; in bf16 half of its spacing there.
  const float close = std::same_as<T, float> ? 1e-4F : 0.13F;
  Reference::Linear<T> oracle(reference, 1024, outputs<T>);
  for (const std::size_t rows : row_counts) {
    const auto problem = LinearProblem<T>::of_reals(rows, 1024, outputs<T>);
    for (const Activation activation : {Activation::none, Activation::gelu}) {
      std::vector<T> expected(rows * outputs<T>);
      oracle.forward(rows, problem.x.data(), {problem.w.data(), 1}, problem.bias.data(), activation,
                     expected.data());
      for (const int threads : {1, 2}) {
        OneDnn backend(threads);
        OneDnn::Linear<T> kernel(backend, 1024, outputs<T>);
        for (const bool stays : {false, true}) {
          auto y = backend_test::unwritten<T>(expected.size());
          kernel.forward(rows, problem.x.data(), {problem.w.data(), 1, stays}, problem.bias.data(),
                         activation, y.data());
          CAPTURE(rows);
          CAPTURE(threads);
          CAPTURE(name(activation));
          CHECK(testing::largest_difference(y, expected) <= close);
        }
      }
    }
  }
}

TEST_CASE_TEMPLATE("a large weight is read as it lies: there is no copy", T, float, bf16) {
  if (std::same_as<T, bf16> && !(detail::onednn::has_vectors && detail::onednn::multiplies_bf16()))
    return;  // then it is packed
  for (const std::size_t rows : row_counts) {
    auto problem = LinearProblem<T>::of_integers(rows, 1024, outputs<T>);
    OneDnn backend;
    OneDnn::Linear<T> kernel(backend, 1024, outputs<T>);
    std::vector<T> y(rows * outputs<T>);
    for (int change = 0; change < 2; ++change) {
      for (T& weight : problem.w) weight = static_cast<T>(static_cast<float>(weight) + 1.0F);
      kernel.forward(rows, problem.x.data(), {problem.w.data(), 1, true}, problem.bias.data(),
                     Activation::none, y.data());
      CAPTURE(rows);
      CHECK(backend_test::same(y, backend_test::rounded<T>(problem.forward(true))));
    }
  }
}
