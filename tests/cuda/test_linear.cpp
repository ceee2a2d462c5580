// The products of a linear layer on stand-ins for CUDA and cuBLASLt.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "cuda/host_cuda.hpp"
#include "cuda/stand_in.hpp"
#include "shardwise/backend/reference.hpp"
#include "unit/backend/linear_problem.hpp"

using namespace shardwise;
using backend_test::LinearProblem;
using backend_test::Numbers;
using backend_test::rounded;
using backend_test::Sizes;
using backend_test::unwritten;
using testing::HostCuda;
using testing::Machine;
using testing::OnDevice;

namespace {

constexpr Activation activations_of_all[] = {
    Activation::none, Activation::relu, Activation::gelu,   Activation::gelu_tanh,
    Activation::silu, Activation::tanh, Activation::sigmoid};

/// Rounded twice where a function is applied behind the product, and by different formulas.
template <class T>
constexpr double tolerance = sizeof(T) == 8                       ? 1e-13
                             : sizeof(T) == 4                     ? 1e-5
                             : std::is_same_v<T, shardwise::bf16> ? 0x1p-7
                                                                  : 0x1p-10;

template <class T>
bool close(const std::vector<T>& a, const std::vector<T>& b) {
  bool result = a.size() == b.size();
  for (std::size_t i = 0; result && i < a.size(); ++i) {
    const double x = backend_test::number_of(a[i]);
    const double y = backend_test::number_of(b[i]);
    result = std::fabs(x - y) <= tolerance<T> * std::fmax(1.0, std::fabs(y));
  }
  return result;
}

/// Every product with every option against plain loops; matrices lie `offset` elements behind an
/// aligned address.
template <class T>
bool products_are_right(HostCuda& cuda, const Sizes& s, std::size_t offset) {
  const auto p = LinearProblem<T>::of_integers(s.rows, s.in, s.out);
  HostCuda::Linear<T> kernel(cuda, s.in, s.out);
  Reference reference;
  Reference::Linear<T> expected(reference, s.in, s.out);
  const OnDevice<T> x(cuda, p.x, offset), w(cuda, p.w, offset), bias(cuda, p.bias, offset),
      dy(cuda, p.dy, offset);
  const Weight<T> weight{w.data(), 1};
  bool right = true;

  for (const bool with_bias : {false, true}) {
    for (const Activation activation : activations_of_all) {
      const OnDevice<T> y(cuda, unwritten<T>(s.rows * s.out), offset);
      std::vector<T> wanted(s.rows * s.out);
      kernel.forward(s.rows, x.data(), weight, with_bias ? bias.data() : nullptr, activation,
                     y.data());
      expected.forward(s.rows, p.x.data(), {p.w.data(), 1}, with_bias ? p.bias.data() : nullptr,
                       activation, wanted.data());
      const bool is_exact = activation == Activation::none || activation == Activation::relu;
      right =
          right && (is_exact ? backend_test::same(y.values(), wanted) : close(y.values(), wanted));
    }
  }

  const OnDevice<T> dx(cuda, unwritten<T>(s.rows * s.in), offset);
  kernel.backward_input(s.rows, dy.data(), weight, dx.data());
  right = right && backend_test::same(dx.values(), rounded<T>(p.backward_input()));

  for (const Write write : {Write::replace, Write::add}) {
    for (const bool with_bias : {false, true}) {
      const bool adds = write == Write::add;
      const OnDevice<T> dw(cuda, adds ? p.dw : unwritten<T>(s.out * s.in), offset);
      const OnDevice<T> db(cuda, adds ? p.db : unwritten<T>(s.out), offset);
      const std::vector<T> db_before = db.values();
      kernel.backward_weight(s.rows, x.data(), dy.data(), write, dw.data(),
                             with_bias ? db.data() : nullptr);
      right = right && backend_test::same(dw.values(), rounded<T>(p.weight_gradient(write)));
      right = right && backend_test::same(
                           db.values(), with_bias ? rounded<T>(p.bias_gradient(write)) : db_before);
    }
  }
  return right;
}

}  // namespace

TEST_CASE_TEMPLATE("cuda: products of random and empty sizes are right, aligned or not", T, float,
                   double, bf16, fp16) {
  HostCuda cuda;
  Numbers numbers(7);
  std::vector<Sizes> sizes(std::begin(backend_test::empty_products),
                           std::end(backend_test::empty_products));
  const auto random = [&] { return static_cast<std::size_t>(numbers.integer(9) + 9); };
  for (int i = 0; i < 60; ++i) sizes.push_back({random(), random(), random()});
  std::size_t offset = 0;
  for (const Sizes& s : sizes) {
    CAPTURE(s.rows);
    CAPTURE(s.in);
    CAPTURE(s.out);
    CHECK(products_are_right<T>(cuda, s, offset++ % 3));
  }
  CHECK(stand_in::misuse == "");
}

