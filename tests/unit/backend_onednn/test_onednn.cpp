#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/reference.hpp"
#include "support/largest_difference.hpp"
#include "support/onednn_dtypes.hpp"
#include "unit/backend/linear_problem.hpp"

using namespace shardwise;
using backend_test::LinearProblem;

static_assert(Backend<OneDnn, float> && Backend<OneDnn, bf16>);
static_assert(!Backend<OneDnn, double>);  // oneDNN has no double on CPUs
static_assert(!Backend<OneDnn, fp16>);    // and no product in binary16

namespace {

/// The sizes at which oneDNN takes another path: one row, few, from 256 and from 1024 on;
/// remainders of blocks.
constexpr std::array<std::size_t, 8> row_counts = {1, 2, 7, 16, 31, 64, 256, 1024};

/// What is said of a weight.
struct Said {
  std::uint64_t version = 1;
  bool stays = false;
};

template <class T>
std::vector<T> forward(OneDnn::Linear<T>& kernel, const LinearProblem<T>& problem, Said weight = {},
                       Activation activation = Activation::none) {
  auto y = backend_test::unwritten<T>(problem.rows * problem.out);
  kernel.forward(problem.rows, problem.x.data(), {problem.w.data(), weight.version, weight.stays},
                 problem.bias.data(), activation, y.data());
  return y;
}

template <class T>
std::vector<T> backward_input(OneDnn::Linear<T>& kernel, const LinearProblem<T>& problem,
                              Said weight = {}) {
  auto dx = backend_test::unwritten<T>(problem.rows * problem.in);
  kernel.backward_input(problem.rows, problem.dy.data(),
                        {problem.w.data(), weight.version, weight.stays}, dx.data());
  return dx;
}

}  // namespace

TEST_CASE_TEMPLATE("integer-valued products are exact", T, float, bf16) {
  if (!testing::onednn_computes<T>()) return;
  OneDnn backend;
  for (const std::size_t rows : row_counts) {
    for (const backend_test::Sizes& size :
         {backend_test::Sizes{rows, 1, 1}, {rows, 16, 64}, {rows, 33, 5}, {rows, 200, 130}}) {
      CAPTURE(rows);
      CAPTURE(size.in);
      CAPTURE(size.out);
      CHECK(backend_test::products_are_exact<OneDnn, T>(backend, rows, size.in, size.out));
    }
  }
}

TEST_CASE_TEMPLATE("an empty extent gives sums over nothing", T, float, bf16) {
  OneDnn backend;
  for (const backend_test::Sizes& size : backend_test::empty_products) {
    CAPTURE(size.rows);
    CAPTURE(size.in);
    CAPTURE(size.out);
    CHECK(backend_test::products_are_exact<OneDnn, T>(backend, size.rows, size.in, size.out));
  }
}

TEST_CASE("float sums stay within their bound") {
  OneDnn backend;
  for (const std::size_t rows : row_counts) {
    CAPTURE(rows);
    CHECK(backend_test::products_are_close<OneDnn, float>(backend, rows, 300, 70));
  }
}

TEST_CASE_TEMPLATE("activations are those of the reference", T, float, bf16) {
  if (!testing::onednn_computes<T>()) return;
  OneDnn backend;
  Reference reference;
  // In float four times the largest difference: 1.4e-6 with AVX-512, with AVX2 and with SSE4.1, of
  // sums of 40 products that are below 7. In bf16 half of its spacing below 8.
  const float close = std::same_as<T, float> ? 6e-6F : 0x1p-5F;
  for (const backend_test::Sizes& size : {backend_test::Sizes{19, 40, 35}, {1, 100, 35}}) {
    const auto problem = LinearProblem<T>::of_reals(size.rows, size.in, size.out);
    OneDnn::Linear<T> kernel(backend, size.in, size.out);
    Reference::Linear<T> oracle(reference, size.in, size.out);
    for (const Activation activation :
         {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
          Activation::silu, Activation::tanh, Activation::sigmoid}) {
      CAPTURE(size.rows);
      CAPTURE(name(activation));
      std::vector<T> expected(size.rows * size.out);
      oracle.forward(size.rows, problem.x.data(), {problem.w.data(), 1}, problem.bias.data(),
                     activation, expected.data());
      for (const bool stays : {false, true}) {
        const std::vector<T> y = forward(kernel, problem, {.stays = stays}, activation);
        CHECK(testing::largest_difference(y, expected) <= close);
      }
    }
  }
}

