// The reference kernel of convolutions against sums written out one tap at a time.

#include <doctest/doctest.h>

#include "shardwise/backend/reference.hpp"
#include "unit/backend/convolution_problem.hpp"

using namespace shardwise;

namespace {

static_assert(ConvolutionBackend<Reference, double> && ConvolutionBackend<Reference, bf16>);
static_assert(!ConvolutionBackend<Reference, int>);  // no dtype of layers
struct Linears : Reference {                         // a backend, but without convolutions
  template <Real T>
  using Convolution = void;
};
static_assert(Backend<Linears, float> && !ConvolutionBackend<Linears, float>);

ConvolutionCall plane(const SpatialAxis& height, const SpatialAxis& width) {
  return {1, {SpatialAxis{}, height, width}};
}

}  // namespace

TEST_CASE("every product of random convolutions in double") {
  backend_test::check_random_convolutions<Reference, double>(3000);
}
TEST_CASE("every product of random convolutions in float") {
  backend_test::check_random_convolutions<Reference, float>(200);
}
TEST_CASE("every product of random convolutions in bfloat16") {
  backend_test::check_random_convolutions<Reference, bf16>(200);
}
TEST_CASE("every product of random convolutions in float16") {
  backend_test::check_random_convolutions<Reference, fp16>(200);
}

TEST_CASE("padding that no tap gets out of: nothing but the bias") {
  Reference backend;
  Reference::Convolution<double> kernel(backend, {1, 1, 1});
  // One element behind 3 of padding; the first two outputs of a kernel of 2 see none of it.
  const ConvolutionCall call = plane({}, {.input = 1, .output = 2, .kernel = 2, .before = 3});
  const double x = 7, bias = 5, w[] = {2, 3};
  double y[] = {-1, -1};
  kernel.forward(call, &x, {w, 1}, &bias, Activation::none, y);
  CHECK(y[0] == 5);
  CHECK(y[1] == 5);
  double dx = -1, dw[] = {-1, -1};
  kernel.backward(call, &x, y, {w, 1}, Write::replace, dw, nullptr, &dx);
  CHECK(dx == 0);
  CHECK(dw[0] == 0);
  CHECK(dw[1] == 0);
}

TEST_CASE("a sum over no input channels is zero, and the bias is added") {
  Reference backend;
  Reference::Convolution<float> kernel(backend, {1, 0, 2});
  const ConvolutionCall call = plane({}, {.input = 3, .output = 3});
  const float bias[] = {1, 2};
  float y[] = {9, 9, 9, 9, 9, 9};
  kernel.forward(call, nullptr, {nullptr, 1}, bias, Activation::none, y);
  CHECK(y[2] == 1);
  CHECK(y[3] == 2);
  kernel.forward(call, nullptr, {nullptr, 1}, nullptr, Activation::none, y);
  CHECK(y[2] == 0);
  CHECK(y[3] == 0);
}

TEST_CASE("one kernel may meet planes of other sizes") {
  Reference backend;
  Reference::Convolution<double> kernel(backend, {1, 1, 1});
  const double ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  double y[4] = {};
  kernel.forward(plane({3, 2, 2}, {3, 2, 2}), ones, {ones, 1}, nullptr, Activation::none, y);
  CHECK(y[3] == 4);
  kernel.forward(plane({2, 1, 2}, {2, 1, 2}), ones, {ones, 1}, nullptr, Activation::none, y);
  CHECK(y[0] == 4);
}