TEST_CASE_TEMPLATE("cuda: what the library does not fuse is done behind its product", T, float,
                   double, bf16, fp16) {
  const Machine machine;
  for (const std::uint32_t lacks :
       {std::uint32_t{CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_GELU},
        std::uint32_t{CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_GELU |
                      CUBLASLT_EPILOGUE_BGRADB}}) {
    stand_in::lacks = lacks;
    for (const cublasStatus_t says : {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE}) {
      stand_in::says_to_lacks = says;
      HostCuda cuda;
      CHECK(products_are_right<T>(cuda, {5, 7, 3}, 0));
    }
  }
  CHECK(stand_in::misuse == "");
}

TEST_CASE_TEMPLATE("cuda: a NaN stays one behind every activation, and a fused ReLU is a choice", T,
                   float, double, bf16, fp16) {
  HostCuda cuda;
  typename HostCuda::Linear<T> kernel(cuda, 2, 3);
  const auto none = static_cast<T>(std::numeric_limits<accumulate_t<T>>::quiet_NaN());
  const OnDevice<T> x(cuda, std::vector<T>(4, none)),
      w(cuda, std::vector<T>(6, static_cast<T>(1.0F))),
      bias(cuda, std::vector<T>(3, static_cast<T>(1.0F)));
  for (const Activation activation : activations_of_all) {
    for (const T* given : {static_cast<const T*>(nullptr), static_cast<const T*>(bias.data())}) {
      const OnDevice<T> y(cuda, std::vector<T>(6));
      kernel.forward(2, x.data(), {w.data(), 1}, given, activation, y.data());
      for (const T number : y.values()) CHECK(std::isnan(static_cast<accumulate_t<T>>(number)));
    }
  }
  CudaOptions options;
  options.fused_relu = true;
  HostCuda fusing(options);
  CHECK(products_are_right<T>(fusing, {5, 7, 3}, 0));
  CHECK(stand_in::misuse == "");
}

TEST_CASE("cuda: the product is added to a bias that epilogues may not read") {
  HostCuda cuda;
  HostCuda::Linear<float> kernel(cuda, 4, 6);
  const OnDevice<float> x(cuda, std::vector<float>(12, 1)), w(cuda, std::vector<float>(24, 1)),
      bias(cuda, std::vector<float>(6, 1), 1), y(cuda, std::vector<float>(18)),
      dw(cuda, std::vector<float>(24)), db(cuda, std::vector<float>(6), 1);
  kernel.forward(3, x.data(), {w.data(), 1}, bias.data(), Activation::gelu_tanh, y.data());
  CHECK(cuda.loops == 2);
  CHECK(stand_in::epilogue == CUBLASLT_EPILOGUE_DEFAULT);
  stand_in::matmuls = 0;
  kernel.backward_weight(3, x.data(), y.data(), Write::replace, dw.data(), db.data());
  CHECK(stand_in::matmuls == 2);
  CHECK(stand_in::misuse == "");
}

TEST_CASE("cuda: a sum with its bias is rounded once, also without an epilogue") {
  const Machine machine;
  // 257 is between two numbers of bf16. The factors from number 257 on are 0.
  const auto result = [](std::size_t in, std::size_t offset) {
    HostCuda cuda;
    const auto all = [&](std::size_t n, float value, std::size_t behind = 0) {
      return OnDevice<bf16>(cuda, std::vector<bf16>(n, static_cast<bf16>(value)), behind);
    };
    HostCuda::Linear<bf16> kernel(cuda, in, 8);
    std::vector<bf16> ones(in, static_cast<bf16>(0.0F));
    std::fill_n(ones.begin(), 257, static_cast<bf16>(1.0F));
    const OnDevice<bf16> x(cuda, ones);
    const auto w = all(8 * in, 1), bias = all(8, -256, offset), y = all(8, 0);
    kernel.forward(1, x.data(), {w.data(), 1}, bias.data(), Activation::none, y.data());
    return static_cast<float>(y.values()[7]);
  };
  CHECK(result(264, 0) == 1);
  CHECK(stand_in::epilogue == CUBLASLT_EPILOGUE_BIAS);
  CHECK(result(257, 0) == 1);  // rows are not aligned to 16 bytes, where epilogues get rounded sums
  CHECK(stand_in::epilogue == CUBLASLT_EPILOGUE_DEFAULT);
  CHECK(result(264, 1) == 1);
  stand_in::lacks = CUBLASLT_EPILOGUE_BIAS;
  CHECK(result(264, 0) == 1);
}

