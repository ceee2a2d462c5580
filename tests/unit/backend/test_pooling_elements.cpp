// Pooling one element a call, as threads of a device do it.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "shardwise/backend/detail/pooling_elements.hpp"
#include "shardwise/backend/reference.hpp"
#include "unit/backend/pooling_problem.hpp"

using namespace shardwise;

namespace {

struct ByElements : Reference {
  template <Real T>
  using MaxPooling = detail::MaxPoolingElements<T, Reference>;
  template <Real T>
  using AveragePooling = detail::AveragePoolingElements<T, Reference>;
};
static_assert(PoolingBackend<ByElements, fp16>);

/// What a device is to call is fit for constant expressions.
constexpr bool is_constexpr() {
  const PoolingCall call{
      {1, {SpatialAxis{}, SpatialAxis{}, {.input = 3, .output = 2, .kernel = 2}}}, 1};
  const float x[] = {1, 3, 2}, dy[] = {5, 7};
  float y[2]{}, means[2]{}, dx[3]{}, shares[3]{};
  std::uint8_t record[2]{};
  for (std::size_t i = 0; i < 2; ++i) {
    detail::MaximumOfWindow<float, std::uint8_t>{call, x, y, record}(i);
    detail::MeanOfWindow<float>{{call, PoolingCall::Divisor::taps}, x, means}(i);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    detail::GradientOfMaxima<float, std::uint8_t>{call, dy, record, dx}(i);
    detail::GradientOfMeans<float>{{call, PoolingCall::Divisor::elements}, dy, shares}(i);
  }
  return y[0] == 3 && y[1] == 3 && dx[0] == 0 && dx[1] == 12 && dx[2] == 0 && means[0] == 2 &&
         means[1] == 2.5F && shares[0] == 2.5F && shares[1] == 6 && shares[2] == 3.5F;
}
static_assert(is_constexpr());

/// Numbers that fit 32 bits, and those of which one or both do not.
constexpr std::size_t beyond = std::size_t{1} << 32;
static_assert(detail::quotient(beyond - 1, 3) == 0x5555'5555);
static_assert(detail::quotient(3 * beyond + 8, 3) == beyond + 2);
static_assert(detail::quotient(7, beyond + 2) == 0 && detail::quotient(7 * beyond, beyond) == 7);

}  // namespace

TEST_CASE("random poolings in float, one element a call") {
  backend_test::check_random_poolings<ByElements, float>(500, 1e-5);
}
TEST_CASE("random poolings in bfloat16, one element a call") {
  backend_test::check_random_poolings<ByElements, bf16>(100, 0x1p-8);
}

TEST_CASE("windows of as many taps as a byte can number, and of more, one element a call") {
  ByElements backend;
  for (const std::size_t taps : {254U, 255U, 256U, 257U, 300U}) {
    CAPTURE(taps);
    CHECK(backend_test::maxima_of_long_windows_are_right(backend, taps));
  }
}

TEST_CASE("one element a call records the taps that rows record, NaN and ties included") {
  Reference backend;
  Reference::MaxPooling<double> rows(backend);
  detail::MaxPoolingElements<double, Reference> elements(backend);
  const SpatialAxis width{.input = 8, .output = 6, .kernel = 3, .stride = 2, .before = 2};
  const PoolingCall call{{1, {SpatialAxis{}, SpatialAxis{}, width}}, 1};
  const double none = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const double x[] = {none, 2, 2, none, none, -infinity, -infinity, -infinity};
  double y[6], z[6];
  std::uint8_t of_rows[6]{}, of_elements[6]{};
  rows.forward(call, x, y, of_rows);
  elements.forward(call, x, z, of_elements);
  for (int k = 0; k < 6; ++k) {
    CHECK(of_rows[k] == of_elements[k]);
    CHECK((y[k] == z[k] || (std::isnan(y[k]) && std::isnan(z[k]))));
  }
}
