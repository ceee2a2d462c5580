// Products of rows of bf16 by tiles and by pairs of the processor.

#include <doctest/doctest.h>

#include "shardwise/backend/onednn/pair_product.hpp"
#include "shardwise/backend/onednn/tile_product.hpp"

#if defined(__x86_64__)

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "shardwise/backend/activation.hpp"
#include "support/skipped.hpp"
#include "unit/backend/linear_problem.hpp"

using namespace shardwise;
using backend_test::LinearProblem;
using detail::onednn::Forward;

namespace {

using Problem = LinearProblem<bf16>;

struct Tiles {
  static bool are_there() {
    const bool has = detail::onednn::TileProduct::is_possible(32);
    if (!has) testing::skip("products by tiles, because this processor has no AMX");
    return has;
  }
  static void run(const Forward<bf16>& of) {
    detail::onednn::Session session;
    detail::onednn::TileProduct{of}.run(session);
  }
};

struct Pairs {
  static bool are_there() {
    const bool has = detail::onednn::multiplies_bf16();
    if (!has) testing::skip("products by pairs, because this processor has no AVX-512 BF16");
    return has;
  }
  static void run(const Forward<bf16>& of) { detail::onednn::PairProduct{of}.run(); }
};

template <class By>
std::vector<bf16> forward(const Problem& problem, bool with_bias, Activation activation) {
  auto y = backend_test::unwritten<bf16>(problem.rows * problem.out);
  By::run({problem.rows, problem.in, problem.out, problem.x.data(), problem.w.data(),
           with_bias ? problem.bias.data() : nullptr, activation, y.data()});
  return y;
}

/// The elements of y, of which a predicate of row and output says whether they are no numbers, that
/// are the other thing.
template <class By, class IsNan>
std::size_t wrongly_numbers(const Problem& problem, IsNan is_nan) {
  const std::vector<bf16> y = forward<By>(problem, true, Activation::relu);
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < problem.rows; ++r)
    for (std::size_t o = 0; o < problem.out; ++o)
      wrong += std::isnan(static_cast<float>(y[r * problem.out + o])) != is_nan(r, o);
  return wrong;
}

const bf16 no_number = static_cast<bf16>(std::numeric_limits<float>::quiet_NaN());

}  // namespace

TEST_CASE_TEMPLATE("a formula in double, at every remainder of rows, inputs and outputs", By, Tiles,
                   Pairs) {
  if (!By::are_there()) return;
  constexpr backend_test::Sizes others[] = {{48, 1, 32},    {49, 31, 33}, {64, 32, 64},
                                            {79, 33, 63},   {80, 95, 65}, {96, 128, 50},
                                            {130, 200, 97}, {3, 64, 40},  {70, 16400, 33}};
  std::vector<backend_test::Sizes> all(std::begin(others), std::end(others));
  for (std::size_t rows = 48; rows <= 80; ++rows) all.push_back({rows, 45, 45});
  for (std::size_t rows = 1; rows <= 20; ++rows) all.push_back({rows, 70, 150});
  for (const backend_test::Sizes& size : all) {
    const auto problem = Problem::of_reals(size.rows, size.in, size.out);
    for (const bool with_bias : {false, true}) {
      const std::vector<double> sums = problem.forward(with_bias);
      for (const Activation activation :
           {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
            Activation::silu, Activation::tanh, Activation::sigmoid}) {
        const std::vector<bf16> y = forward<By>(problem, with_bias, activation);
        std::size_t wrong = 0;
        visit(activation, [&](auto f) {
          for (std::size_t i = 0; i < y.size(); ++i) {
            const double exact = f.value(sums[i]);
            const double bound =
                0x1p-8 * std::abs(exact) + 2 * backend_test::float_bound(size.in + 1) + 1e-6;
            wrong += !(std::abs(backend_test::number_of(y[i]) - exact) <= bound);
          }
        });
        CAPTURE(size.rows);
        CAPTURE(size.in);
        CAPTURE(size.out);
        CAPTURE(with_bias);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE_TEMPLATE("sums halfway between two bf16 become the even one", By, Tiles, Pairs) {
  if (!By::are_there()) return;
  // w[o, 0] = 256 and w[o, 1] = 1, so y[r, o] = 256 + r.
  Problem problem = Problem::of_integers(64, 2, 32);
  for (std::size_t r = 0; r < problem.rows; ++r) {
    problem.x[2 * r] = static_cast<bf16>(1.0F);
    problem.x[2 * r + 1] = static_cast<bf16>(static_cast<float>(r));
  }
  for (std::size_t o = 0; o < problem.out; ++o) {
    problem.w[2 * o] = static_cast<bf16>(256.0F);
    problem.w[2 * o + 1] = static_cast<bf16>(1.0F);
  }
  CHECK(backend_test::same(forward<By>(problem, false, Activation::none),
                           backend_test::rounded<bf16>(problem.forward(false))));
}

TEST_CASE_TEMPLATE("what is no number stays so, in every row, input and output", By, Tiles, Pairs) {
  if (!By::are_there()) return;
  const auto problem = Problem::of_reals(50, 70, 45);
  for (std::size_t i = 0; i < problem.in; ++i) {
    for (std::size_t o = i % 7; o < problem.out; o += 7) {
      auto broken = problem;
      broken.w[o * problem.in + i] = no_number;
      CAPTURE(i);
      CAPTURE(o);
      CHECK(wrongly_numbers<By>(broken, [=](std::size_t, std::size_t n) { return n == o; }) == 0);
    }
    for (std::size_t r = i % 7; r < problem.rows; r += 7) {
      auto broken = problem;
      broken.x[r * problem.in + i] = no_number;
      CAPTURE(i);
      CAPTURE(r);
      CHECK(wrongly_numbers<By>(broken, [=](std::size_t row, std::size_t) { return row == r; }) ==
            0);
    }
  }
  for (std::size_t o = 0; o < problem.out; ++o) {
    auto broken = problem;
    broken.bias[o] = no_number;
    CAPTURE(o);
    CHECK(wrongly_numbers<By>(broken, [=](std::size_t, std::size_t n) { return n == o; }) == 0);
  }
}

#endif
