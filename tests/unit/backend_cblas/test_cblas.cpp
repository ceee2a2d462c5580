#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "shardwise/backend/cblas/cblas.hpp"
#include "shardwise/backend/reference.hpp"
#include "unit/backend/linear_problem.hpp"

using namespace shardwise;
using backend_test::LinearProblem;
using backend_test::Sizes;

TEST_CASE_TEMPLATE("integer-valued products are exact", T, float, double) {
  Cblas backend;
  for (const Sizes& size : {Sizes{1, 1, 1},
                            {1, 16, 64},
                            {2, 33, 5},
                            {7, 5, 33},
                            {31, 200, 130},
                            {64, 1, 70},
                            {300, 70, 1}}) {
    CAPTURE(size.rows);
    CAPTURE(size.in);
    CAPTURE(size.out);
    CHECK(backend_test::products_are_exact<Cblas, T>(backend, size.rows, size.in, size.out));
  }
}

TEST_CASE_TEMPLATE("an empty extent gives sums over nothing", T, float, double) {
  Cblas backend;
  for (const Sizes& size : backend_test::empty_products) {
    CAPTURE(size.rows);
    CAPTURE(size.in);
    CAPTURE(size.out);
    CHECK(backend_test::products_are_exact<Cblas, T>(backend, size.rows, size.in, size.out));
  }
}

TEST_CASE_TEMPLATE("sums stay within their bound", T, float, double) {
  Cblas backend;
  for (const std::size_t rows : {1U, 7U, 64U}) {
    CAPTURE(rows);
    CHECK(backend_test::products_are_close<Cblas, T>(backend, rows, 300, 70));
  }
}

TEST_CASE("every activation is what Reference applies") {
  Cblas ours;
  Reference theirs;
  const auto problem = LinearProblem<double>::of_reals(9, 21, 13);
  const Weight<double> weight{problem.w.data(), 1};
  Cblas::Linear<double> kernel(ours, 21, 13);
  Reference::Linear<double> reference(theirs, 21, 13);
  for (const auto activation :
       {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
        Activation::silu, Activation::tanh, Activation::sigmoid}) {
    for (const bool with_bias : {false, true}) {
      const double* bias = with_bias ? problem.bias.data() : nullptr;
      std::vector<double> y(9 * 13), expected(9 * 13);
      kernel.forward(9, problem.x.data(), weight, bias, activation, y.data());
      reference.forward(9, problem.x.data(), weight, bias, activation, expected.data());
      CAPTURE(name(activation));
      CHECK(backend_test::close(y, expected, 22));
    }
  }
}

TEST_CASE("a result replaces whatever was there, NaN too") {
  Cblas backend;
  Cblas::Linear<double> kernel(backend, 3, 2);
  const std::vector<double> x{1, 2, 3}, w{1, 0, 1, 0, 1, 0};
  std::vector<double> y(2, std::nan(""));
  kernel.forward(1, x.data(), {w.data(), 1}, nullptr, Activation::none, y.data());
  CHECK(y == std::vector<double>{4, 2});
}

TEST_CASE("what a CBLAS cannot take is refused") {
  CHECK_THROWS_WITH_AS(Cblas(0), "Cblas: the number of threads is 0; it must be at least 1",
                       argument_error);
  const double one = 1;
  double result = 0;
  CHECK_THROWS_AS(detail::cblas::multiply<double>(std::size_t{1} << 31, 1, 1, {&one}, {&one},
                                                  Write::replace, &result),
                  backend_error);
}

TEST_CASE("OpenBLAS computes with as many threads as the last object says") {
  const auto& library = detail::cblas::OpenBlas::instance();
  if (library.threads == nullptr) return;  // another CBLAS
  const Cblas two(2);
  CHECK(library.threads() == 2);
  const Cblas one;
  CHECK(library.threads() == 1);
}
