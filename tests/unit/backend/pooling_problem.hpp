#pragma once
// A pooling with small integer data, worked out one output and one tap at a time, and a check of a
// backend's kernels against it.

#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "shardwise/backend/pooling.hpp"
#include "unit/backend/spatial_problem.hpp"
#include "unit/backend/typed_numbers.hpp"

namespace backend_test {

using shardwise::PoolingCall;

/// What pooling gives, in double, where sums of small integers are exact.
struct PoolingFormula {
  PoolingCall call;

  using Numbers = std::vector<double>;

  std::size_t x_size() const { return call.planes() * call.input_plane(); }
  std::size_t y_size() const { return call.planes() * call.output_plane(); }

  /// The elements of x that output `y` reads, in the order of memory.
  std::vector<std::size_t> read_by(std::size_t y) const {
    const auto& s = call.space;
    const std::size_t plane = y / call.output_plane();
    const std::size_t p = y % call.output_plane();
    const std::size_t output[] = {p / (s[1].output * s[2].output), p / s[2].output % s[1].output,
                                  p % s[2].output};
    std::vector<std::size_t> elements;
    const auto at = [&](std::size_t axis, std::size_t tap) {
      return static_cast<long>(output[axis] * s[axis].stride + tap * s[axis].dilation) -
             static_cast<long>(s[axis].before);
    };
    const auto inside = [&](std::size_t axis, long position) {
      return position >= 0 && position < static_cast<long>(s[axis].input);
    };
    for (std::size_t a = 0; a < s[0].kernel; ++a)
      for (std::size_t b = 0; b < s[1].kernel; ++b)
        for (std::size_t c = 0; c < s[2].kernel; ++c) {
          const long d = at(0, a), h = at(1, b), w = at(2, c);
          if (!inside(0, d) || !inside(1, h) || !inside(2, w)) continue;
          const auto row = static_cast<std::size_t>(d) * s[1].input + static_cast<std::size_t>(h);
          elements.push_back((plane * s[0].input * s[1].input + row) * s[2].input +
                             static_cast<std::size_t>(w));
        }
    return elements;
  }

  Numbers maxima(const Numbers& x) const {
    Numbers y(y_size(), -std::numeric_limits<double>::infinity());
    for (std::size_t o = 0; o < y.size(); ++o)
      for (const std::size_t i : read_by(o)) y[o] = std::max(y[o], x[i]);
    return y;
  }
  Numbers gradient_of_maxima(const Numbers& x, const Numbers& dy) const {
    Numbers dx(x_size());
    const Numbers y = maxima(x);
    for (std::size_t o = 0; o < y.size(); ++o)
      for (const std::size_t i : read_by(o)) {
        if (x[i] != y[o]) continue;
        dx[i] += dy[o];
        break;  // the first alone
      }
    return dx;
  }

