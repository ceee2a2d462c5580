#pragma once
// A convolution with small integer data, every product of which is worked out one element and one
// tap at a time, and a check of a backend's kernel against it with ==.

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "shardwise/backend/convolution.hpp"
#include "unit/backend/spatial_problem.hpp"
#include "unit/backend/typed_numbers.hpp"

namespace backend_test {

using shardwise::Activation;
using shardwise::ConvolutionCall;
using shardwise::ConvolutionChannels;
using shardwise::Write;

/// The products by their formulas, in double, where sums of small integers are exact.
struct ConvolutionFormula {
  ConvolutionChannels channels;
  ConvolutionCall call;

  using Numbers = std::vector<double>;

  std::size_t inputs() const { return channels.groups * channels.in; }
  std::size_t outputs() const { return channels.groups * channels.out; }
  std::size_t x_size() const { return call.images * inputs() * call.input_plane(); }
  std::size_t y_size() const { return call.images * outputs() * call.output_plane(); }
  std::size_t w_size() const { return outputs() * channels.in * call.taps(); }

  /// Calls f(element of y, element of x, element of w) for every product of the sums.
  template <class F>
  void for_each_product(F f) const {
    const std::size_t in_plane = call.input_plane(), out_plane = call.output_plane();
    std::vector<std::array<std::size_t, 2>> pairs;  // outputs of a plane, and what a tap reads
    for (std::size_t k = 0; k < call.taps(); ++k) {
      pairs.clear();
      for (std::size_t p = 0; p < out_plane; ++p)
        if (const auto at = read_by(p, k)) pairs.push_back({p, *at});
      for (std::size_t n = 0; n < call.images; ++n)
        for (std::size_t o = 0; o < outputs(); ++o)
          for (std::size_t i = 0; i < channels.in; ++i) {
            const std::size_t y = (n * outputs() + o) * out_plane;
            const std::size_t x = (n * inputs() + o / channels.out * channels.in + i) * in_plane;
            const std::size_t w = (o * channels.in + i) * call.taps() + k;
            for (const auto& [p, at] : pairs) f(y + p, x + at, w);
          }
    }
  }

  /// The element of an input plane that tap k of output p reads, if it lies in the image.
  std::optional<std::size_t> read_by(std::size_t p, std::size_t k) const {
    const auto& s = call.space;
    const std::array<std::size_t, 3> output{p / s[2].output / s[1].output,
                                            p / s[2].output % s[1].output, p % s[2].output};
    const std::array<std::size_t, 3> tap{k / s[2].kernel / s[1].kernel,
                                         k / s[2].kernel % s[1].kernel, k % s[2].kernel};
    std::size_t element = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const SpatialAxis& a = s[axis];
      const std::size_t padded = output[axis] * a.stride + tap[axis] * a.dilation;
      if (padded < a.before || padded - a.before >= a.input) return std::nullopt;
      element = element * a.input + padded - a.before;
    }
    return element;
  }

  /// The output channel of an element of y.
  std::size_t channel_of(std::size_t y) const { return y / call.output_plane() % outputs(); }

  Numbers forward(const Numbers& x, const Numbers& w, const Numbers& bias) const {
    Numbers y(y_size());
    if (!bias.empty())
      for (std::size_t k = 0; k < y.size(); ++k) y[k] = bias[channel_of(k)];
    for_each_product([&](std::size_t o, std::size_t i, std::size_t t) { y[o] += x[i] * w[t]; });
    return y;
  }
  Numbers input_gradient(const Numbers& dy, const Numbers& w) const {
    Numbers dx(x_size());
    for_each_product([&](std::size_t o, std::size_t i, std::size_t t) { dx[i] += dy[o] * w[t]; });
    return dx;
  }
  /// Added to `dw`.
  Numbers weight_gradient(const Numbers& x, const Numbers& dy, Numbers dw) const {
    for_each_product([&](std::size_t o, std::size_t i, std::size_t t) { dw[t] += dy[o] * x[i]; });
    return dw;
  }
  /// Added to `db`.
  Numbers bias_gradient(const Numbers& dy, Numbers db) const {
    for (std::size_t k = 0; k < dy.size(); ++k) db[channel_of(k)] += dy[k];
    return db;
  }
};

inline std::string to_string(const ConvolutionFormula& f) {
  return std::to_string(f.call.images) + " images, " + std::to_string(f.channels.groups) +
         " groups of " + std::to_string(f.channels.in) + " -> " + std::to_string(f.channels.out) +
         to_string(f.call.space);
}