TEST_CASE_TEMPLATE("what is no number stays so through every activation", T, float, bf16) {
  if (!testing::onednn_computes<T>()) return;
  OneDnn backend;
  for (const std::size_t rows : row_counts) {
    auto problem = LinearProblem<T>::of_reals(rows, 16, 33);
    problem.bias[5] = static_cast<T>(std::nanf(""));
    for (const Activation activation :
         {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
          Activation::silu, Activation::tanh, Activation::sigmoid}) {
      CAPTURE(rows);
      CAPTURE(name(activation));
      OneDnn::Linear<T> kernel(backend, 16, 33);
      std::size_t wrong = 0;
      for (const bool stays : {false, true}) {
        const std::vector<T> y = forward(kernel, problem, {.stays = stays}, activation);
        for (std::size_t i = 0; i < y.size(); ++i)
          wrong += std::isnan(static_cast<float>(y[i])) != (i % 33 == 5);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE_TEMPLATE("ReLU cuts at zero, exactly", T, float, bf16) {
  if (!testing::onednn_computes<T>()) return;
  OneDnn backend;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr std::array<float, 8> sums = {0.0F,  1.5F,   -1.5F,    1e-30F,
                                         1e30F, -1e30F, infinity, -infinity};
  for (const std::size_t rows : row_counts) {
    auto problem = LinearProblem<T>::of_integers(rows, 3, sums.size());
    std::fill(problem.w.begin(), problem.w.end(), T{});
    for (std::size_t i = 0; i < sums.size(); ++i) problem.bias[i] = static_cast<T>(sums[i]);
    OneDnn::Linear<T> kernel(backend, 3, sums.size());
    const std::vector<T> y = forward(kernel, problem, {}, Activation::relu);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto sum = static_cast<float>(problem.bias[i % sums.size()]);
      CHECK(static_cast<float>(y[i]) == (sum < 0 ? 0.0F : sum));
    }
  }
}

TEST_CASE_TEMPLATE("a weight gives the same result packed and plain", T, float, bf16) {
  if (!testing::onednn_computes<T>()) return;
  OneDnn backend;
  for (const std::size_t rows : row_counts) {
    CAPTURE(rows);
    const auto problem = LinearProblem<T>::of_integers(rows, 48, 70);
    OneDnn::Linear<T> kernel(backend, 48, 70);
    const auto y = backend_test::rounded<T>(problem.forward(true));
    const auto dx = backend_test::rounded<T>(problem.backward_input());
    for (const bool stays : {false, true, true, false}) {
      CHECK(backend_test::same(forward(kernel, problem, {.stays = stays}), y));
      CHECK(backend_test::same(backward_input(kernel, problem, {.stays = stays}), dx));
    }
  }
}

TEST_CASE_TEMPLATE("equal calls give equal bits, however often the weight was used", T, float,
                   bf16) {
  if (!testing::onednn_computes<T>()) return;
  // At 512 rows of 512 outputs, backward_input in float rounds otherwise with a packed weight.
  OneDnn backend;
  for (const std::size_t rows : {1U, 2U, 16U, 128U, 512U, 1024U}) {
    const auto problem = LinearProblem<T>::of_reals(rows, 48, 512);
    OneDnn::Linear<T> used(backend, 48, 512);
    for (const bool stays : {false, true, false}) {
      CAPTURE(rows);
      CAPTURE(stays);
      const Said weight{.stays = stays};
      OneDnn::Linear<T> fresh(backend, 48, 512);
      const auto y = forward(fresh, problem, weight);
      const auto dx = backward_input(fresh, problem, weight);
      for (int use = 0; use < 10; ++use) {
        CAPTURE(use);
        CHECK(backend_test::same(forward(used, problem, weight), y));
        CHECK(backend_test::same(backward_input(used, problem, weight), dx));
      }
    }
  }
}

TEST_CASE_TEMPLATE("a changed weight is packed anew", T, float, bf16) {
  if (!testing::onednn_computes<T>()) return;
  OneDnn backend;
  auto problem = LinearProblem<T>::of_integers(16, 48, 70);
  OneDnn::Linear<T> kernel(backend, 48, 70);
  for (std::uint64_t version = 1; version <= 3; ++version) {
    for (T& weight : problem.w) weight = static_cast<T>(static_cast<float>(weight) + 1.0F);
    for (int use = 0; use < 2; ++use) {
      CAPTURE(version);
      CAPTURE(use);
      CHECK(backend_test::same(forward(kernel, problem, {version, true}),
                               backend_test::rounded<T>(problem.forward(true))));
      CHECK(backend_test::same(backward_input(kernel, problem, {version, true}),
                               backend_test::rounded<T>(problem.backward_input())));
    }
  }
}

TEST_CASE("a weight that stays is packed once for each version, and another one never") {
  // The copy is used: a weight that changes without a new version goes unnoticed.
  OneDnn backend;
  auto problem = LinearProblem<float>::of_integers(16, 48, 70);
  OneDnn::Linear<float> kernel(backend, 48, 70);
  const auto before = forward(kernel, problem, {5, true});
  for (float& weight : problem.w) weight += 1.0F;
  const auto after = backend_test::rounded<float>(problem.forward(true));
  CHECK(forward(kernel, problem, {5, true}) == before);
  CHECK(forward(kernel, problem, {5, false}) == after);
  CHECK(forward(kernel, problem, {6, true}) == after);
}

TEST_CASE("another weight with the same version is another weight") {
  OneDnn backend;
  const auto first = LinearProblem<float>::of_integers(16, 48, 70);
  auto second = first;
  for (float& weight : second.w) weight += 1.0F;
  OneDnn::Linear<float> kernel(backend, 48, 70);
  forward(kernel, first, {.stays = true});
  CHECK(forward(kernel, second, {.stays = true}) ==
        backend_test::rounded<float>(second.forward(true)));
}

TEST_CASE("more row counts than the cache holds") {
  OneDnn backend;
  OneDnn::Linear<float> kernel(backend, 24, 36);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t rows = 1; rows <= 24; ++rows) {
      const auto problem = LinearProblem<float>::of_integers(rows, 24, 36);
      CAPTURE(rows);
      CHECK(forward(kernel, problem, {rows, rows % 2 == 0}) ==
            backend_test::rounded<float>(problem.forward(true)));
      CHECK(backward_input(kernel, problem, {rows, rows % 2 == 0}) ==
            backend_test::rounded<float>(problem.backward_input()));
    }
  }
}

TEST_CASE("NaN and infinity in come out as such") {
  OneDnn backend;
  OneDnn::Linear<float> kernel(backend, 3, 2);
  const std::vector<float> x = {1, std::nanf(""), 0, INFINITY, 1, 1};
  const std::vector<float> w = {1, 1, 1, 1, 1, 1};
  std::vector<float> y(4);
  kernel.forward(2, x.data(), {w.data(), 1}, nullptr, Activation::none, y.data());
  CHECK(std::isnan(y[0]));
  CHECK(std::isnan(y[1]));
  CHECK(y[2] == INFINITY);
  CHECK(y[3] == INFINITY);
}

TEST_CASE("each rank's thread has a backend of its own") {
  std::array<bool, 4> exact{};
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < exact.size(); ++rank) {
    ranks.emplace_back([rank, &exact] {
      OneDnn backend;
      exact[rank] = backend_test::products_are_exact<OneDnn, float>(backend, 40, 64, 48 + rank);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(exact == std::array<bool, 4>{true, true, true, true});
}

TEST_CASE("the number of threads holds during calls only") {
  const auto& openmp = detail::onednn::OpenMp::instance();
  REQUIRE(bool(openmp.max_threads));  // Debian's oneDNN is built with OpenMP
  const int before = openmp.max_threads();
  {
    const detail::onednn::ThreadLimit limit(before + 3);
    CHECK(openmp.max_threads() == before + 3);
  }
  CHECK(openmp.max_threads() == before);

  OneDnn two(2);
  CHECK(backend_test::products_are_exact<OneDnn, float>(two, 40, 64, 48));
  CHECK(openmp.max_threads() == before);
}

TEST_CASE("what the library or the backend refuses is named") {
  CHECK_THROWS_AS(OneDnn(0), argument_error);
  CHECK_THROWS_AS(OneDnn(-1), argument_error);

  using detail::onednn::ErrorContext;
  try {
    detail::onednn::check(dnnl_unimplemented, "dnnl_some_call",
                          ErrorContext{"forward", Dtype::bfloat16, 16, 1024, 4096});
    FAIL("a status other than success must throw");
  } catch (const backend_error& refused) {
    const std::string text = refused.what();
    const std::string library = "oneDNN " + std::to_string(dnnl_version()->major) + '.';
    for (const char* part :
         {library.c_str(), "dnnl_some_call", "unimplemented", "forward", "bfloat16", "16 rows",
          "1024 in", "4096 out", "the instruction set is ", "needs AVX-512"}) {
      CAPTURE(text);
      CHECK(text.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("a request for too much memory is a memory error that says how much") {
  detail::onednn::Scratch scratch;
  const std::size_t bytes = std::size_t{1} << 62;
  try {
    scratch.reserve(bytes);
    FAIL("nobody has that much memory");
  } catch (const memory_error& refused) {
    CHECK(std::string(refused.what()).find(std::to_string(bytes)) != std::string::npos);
  }
  CHECK(scratch.reserve(64) != nullptr);  // and it is still good for less
}