  double divisor_of(PoolingCall::Divisor divisor, std::size_t output) const {
    const std::size_t elements = read_by(output).size();
    if (divisor == PoolingCall::Divisor::taps) return static_cast<double>(call.taps());
    return elements == 0 ? 1 : static_cast<double>(elements);
  }
  Numbers means(PoolingCall::Divisor divisor, const Numbers& x) const {
    Numbers y(y_size());
    for (std::size_t o = 0; o < y.size(); ++o) {
      for (const std::size_t i : read_by(o)) y[o] += x[i];
      y[o] /= divisor_of(divisor, o);
    }
    return y;
  }
  Numbers gradient_of_means(PoolingCall::Divisor divisor, const Numbers& dy) const {
    Numbers dx(x_size());
    for (std::size_t o = 0; o < dy.size(); ++o)
      for (const std::size_t i : read_by(o)) dx[i] += dy[o] / divisor_of(divisor, o);
    return dx;
  }
};

inline std::string to_string(const PoolingFormula& f) {
  return std::to_string(f.call.images) + " images of " + std::to_string(f.call.channels) +
         " channels" + to_string(f.call.space);
}

/// Windows of 1 to 7 taps, strides and dilations of 1 to 3, padding up to half of the window, one
/// to three axes of space of different sizes; now and then something is empty.
inline PoolingFormula random_pooling(std::mt19937& random) {
  PoolingFormula f;
  f.call.images = rarely(random) ? 0 : 1 + up_to(random, 1);
  f.call.channels = rarely(random) ? 0 : 1 + up_to(random, 2);
  const std::size_t axes = 1 + up_to(random, 2);
  for (std::size_t axis = 3 - axes; axis < 3; ++axis)
    f.call.space[axis] = random_axis(random, axes == 3 ? 4 : 7, axes == 3 ? 7 : 12,
                                     [](std::size_t reach) { return reach / 2; });
  return f;
}

/// Runs B's kernels in T. Maxima and their gradients must be exact, means within `bound` of the
/// largest of them: their divisors are no powers of two.
template <class B, class T>
bool pooling_is_right(B& backend, const PoolingFormula& f, std::mt19937& random, double bound) {
  using Numbers = PoolingFormula::Numbers;
  const auto near = [](const std::vector<T>& a, const Numbers& b, double bound_here) {
    if (a.size() != b.size()) return false;
    double scale = 1;
    for (const double v : b) scale = std::isfinite(v) ? std::max(scale, std::abs(v)) : scale;
    for (std::size_t k = 0; k < a.size(); ++k) {
      const double ours = number_of(a[k]);
      if (ours != b[k] && !(std::abs(ours - b[k]) <= bound_here * scale)) return false;
    }
    return true;
  };
  const Numbers x = integers(random, f.x_size()), dy = integers(random, f.y_size());
  const auto x_t = rounded<T>(x), dy_t = rounded<T>(dy);
  auto y = unwritten<T>(f.y_size());
  auto dx = unwritten<T>(f.x_size());
  bool right = true;

  typename B::template MaxPooling<T> maxima(backend);
  std::vector<unsigned char> record(maxima.record_bytes(f.call) + 1);  // never null
  maxima.forward(f.call, x_t.data(), y.data(), nullptr);
  right = right && near(y, f.maxima(x), 0);
  y = unwritten<T>(f.y_size());
  maxima.forward(f.call, x_t.data(), y.data(), record.data());
  right = right && near(y, f.maxima(x), 0);
  maxima.backward(f.call, dy_t.data(), record.data(), dx.data());
  right = right && near(dx, f.gradient_of_maxima(x, dy), 0);

  typename B::template AveragePooling<T> means(backend);
  for (const PoolingCall::Divisor divisor :
       {PoolingCall::Divisor::taps, PoolingCall::Divisor::elements}) {
    y = unwritten<T>(f.y_size());
    dx = unwritten<T>(f.x_size());
    means.forward(f.call, divisor, x_t.data(), y.data());
    right = right && near(y, f.means(divisor, x), bound);
    means.backward(f.call, divisor, dy_t.data(), dx.data());
    right = right && near(dx, f.gradient_of_means(divisor, dy), bound);
  }
  return right;
}

/// Windows of `taps` taps in one row. The maximum is read through the first, the last but one and
/// the last of them; then all of them fall on padding.
template <class B>
bool maxima_of_long_windows_are_right(B& backend, std::size_t taps) {
  typename B::template MaxPooling<float> kernel(backend);
  const float dy = 5;
  bool right = true;
  const auto run = [&](const SpatialAxis& row, const std::vector<float>& x, float maximum,
                       std::vector<float> gradient) {
    const PoolingCall call{{1, {SpatialAxis{}, SpatialAxis{}, row}}, 1};
    std::vector<unsigned char> record(kernel.record_bytes(call));
    right = right && record.size() == (taps < 255 ? 1U : 4U);
    if (!right) return;  // a kernel that numbers taps otherwise may write anywhere
    std::vector<float> dx(x.size(), -999);
    float y = 0;
    kernel.forward(call, x.data(), &y, record.data());
    kernel.backward(call, &dy, record.data(), dx.data());
    right = y == maximum && dx == gradient;
  };
  for (const std::size_t tap : {std::size_t{0}, taps - 2, taps - 1}) {
    std::vector<float> x(taps, 1), gradient(taps);
    x[tap] = 3;
    gradient[tap] = dy;
    run({.input = taps, .output = 1, .kernel = taps}, x, 3, gradient);
  }
  run({.input = 2, .output = 1, .kernel = taps, .dilation = 3, .before = 1}, {4, 5},
      -std::numeric_limits<float>::infinity(), {0, 0});
  return right;
}

/// Maxima of `count` random poolings with B's kernels in T are exact, means within `bound`. A mean
/// is rounded after a sum of up to 343 integers, which is exact; of a gradient every one of up to
/// 343 summands is. In two-byte dtypes results are rounded once more.
template <class B, class T>
void check_random_poolings(int count, double bound) {
  B backend;
  check_random("poolings", count, random_pooling,
               [&](const PoolingFormula& f, std::mt19937& random) {
                 return pooling_is_right<B, T>(backend, f, random, bound);
               });
}

}  // namespace backend_test