TEST_CASE("cuda: the bias gradient of a single output is a sum of its own") {
  HostCuda cuda;
  HostCuda::Linear<float> kernel(cuda, 4, 1);
  const OnDevice<float> x(cuda, std::vector<float>(12, 1)), dy(cuda, {1, 2, 3}),
      dw(cuda, std::vector<float>(4)), db(cuda, {7.0F});
  stand_in::matmuls = 0;
  kernel.backward_weight(3, x.data(), dy.data(), Write::replace, dw.data(), db.data());
  CHECK(stand_in::matmuls == 2);
  CHECK(stand_in::epilogue == CUBLASLT_EPILOGUE_DEFAULT);
  CHECK(db.values()[0] == 6.0F);
}

TEST_CASE("cuda: what is fused needs no loop, and the rest one") {
  const Machine machine;
  CudaOptions options;
  options.fused_relu = true;
  HostCuda cuda(options);
  HostCuda::Linear<float> kernel(cuda, 4, 6);
  const OnDevice<float> x(cuda, std::vector<float>(12, 1)), w(cuda, std::vector<float>(24, 1)),
      bias(cuda, std::vector<float>(6, 1)), y(cuda, std::vector<float>(18));
  const auto loops = [&](Activation activation, bool with_bias) {
    cuda.loops = 0;
    kernel.forward(3, x.data(), {w.data(), 1}, with_bias ? bias.data() : nullptr, activation,
                   y.data());
    return cuda.loops;
  };
  for (const bool with_bias : {false, true}) {
    CHECK(loops(Activation::none, with_bias) == 0);
    CHECK(loops(Activation::relu, with_bias) == 0);
    CHECK(loops(Activation::gelu_tanh, with_bias) == 0);
    CHECK(stand_in::epilogue ==
          (CUBLASLT_EPILOGUE_GELU | (with_bias ? CUBLASLT_EPILOGUE_BIAS : 0)));
    CHECK(loops(Activation::gelu, with_bias) == 1);
    CHECK(stand_in::epilogue == (with_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT));
    CHECK(loops(Activation::silu, with_bias) == 1);
  }
  const OnDevice<float> dw(cuda, std::vector<float>(24)), db(cuda, std::vector<float>(6));
  stand_in::matmuls = 0;
  kernel.backward_weight(3, x.data(), y.data(), Write::replace, dw.data(), db.data());
  CHECK(stand_in::matmuls == 1);
  CHECK(stand_in::epilogue == CUBLASLT_EPILOGUE_BGRADB);
  kernel.backward_weight(3, x.data(), y.data(), Write::add, dw.data(), db.data());
  CHECK(stand_in::matmuls == 3);
}

TEST_CASE("cuda: a sum of two-byte numbers is kept in float") {
  HostCuda cuda;
  HostCuda::Linear<bf16> kernel(cuda, 600, 1);
  const OnDevice<bf16> ones(cuda, std::vector<bf16>(600, bf16(1.0F))), y(cuda, {bf16(0.0F)});
  kernel.forward(1, ones.data(), {ones.data(), 1}, nullptr, Activation::none, y.data());
  CHECK(static_cast<float>(y.values()[0]) == 600.0F);  // in bf16 it would stay at 256
}

TEST_CASE("cuda: float is TF32 only if asked") {
  const float factor = 1.0F + 0x1p-20F;
  for (const bool tf32 : {false, true}) {
    CudaOptions options;
    options.tf32 = tf32;
    HostCuda cuda(options);
    HostCuda::Linear<float> kernel(cuda, 1, 1);
    const OnDevice<float> x(cuda, {factor}), w(cuda, {1.0F}), y(cuda, {0.0F});
    kernel.forward(1, x.data(), {w.data(), 1}, nullptr, Activation::none, y.data());
    CHECK((y.values()[0] == factor) == !tf32);
  }
}

TEST_CASE("cuda: shapes that were seen are not planned again, and take no memory") {
  HostCuda cuda;
  HostCuda::Linear<float> kernel(cuda, 16, 8);
  const OnDevice<float> x(cuda, std::vector<float>(80 * 16, 1)),
      w(cuda, std::vector<float>(128, 1)), bias(cuda, std::vector<float>(8, 1)),
      y(cuda, std::vector<float>(80 * 8)), dx(cuda, std::vector<float>(80 * 16)),
      dw(cuda, std::vector<float>(128)), db(cuda, std::vector<float>(8));
  const auto step = [&](std::uint64_t version) {
    for (const std::size_t rows : {std::size_t{80}, std::size_t{33}}) {
      kernel.forward(rows, x.data(), {w.data(), version}, bias.data(), Activation::gelu, y.data());
      kernel.backward_input(rows, y.data(), {w.data(), version}, dx.data());
      for (const Write write : {Write::replace, Write::add})
        kernel.backward_weight(rows, x.data(), y.data(), write, dw.data(), db.data());
    }
  };
  step(1);
  const int heuristics = stand_in::heuristics;
  const int allocations = stand_in::allocations;
  const int alive = stand_in::alive;
  step(2);
  stand_in::is_capturing = true;
  step(3);
  stand_in::is_capturing = false;
  CHECK(stand_in::heuristics == heuristics);
  CHECK(stand_in::allocations == allocations);
  CHECK(stand_in::alive == alive);
  // Another alignment is another plan.
  kernel.forward(33, x.data() + 1, {w.data(), 3}, bias.data(), Activation::gelu, y.data());
  CHECK(stand_in::heuristics == heuristics + 1);
  cuda.synchronize();
  CHECK(stand_in::misuse == "");
}

