// Products, convolutions and pooling far from the host (under nvcc on a GPU), by fresh random sizes
// and numbers against plain loops in double. What a kernel does not write shows.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "shardwise/backend/activation.hpp"
#include "support/effort.hpp"
#include "support/seed.hpp"
#include "support/staged_backend.hpp"
#include "unit/backend/convolution_problem.hpp"
#include "unit/backend/linear_problem.hpp"
#include "unit/backend/pooling_problem.hpp"

using namespace shardwise;
using backend_test::LinearProblem;
using backend_test::Sizes;
using testing::StagedBackend;

namespace {

template <class T>
constexpr double epsilon = sizeof(T) == 8            ? 0x1p-52
                           : sizeof(T) == 4          ? 0x1p-23
                           : std::is_same_v<T, bf16> ? 0x1p-7
                                                     : 0x1p-10;

/// cuBLASLt does not say how good its tanh is; this is what the instruction of the hardware is off.
constexpr double of_tanh = 0x1p-10;

/// Whether y is the activation of the sums but for 8 eps sqrt(K) |x| |w| in a sum, which becomes an
/// eighth more at most, a rounding of the sum and of y, and what the function itself is off.
/// `first` may be rounded before the rest of a sum is added to it. Says what is not, of the results
/// `what`.
template <class T>
bool is_near(const char* what, const std::vector<T>& y, const std::vector<double>& sums,
             std::size_t length, Activation activation, const std::vector<double>& first = {}) {
  const auto k = static_cast<double>(length);
  const double of_sum = 8 * epsilon<accumulate_t<T>> * std::sqrt(k) * k / 3;
  const double of_function = activation == Activation::gelu_tanh ? of_tanh : 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double expected = visit(activation, [&](auto f) { return f.value(sums[i]); });
    const double found = backend_test::number_of(y[i]);
    const double size = std::fmax(first.empty() ? 0 : std::abs(first[i]),
                                  std::fmax(std::abs(sums[i]), std::abs(expected)));
    const double bound = 1.125 * of_sum + size * (2 * epsilon<T> + of_function);
    if (std::abs(found - expected) <= bound) continue;
    backend_test::note_difference(what, i, found, expected);
    return false;
  }
  return true;
}

template <class T>
bool products_are_near(StagedBackend& backend, const Sizes& s, std::uint32_t salt) {
  const auto p = LinearProblem<T>::of_reals(s.rows, s.in, s.out, salt);
  StagedBackend::Linear<T> kernel(backend, s.in, s.out);
  const Weight<T> weight{p.w.data(), 1};
  bool near = true;
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
        Activation::silu, Activation::tanh, Activation::sigmoid}) {
    CAPTURE(static_cast<int>(activation));
    auto y = backend_test::unwritten<T>(s.rows * s.out);
    kernel.forward(s.rows, p.x.data(), weight, p.bias.data(), activation, y.data());
    near = is_near("y", y, p.forward(true), s.in + 1, activation) && near;
  }
  auto dx = backend_test::unwritten<T>(s.rows * s.in);
  kernel.backward_input(s.rows, p.dy.data(), weight, dx.data());
  near = is_near("dx", dx, p.backward_input(), s.out, Activation::none) && near;
  for (const Write write : {Write::replace, Write::add}) {
    const bool adds = write == Write::add;
    CAPTURE(adds);
    auto dw = adds ? p.dw : backend_test::unwritten<T>(s.out * s.in);
    auto db = adds ? p.db : backend_test::unwritten<T>(s.out);
    kernel.backward_weight(s.rows, p.x.data(), p.dy.data(), write, dw.data(), db.data());
    near = is_near("dw", dw, p.weight_gradient(write), s.rows + 1, Activation::none,
                   p.weight_gradient(Write::replace)) &&
           near;
    near = is_near("db", db, p.bias_gradient(write), s.rows + 1, Activation::none,
                   p.bias_gradient(Write::replace)) &&
           near;
  }
  return near;
}

/// Empty ones, single rows and columns, and random ones.
std::vector<Sizes> sizes_of_products(std::mt19937& random) {
  std::vector<Sizes> sizes(std::begin(backend_test::empty_products),
                           std::end(backend_test::empty_products));
  const auto up_to = [&](std::size_t most) { return 1 + random() % most; };
  for (int i = 0; i < testing::cases(24); ++i) sizes.push_back({up_to(70), up_to(130), up_to(90)});
  for (int i = 0; i < testing::cases(4); ++i) {
    sizes.push_back({1, up_to(130), up_to(90)});
    sizes.push_back({up_to(70), 1, up_to(90)});
    sizes.push_back({up_to(70), up_to(130), 1});
    sizes.push_back({up_to(70), 8 * up_to(16), 8 * up_to(16)});
  }
  return sizes;
}

}  // namespace

TEST_CASE_TEMPLATE("products, aligned or not", T, float, double, bf16, fp16) {
  const unsigned seed = testing::seed();
  MESSAGE("products from SHARDWISE_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  StagedBackend backend;
  for (const Sizes& s : sizes_of_products(random)) {
    backend.offset = random() % 4;
    CAPTURE(s.rows);
    CAPTURE(s.in);
    CAPTURE(s.out);
    CAPTURE(backend.offset);
    CHECK(backend_test::products_are_exact<StagedBackend, T>(backend, s.rows, s.in, s.out));
    CHECK(products_are_near<T>(backend, s, static_cast<std::uint32_t>(random())));
  }
}

TEST_CASE_TEMPLATE("a NaN stays one behind every activation", T, float, double, bf16, fp16) {
  StagedBackend backend;
  const T none = static_cast<T>(std::numeric_limits<accumulate_t<T>>::quiet_NaN());
  const std::vector<T> x(16 * 32, none), w(8 * 32, static_cast<T>(1.0F)),
      bias(8, static_cast<T>(1.0F));
  StagedBackend::Linear<T> kernel(backend, 32, 8);
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
        Activation::silu, Activation::tanh, Activation::sigmoid}) {
    for (const T* given : {static_cast<const T*>(nullptr), bias.data()}) {
      std::vector<T> y(16 * 8);
      kernel.forward(16, x.data(), {w.data(), 1}, given, activation, y.data());
      bool all = true;
      for (const T number : y) all = all && std::isnan(static_cast<accumulate_t<T>>(number));
      CAPTURE(static_cast<int>(activation));
      CHECK(all);
    }
  }
}

TEST_CASE_TEMPLATE("convolutions", T, float, double, bf16, fp16) {
#ifdef __CUDACC__
  constexpr int problems = 600;  // engines of a library, some of them rare
#else
  constexpr int problems = 60;
#endif
  backend_test::check_random_convolutions<StagedBackend, T>(testing::cases(problems));
}

TEST_CASE_TEMPLATE("poolings", T, float, double, bf16, fp16) {
  backend_test::check_random_poolings<StagedBackend, T>(testing::cases(60),
                                                        sizeof(T) == 2 ? 0x1p-7 : 1e-5);
}
