#pragma once
// A convolution with small integer data, every product of which is worked out one element and one
// tap at a time, and a check of a backend's kernel against it with ==.

#include <array>
#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/core/dtype.hpp"

namespace backend_test {

using shardwise::Activation;
using shardwise::ConvolutionCall;
using shardwise::ConvolutionChannels;
using shardwise::SpatialAxis;
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
  std::string text = std::to_string(f.call.images) + " images, " +
                     std::to_string(f.channels.groups) + " groups of " +
                     std::to_string(f.channels.in) + " -> " + std::to_string(f.channels.out);
  for (const SpatialAxis& a : f.call.space) {
    text += "; " + std::to_string(a.input) + " -> " + std::to_string(a.output) + " by kernel " +
            std::to_string(a.kernel) + ", stride " + std::to_string(a.stride) + ", dilation " +
            std::to_string(a.dilation) + ", before " + std::to_string(a.before);
  }
  return text;
}

/// Kernels of 1 to 7 taps, strides and dilations of 1 to 3, padding from none to beyond the kernel,
/// one to three axes of space of different sizes; now and then something is empty.
inline ConvolutionFormula random_convolution(std::mt19937& random) {
  const auto up_to = [&](std::size_t most) { return random() % (most + 1); };
  const auto rarely = [&] { return random() % 16 == 0; };
  ConvolutionFormula f;
  f.channels = {1 + up_to(2), rarely() ? 0 : 1 + up_to(2), rarely() ? 0 : 1 + up_to(2)};
  if (rarely()) f.channels = {1 + up_to(1), 1 + up_to(40), 1 + up_to(70)};  // some kept in blocks
  f.call.images = rarely() ? 0 : 1 + up_to(1);
  const std::size_t axes = 1 + up_to(2);
  for (std::size_t axis = 3 - axes; axis < 3; ++axis) {
    SpatialAxis& a = f.call.space[axis];
    a.kernel = 1 + up_to(axes == 3 ? 3 : 6);
    a.stride = 1 + up_to(2);
    a.dilation = 1 + up_to(2);
    a.input = rarely() ? 0 : 1 + up_to(axes == 3 ? 5 : 9);
    const std::size_t reach = (a.kernel - 1) * a.dilation + 1;
    a.before = up_to(reach + 1);
    const std::size_t padded = a.before + a.input + up_to(reach + 1);
    a.output = padded < reach ? 0 : (padded - reach) / a.stride + 1;
    if (rarely()) a.output = up_to(a.output);  // as on a rank with a part of the outputs
    if (axes == 3) a.output = std::min<std::size_t>(a.output, 4);
  }
  return f;
}

/// Runs every product of B's kernel in T; whether all results are exact.
template <class B, class T>
bool convolutions_are_exact(B& backend, const ConvolutionFormula& f, std::mt19937& random) {
  using A = shardwise::accumulate_t<T>;
  using Numbers = ConvolutionFormula::Numbers;
  const auto integers = [&](std::size_t size) {
    Numbers numbers(size);
    for (double& v : numbers) v = static_cast<double>(random() % 5) - 2;
    return numbers;
  };
  const auto typed = [](const Numbers& numbers) {
    std::vector<T> result;
    for (const double v : numbers) result.push_back(static_cast<T>(static_cast<A>(v)));
    return result;
  };
  const auto equal = [&](const std::vector<T>& a, const Numbers& expected) {
    const std::vector<T> b = typed(expected);
    if (a.size() != b.size()) return false;
    for (std::size_t k = 0; k < a.size(); ++k)
      if (static_cast<A>(a[k]) != static_cast<A>(b[k])) return false;
    return true;
  };
  // What a kernel fails to write shows.
  const auto unwritten = [](std::size_t size) {
    return std::vector<T>(size, static_cast<T>(static_cast<A>(-999)));
  };

  const Numbers x = integers(f.x_size()), w = integers(f.w_size()), dy = integers(f.y_size());
  const Numbers b = integers(f.outputs()), old_dw = integers(w.size()), old_db = integers(b.size());
  const auto x_t = typed(x), w_t = typed(w), dy_t = typed(dy), b_t = typed(b);
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
      auto y = unwritten(f.y_size());
      kernel.forward(f.call, x_t.data(), {w_t.data(), 1}, with_bias ? b_t.data() : nullptr,
                     activation, y.data());
      exact = exact && equal(y, expected);
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
    auto dw = unwritten(w.size());
    auto db = unwritten(b.size());
    auto dx = unwritten(f.x_size());
    kernel.backward(f.call, x_t.data(), dy_t.data(), {w_t.data(), 1}, Write::replace, dw.data(),
                    with_bias ? db.data() : nullptr, dx.data());
    exact = exact && equal(dx, dx_of_w) && equal(dw, dw_of_x);
    exact = exact && equal(db, with_bias ? db_of_dy : Numbers(b.size(), -999));
    dw = typed(old_dw);
    db = typed(old_db);
    kernel.backward(f.call, x_t.data(), dy_t.data(), {w_t.data(), 1}, Write::add, dw.data(),
                    with_bias ? db.data() : nullptr, nullptr);
    exact = exact && equal(dw, sum(dw_of_x, old_dw));
    exact = exact && equal(db, with_bias ? sum(db_of_dy, old_db) : old_db);
  }
  auto dx = unwritten(f.x_size());
  kernel.backward(f.call, nullptr, dy_t.data(), {w_t.data(), 1}, Write::replace, nullptr, nullptr,
                  dx.data());
  exact = exact && equal(dx, dx_of_w);
  return exact;
}

}  // namespace backend_test