TEST_CASE("cuda: a bias that is less aligned than before is another plan") {
  const Machine machine;
  HostCuda cuda;
  HostCuda::Linear<float> kernel(cuda, 4, 4);
  const OnDevice<float> m(cuda, std::vector<float>(96, 1.0F));
  const int heuristics = stand_in::heuristics;
  for (const std::size_t offset : {std::size_t{0}, std::size_t{4}, std::size_t{8}, std::size_t{0}})
    kernel.forward(2, m.data(), {m.data(), 1}, m.data() + offset, Activation::none, m.data() + 64);
  cuda.synchronize();
  CHECK(stand_in::heuristics == heuristics + 3);
  CHECK(stand_in::misuse == "");  // which an algorithm for wider reads of the vector would be
}

TEST_CASE("cuda: an algorithm that is refused at a call gives way to the next one") {
  const Machine machine;
  HostCuda cuda;
  HostCuda::Linear<float> kernel(cuda, 1, 1);
  const OnDevice<float> x(cuda, {3.0F}), w(cuda, {5.0F}), y(cuda, {0.0F});
  const auto forward = [&] {
    kernel.forward(1, x.data(), {w.data(), 1}, nullptr, Activation::none, y.data());
  };
  stand_in::refusing = 0b11;
  forward();
  CHECK(stand_in::algorithm == 2);
  CHECK(y.values()[0] == 15.0F);
  const int matmuls = stand_in::matmuls;
  forward();
  CHECK(stand_in::matmuls == matmuls + 1);
  stand_in::refusing = 0b111;
  CHECK_THROWS_AS(forward(), backend_error);
}

TEST_CASE("cuda: products take as much scratch memory as the options allow, and no more") {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{2999}, std::size_t{3000}}) {
    CAPTURE(bytes);
    const Machine machine;
    CudaOptions options;
    options.time_candidates = true;
    options.workspace_bytes = bytes;
    HostCuda cuda(options);
    HostCuda::Linear<float> kernel(cuda, 1, 1);
    const OnDevice<float> x(cuda, {3.0F}), w(cuda, {5.0F}), y(cuda, {0.0F});
    stand_in::fastest = 3;  // which takes 3000 bytes
    kernel.forward(1, x.data(), {w.data(), 1}, nullptr, Activation::none, y.data());
    CHECK((stand_in::algorithm == 3) == (bytes == 3000));
    CHECK(y.values()[0] == 15.0F);
  }
}

TEST_CASE("cuda: the fastest of the proposals is found once, without touching the result") {
  const Machine machine;
  CudaOptions options;
  options.time_candidates = true;
  HostCuda cuda(options);
  HostCuda::Linear<float> kernel(cuda, 1, 1);
  const OnDevice<float> x(cuda, {3.0F}), dy(cuda, {5.0F}), dw(cuda, {1.0F}), db(cuda, {2.0F});
  stand_in::fastest = 3;
  stand_in::refusing = 0b101;
  kernel.backward_weight(1, x.data(), dy.data(), Write::add, dw.data(), nullptr);
  CHECK(stand_in::algorithm == 3);
  CHECK(dw.values()[0] == 16.0F);
  kernel.backward_weight(1, x.data(), dy.data(), Write::replace, dw.data(), db.data());
  CHECK(stand_in::algorithm == 3);
  CHECK(dw.values()[0] == 15.0F);
  CHECK(db.values()[0] == 5.0F);

  const int matmuls = stand_in::matmuls;
  const int allocations = stand_in::allocations;
  stand_in::fastest = 5;
  kernel.backward_weight(1, x.data(), dy.data(), Write::add, dw.data(), nullptr);
  CHECK(stand_in::algorithm == 3);
  CHECK(stand_in::matmuls == matmuls + 1);
  CHECK(stand_in::allocations == allocations);

  stand_in::refusing = 0xff;
  CHECK_THROWS_AS(kernel.backward_input(1, dy.data(), {x.data(), 1}, dw.data()), backend_error);
  stand_in::refusing = 0;
  stand_in::is_capturing = true;
  CHECK_THROWS_AS(kernel.backward_input(1, dy.data(), {x.data(), 1}, dw.data()), backend_error);
  stand_in::is_capturing = false;
  CHECK(stand_in::misuse == "");
}