/// Kernels of 1 to 7 taps, strides and dilations of 1 to 3, padding from none to beyond the kernel,
/// one to three axes of space of different sizes; now and then something is empty.
inline ConvolutionFormula random_convolution(std::mt19937& random) {
  const auto some = [&](std::size_t most) { return 1 + up_to(random, most - 1); };
  const auto none_or_some = [&](std::size_t most) { return rarely(random) ? 0 : some(most); };
  ConvolutionFormula f;
  f.channels = {some(3), none_or_some(3), none_or_some(3)};
  if (rarely(random)) f.channels = {some(2), some(41), some(71)};  // some kept in blocks
  f.call.images = none_or_some(2);
  const std::size_t axes = some(3);
  for (std::size_t axis = 3 - axes; axis < 3; ++axis) {
    SpatialAxis& a = f.call.space[axis];
    a = random_axis(random, axes == 3 ? 4 : 7, axes == 3 ? 6 : 10,
                    [](std::size_t reach) { return reach + 1; });
    if (axes == 3) a.output = std::min<std::size_t>(a.output, 4);
  }
  return f;
}

/// Runs every product of B's kernel in T; whether all results are exact.
template <class B, class T>
bool convolutions_are_exact(B& backend, const ConvolutionFormula& f, std::mt19937& random) {
  using Numbers = ConvolutionFormula::Numbers;
  const auto integers = [&](std::size_t size) { return backend_test::integers(random, size); };
  const auto equal = [](const char* what, const std::vector<T>& found, const Numbers& numbers) {
    const std::vector<T> expected = rounded<T>(numbers);
    for (std::size_t k = 0; k < found.size(); ++k) {
      if (number_of(found[k]) == number_of(expected[k])) continue;
      note_difference(what, k, number_of(found[k]), number_of(expected[k]));
      return false;
    }
    return true;
  };
  const Numbers x = integers(f.x_size()), w = integers(f.w_size()), dy = integers(f.y_size());
  const Numbers b = integers(f.outputs()), old_dw = integers(w.size()), old_db = integers(b.size());
  const auto x_t = rounded<T>(x), w_t = rounded<T>(w), dy_t = rounded<T>(dy), b_t = rounded<T>(b);
  typename B::template Convolution<T> kernel(backend, f.channels);
  bool exact = true;

  const Numbers xw = f.forward(x, w, {});
  for (const bool with_bias : {false, true}) {
    for (const Activation activation : {Activation::none, Activation::relu}) {
      Numbers expected = xw;
      for (std::size_t k = 0; k < expected.size(); ++k) {
        if (with_bias) expected[k] += b[f.channel_of(k)];
        if (activation == Activation::relu && expected[k] < 0) expected[k] = 0;
      }
      auto y = unwritten<T>(f.y_size());
      kernel.forward(f.call, x_t.data(), {w_t.data(), 1}, with_bias ? b_t.data() : nullptr,
                     activation, y.data());
      exact = equal("y", y, expected) && exact;
    }
  }

  const auto sum = [](Numbers of, const Numbers& more) {
    for (std::size_t k = 0; k < of.size(); ++k) of[k] += more[k];
    return of;
  };
  const Numbers dx_of_w = f.input_gradient(dy, w);
  const Numbers dw_of_x = f.weight_gradient(x, dy, Numbers(w.size()));
  const Numbers db_of_dy = f.bias_gradient(dy, Numbers(b.size()));
  for (const bool with_bias : {false, true}) {
    auto dw = unwritten<T>(w.size());
    auto db = unwritten<T>(b.size());
    auto dx = unwritten<T>(f.x_size());
    kernel.backward(f.call, x_t.data(), dy_t.data(), {w_t.data(), 1}, Write::replace, dw.data(),
                    with_bias ? db.data() : nullptr, dx.data());
    exact = equal("dx", dx, dx_of_w) && equal("dw", dw, dw_of_x) && exact;
    exact = equal("db", db, with_bias ? db_of_dy : Numbers(b.size(), -999)) && exact;
    dw = rounded<T>(old_dw);
    db = rounded<T>(old_db);
    kernel.backward(f.call, x_t.data(), dy_t.data(), {w_t.data(), 1}, Write::add, dw.data(),
                    with_bias ? db.data() : nullptr, nullptr);
    exact = equal("dw added", dw, sum(dw_of_x, old_dw)) && exact;
    exact = equal("db added", db, with_bias ? sum(db_of_dy, old_db) : old_db) && exact;
  }
  auto dx = unwritten<T>(f.x_size());
  kernel.backward(f.call, nullptr, dy_t.data(), {w_t.data(), 1}, Write::replace, nullptr, nullptr,
                  dx.data());
  exact = equal("dx alone", dx, dx_of_w) && exact;
  return exact;
}

/// Every product of `count` random convolutions with B's kernel in T is exact.
template <class B, class T>
void check_random_convolutions(int count) {
  B backend;
  check_random("convolutions", count, random_convolution,
               [&](const ConvolutionFormula& f, std::mt19937& random) {
                 return convolutions_are_exact<B, T>(backend, f, random);
               });
}

}  // namespace backend_test
