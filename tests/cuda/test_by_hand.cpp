// The linear layer that benchmarks write by hand computes the same as plain loops, on the
// stand-ins, and searches as many algorithms as ours. Which engine its convolutions take.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "cuda/host_cuda.hpp"
#include "cuda/stand_in.hpp"
#include "gpu/linear_by_hand.hpp"
#include "shardwise/backend/reference.hpp"
#include "unit/backend/linear_problem.hpp"

using namespace shardwise;
using backend_test::LinearProblem;
using testing::HostCuda;
using testing::Machine;
using testing::OnDevice;

namespace {

constexpr std::size_t rows = 8, in = 16, out = 24;
constexpr auto bias_gradient = static_cast<std::uint32_t>(CUBLASLT_EPILOGUE_BGRADB);

/// A problem on the device, computed by hand there, and by plain loops.
template <class T>
class Both {
 public:
  Both(HostCuda& cuda, bool relu)
      : problem(LinearProblem<T>::of_integers(rows, in, out)),
        x_(cuda, problem.x),
        w_(cuda, problem.w),
        bias_(cuda, problem.bias),
        dy_(cuda, problem.dy),
        hand(cuda, {rows, in, out}, given(), relu, false),
        y(rows * out),
        dx(rows * in),
        dw(out * in),
        db(out) {
    Reference loops;
    Reference::Linear<T> kernel(loops, in, out);
    const Weight<T> weight{problem.w.data(), 1};
    kernel.forward(rows, problem.x.data(), weight, problem.bias.data(),
                   relu ? Activation::relu : Activation::none, y.data());
    std::vector<T> slope = problem.dy;
    for (std::size_t i = 0; i < slope.size(); ++i)
      if (relu && !(static_cast<float>(y[i]) > 0)) slope[i] = static_cast<T>(0.0F);
    kernel.backward_input(rows, slope.data(), weight, dx.data());
    kernel.backward_weight(rows, problem.x.data(), slope.data(), Write::replace, dw.data(),
                           db.data());
  }

  LinearProblem<T> problem;

 private:
  bench::LinearPointers<T> given() const {
    bench::LinearPointers<T> all{};
    all.x = x_.data(), all.w = w_.data(), all.bias = bias_.data(), all.dy = dy_.data();
    return all;
  }

  OnDevice<T> x_, w_, bias_, dy_;

 public:
  by_hand::Linear<HostCuda, T> hand;
  std::vector<T> y, dx, dw, db;
};

template <class T>
std::vector<T> read(const T* data, std::size_t n) {
  return {data, data + n};
}

}  // namespace

TEST_CASE_TEMPLATE("by hand: all products of a layer are those of plain loops", T, float, bf16,
                   fp16) {
  const Machine machine;
  struct Case {
    bool relu;
    std::uint32_t lacks;
  };
  for (const Case& one : {Case{false, 0}, {true, 0}, {true, bias_gradient}}) {
    CAPTURE(one.relu);
    CAPTURE(one.lacks);
    stand_in::lacks = one.lacks;
    HostCuda cuda;
    Both<T> both(cuda, one.relu);
    both.hand.train();
    cuda.synchronize();
    const bench::LinearPointers<T>& got = both.hand.products().at;
    CHECK(backend_test::same(read(got.y, rows * out), both.y));
    CHECK(backend_test::same(read(got.dx, rows * in), both.dx));
    CHECK(backend_test::same(read(got.dw, out * in), both.dw));
    CHECK(backend_test::same(read(got.db, out), both.db));
    CHECK(cuda.loops == (one.relu ? 1 : 0));
  }
  CHECK(stand_in::misuse == "");
}

TEST_CASE("by hand: the fastest of eight algorithms runs, and none is an error") {
  const Machine machine;
  stand_in::fastest = 7;
  stand_in::refusing = 0b1;
  HostCuda cuda;
  {
    Both<float> both(cuda, false);
    both.hand.forward();
    CHECK(stand_in::algorithm == 7);
  }
  stand_in::refusing = 0xff;
  CHECK_THROWS_AS(Both<float>(cuda, false), std::runtime_error);
  stand_in::refusing = 0;
}

TEST_CASE("by hand: partial sums are kept in the type of sums, as ours are") {
  const Machine machine;
  HostCuda cuda;
  const OnDevice<bf16> ones(cuda, std::vector<bf16>(600, bf16(1.0F))), d(cuda, {bf16(0.0F)});
  auto& session = cuda.session();
  by_hand::Product product({session.cublaslt(), session.stream().get(), nullptr, 0},
                           {CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUBLAS_OP_T, CUBLAS_OP_N, 1, 1, 600,
                            ones.data(), ones.data(), d.data()});
  product();
  CHECK(static_cast<float>(d.values()[0]) == 600.0F);  // in bf16 it would stay at 256
}

namespace {

/// What ReLU's gradient makes of outputs -1, 0 and 1, and of a NaN, where dy is 2.
template <class T>
constexpr typename by_hand::ReluGradient<T>::Chunk gradients() {
  typename by_hand::ReluGradient<T>::Chunk y{}, dy{}, to{};
  const float outputs[] = {-1, 0, 1, std::numeric_limits<float>::quiet_NaN()};
  for (std::size_t k = 0; k < 4; ++k) {
    y.numbers[k] = static_cast<T>(outputs[k]);
    dy.numbers[k] = static_cast<T>(2.0F);
  }
  by_hand::ReluGradient<T>{&y, &dy, &to}(0);
  return to;
}

}  // namespace

TEST_CASE_TEMPLATE("by hand: ReLU's gradient is a constant expression, which nvcc compiles", T,
                   float, bf16, fp16) {
  constexpr auto of = gradients<T>();
  CHECK(static_cast<float>(of.numbers[0]) == 0);
  CHECK(static_cast<float>(of.numbers[1]) == 0);
  CHECK(static_cast<float>(of.numbers[2]) == 2);
  CHECK(static_cast<float>(of.numbers[3]) == 0);
}
