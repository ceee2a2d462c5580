#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "unit/backend/linear_problem.hpp"

using namespace shardwise;
using backend_test::LinearProblem;

static_assert(Backend<Reference, float> && Backend<Reference, double>);
static_assert(Backend<Reference, bf16> && Backend<Reference, fp16>);
static_assert(!Backend<Reference, int>);  // nothing computes with integers
static_assert(!Backend<int, float>);      // has no kernels
static_assert(!detail::LinearKernel<Reference, float>);

TEST_CASE_TEMPLATE("the reference agrees with naive loops", T, float, double, bf16, fp16) {
  Reference backend;
  for (const std::size_t rows : {1U, 2U, 5U, 17U}) {
    for (const std::size_t in : {1U, 15U, 16U, 33U, 200U}) {
      for (const std::size_t out : {1U, 3U, 16U, 37U}) {
        CAPTURE(rows);
        CAPTURE(in);
        CAPTURE(out);
        CHECK(backend_test::products_are_exact<Reference, T>(backend, rows, in, out));
      }
    }
  }
}

TEST_CASE_TEMPLATE("an empty extent gives sums over nothing", T, float, double, bf16, fp16) {
  Reference backend;
  for (const backend_test::Sizes& size : backend_test::empty_products) {
    CAPTURE(size.rows);
    CAPTURE(size.in);
    CAPTURE(size.out);
    CHECK(backend_test::products_are_exact<Reference, T>(backend, size.rows, size.in, size.out));
  }
}

TEST_CASE_TEMPLATE("an activation is applied to the sum before it is rounded", T, float, double,
                   bf16, fp16) {
  Reference backend;
  const auto problem = LinearProblem<T>::of_integers(4, 6, 5);
  Reference::Linear<T> kernel(backend, 6, 5);
  const std::vector<double> sums = problem.forward(true);
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::silu,
                                      Activation::tanh, Activation::sigmoid}) {
    std::vector<T> y(4 * 5);
    kernel.forward(4, problem.x.data(), {problem.w.data(), 1}, problem.bias.data(), activation,
                   y.data());
    visit(activation, [&](auto f) {
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto expected = static_cast<T>(f.value(static_cast<accumulate_t<T>>(sums[i])));
        CHECK(backend_test::number_of(y[i]) == backend_test::number_of(expected));
      }
    });
  }
}

TEST_CASE("two-byte dtypes are summed in float") {
  // 1 + 300 * 2^-9 in bf16 steps would stay at 1, because 2^-9 is below half of its spacing there.
  Reference backend;
  Reference::Linear<bf16> kernel(backend, 301, 1);
  std::vector<bf16> x(301, bf16(0x1p-9F));
  x[0] = bf16(1.0F);
  const std::vector<bf16> w(301, bf16(1.0F));
  bf16 y;
  kernel.forward(1, x.data(), {w.data(), 1}, nullptr, Activation::none, &y);
  CHECK(static_cast<float>(y) == static_cast<float>(bf16(1.0F + 300 * 0x1p-9F)));
}

TEST_CASE("float sums stay within their bound") {
  Reference backend;
  CHECK(backend_test::products_are_close<Reference, float>(backend, 7, 1000, 9));
}

TEST_CASE("sums over many rows keep the digits of a float") {
  // Of 2^18 terms of 0.1, added one after the other in float, the sum is wrong by 2e-3. Here at
  // most 1023 additions in float round, each by 2^-24 of its sum.
  constexpr std::size_t rows = std::size_t{1} << 18;
  const std::vector<float> x(rows, 1), dy(rows, 0.1F);
  Reference backend;
  Reference::Linear<float> kernel(backend, 1, 1);
  float dw = 0, db = 0;
  kernel.backward_weight(rows, x.data(), dy.data(), Write::replace, &dw, &db);
  const double expected = double{0.1F} * rows;
  CHECK(std::abs(dw / expected - 1) < 0x1p-14);
  CHECK(std::abs(db / expected - 1) < 0x1p-14);
}

TEST_CASE("sums of many terms have each term once, and keep the digits of a float") {
  for (const std::size_t n : {0U, 1U, 15U, 16U, 4095U, 4096U, 4097U, 8192U, 1048575U, 1048576U,
                              1048577U, 2097152U, 2101249U}) {
    CAPTURE(n);
    const double numbers = detail::lane_reduce(
        n, 0.0, [](std::size_t k) { return static_cast<double>(k); }, detail::Plus{});
    CHECK(numbers == static_cast<double>(n) * (static_cast<double>(n) - 1) / 2);
  }
  // As above; in lanes it takes 16 times as many terms. Here 256 terms of a lane, 16 lanes, 256
  // pieces and 16 rows of pieces are added one after the other.
  constexpr std::size_t n = std::size_t{1} << 24;
  const float sum = detail::lane_reduce(
      n, 0.0F, [](std::size_t) { return 0.1F; }, detail::Plus{});
  CHECK(std::abs(sum / (double{0.1F} * n) - 1) < 0x1p-14);
}

TEST_CASE("for_each visits every index once") {
  Reference backend;
  std::vector<int> visits(100);
  backend.for_each(visits.size(), [&](std::size_t i) { ++visits[i]; });
  CHECK(visits == std::vector<int>(100, 1));
  backend.for_each(0, [](std::size_t) { FAIL("there is nothing to visit"); });
}
