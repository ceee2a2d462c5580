// The reference kernels of pooling against windows read one tap at a time.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>

#include "shardwise/backend/reference.hpp"
#include "unit/backend/pooling_problem.hpp"

using namespace shardwise;

namespace {

static_assert(PoolingBackend<Reference, double> && PoolingBackend<Reference, bf16>);
static_assert(!PoolingBackend<Reference, int>);  // no dtype of layers
struct Products : Reference {                    // a backend, but without pooling
  template <Real T>
  using MaxPooling = void;
};
static_assert(Backend<Products, float> && !PoolingBackend<Products, float>);

/// One image of one channel in one row.
PoolingCall row(const SpatialAxis& width) {
  return {{1, {SpatialAxis{}, SpatialAxis{}, width}}, 1};
}

}  // namespace

TEST_CASE("random poolings in double") {
  backend_test::check_random_poolings<Reference, double>(3000, 1e-14);
}
TEST_CASE("random poolings in float") {
  backend_test::check_random_poolings<Reference, float>(300, 1e-5);
}
TEST_CASE("random poolings in bfloat16") {
  backend_test::check_random_poolings<Reference, bf16>(300, 0x1p-8);
}
TEST_CASE("random poolings in float16") {
  backend_test::check_random_poolings<Reference, fp16>(300, 0x1p-11);
}

TEST_CASE("windows of as many taps as a byte can number, and of more") {
  Reference backend;
  for (const std::size_t taps : {254U, 255U, 256U, 257U, 300U}) {
    CAPTURE(taps);
    CHECK(backend_test::maxima_of_long_windows_are_right(backend, taps));
  }
}

TEST_CASE("what is no number is the maximum, and infinity has a place") {
  Reference backend;
  Reference::MaxPooling<double> kernel(backend);
  const PoolingCall call = row({.input = 6, .output = 3, .kernel = 2, .stride = 2});
  const double infinity = std::numeric_limits<double>::infinity();
  const double x[] = {1, std::nan(""), std::nan(""), 2, -infinity, -infinity};
  const double dy[] = {1, 2, 3};
  double y[3], dx[6];
  unsigned char record[3];
  kernel.forward(call, x, y, record);
  CHECK(std::isnan(y[0]));
  CHECK(std::isnan(y[1]));
  CHECK(y[2] == -infinity);
  kernel.backward(call, dy, record, dx);
  const double expected[] = {0, 1, 2, 0, 3, 0};
  for (int k = 0; k < 6; ++k) CHECK(dx[k] == expected[k]);
}

TEST_CASE("a window of nothing but padding has no maximum, and its gradient goes nowhere") {
  Reference backend;
  const PoolingCall call =
      row({.input = 2, .output = 1, .kernel = 2, .stride = 1, .dilation = 3, .before = 1});
  const double x[] = {4, 5}, dy = 7;
  double y = 0, dx[] = {9, 9};
  unsigned char record = 0;
  Reference::MaxPooling<double> maxima(backend);
  maxima.forward(call, x, &y, &record);
  CHECK(y == -std::numeric_limits<double>::infinity());
  maxima.backward(call, &dy, &record, dx);
  CHECK((dx[0] == 0 && dx[1] == 0));
  Reference::AveragePooling<double> means(backend);
  means.forward(call, PoolingCall::Divisor::elements, x, &y);
  CHECK(y == 0);
}
