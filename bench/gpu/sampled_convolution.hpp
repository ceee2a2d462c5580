#pragma once
// Whether a convolution is right, at places drawn at random: each is summed by plain loops in
// double, on the device, whatever the order in which channels and space lie.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/sampled_product.hpp"
#include "gpu/uniform.hpp"
#include "support/resnet50.hpp"

namespace bench {

/// What of a tensor lies innermost: space, or channels.
enum class Innermost : std::uint8_t { space, channels };

/// A tensor [n, c, h, w], or a weight [out, in, h, w], in one of the orders.
struct ImageExtents {
  std::size_t n, c, h, w;

  constexpr std::size_t size() const { return n * c * h * w; }

  /// Elements from one index to the next, of each axis.
  constexpr std::array<std::size_t, 4> strides(Innermost order) const {
    if (order == Innermost::channels) return {h * w * c, 1, w * c, c};
    return {c * h * w, h * w, w, 1};
  }
};

/// The tensors of one convolution without bias, and how they lie. Padding keeps the extent at
/// stride 1.
template <class T>
struct ConvolutionTensors {
  ConvolutionShape shape;
  std::size_t images;
  Innermost order;
  const T *x, *w, *dy;
  T *y, *dx, *dw;

  constexpr ImageExtents of_x() const { return {images, shape.in, shape.extent, shape.extent}; }
  constexpr ImageExtents of_w() const { return {shape.out, shape.in, shape.kernel, shape.kernel}; }
  constexpr ImageExtents of_y() const {
    return {images, shape.out, shape.outputs(), shape.outputs()};
  }
};

/// The results of a convolution.
enum class ConvolutionResult : std::uint8_t { y, dx, dw };

/// Places of one result.
template <class T>
struct SampledConvolution {
  ConvolutionTensors<T> tensors;
  ConvolutionResult result;

  constexpr ImageExtents extents() const {
    if (result == ConvolutionResult::y) return tensors.of_y();
    return result == ConvolutionResult::dx ? tensors.of_x() : tensors.of_w();
  }
  constexpr const T* data() const {
    if (result == ConvolutionResult::y) return tensors.y;
    return result == ConvolutionResult::dx ? tensors.dx : tensors.dw;
  }

  /// The most products that one element is a sum of.
  constexpr std::size_t terms() const {
    const ImageExtents w = tensors.of_w(), y = tensors.of_y();
    if (result == ConvolutionResult::dw) return y.n * y.h * y.w;
    return (result == ConvolutionResult::y ? w.c : w.n) * w.h * w.w;
  }

  /// The element with these indices.
  constexpr double exact(const std::array<std::size_t, 4>& at) const {
    if (result == ConvolutionResult::y) return exact_y(at[0], at[1], at[2], at[3]);
    return result == ConvolutionResult::dx ? exact_dx(at[0], at[1], at[2], at[3])
                                           : exact_dw(at[0], at[1], at[2], at[3]);
  }

 private:
  constexpr double exact_y(std::size_t n, std::size_t o, std::size_t p, std::size_t q) const {
    const ImageExtents w = tensors.of_w();
    const std::size_t step = tensors.shape.stride;
    double sum = 0;
    for (std::size_t i = 0; i < w.c; ++i)
      for (std::size_t kh = 0; kh < w.h; ++kh)
        for (std::size_t kw = 0; kw < w.w; ++kw)
          sum += padded_x(n, i, p * step + kh, q * step + kw) * number(tensors.w, w, o, i, kh, kw);
    return sum;
  }

  constexpr double exact_dx(std::size_t n, std::size_t i, std::size_t h, std::size_t v) const {
    const ImageExtents w = tensors.of_w();
    const std::size_t padding = tensors.shape.padding();
    double sum = 0;
    for (std::size_t o = 0; o < w.n; ++o)
      for (std::size_t kh = 0; kh < w.h; ++kh)
        for (std::size_t kw = 0; kw < w.w; ++kw)
          sum += spread_dy(n, o, h + padding - kh, v + padding - kw) *
                 number(tensors.w, w, o, i, kh, kw);
    return sum;
  }

  constexpr double exact_dw(std::size_t o, std::size_t i, std::size_t kh, std::size_t kw) const {
    const ImageExtents y = tensors.of_y();
    const std::size_t step = tensors.shape.stride;
    double sum = 0;
    for (std::size_t n = 0; n < y.n; ++n)
      for (std::size_t p = 0; p < y.h; ++p)
        for (std::size_t q = 0; q < y.w; ++q)
          sum += padded_x(n, i, p * step + kh, q * step + kw) * number(tensors.dy, y, n, o, p, q);
    return sum;
  }

  /// x with its padding, where indices count from the padding in front.
  constexpr double padded_x(std::size_t n, std::size_t c, std::size_t h, std::size_t w) const {
    const std::size_t padding = tensors.shape.padding(), end = padding + tensors.shape.extent;
    if (h < padding || w < padding || h >= end || w >= end) return 0;
    return number(tensors.x, tensors.of_x(), n, c, h - padding, w - padding);
  }

  /// dy with zeros between its elements and around them: an index below zero has wrapped around.
  constexpr double spread_dy(std::size_t n, std::size_t c, std::size_t h, std::size_t w) const {
    const ImageExtents y = tensors.of_y();
    const std::size_t step = tensors.shape.stride;
    if (h >= y.h * step || w >= y.w * step || h % step != 0 || w % step != 0) return 0;
    return number(tensors.dy, y, n, c, h / step, w / step);
  }

  constexpr double number(const T* data, const ImageExtents& e, std::size_t n, std::size_t c,
                          std::size_t h, std::size_t w) const {
    const auto s = e.strides(tensors.order);
    return static_cast<double>(static_cast<float>(data[n * s[0] + c * s[1] + h * s[2] + w * s[3]]));
  }
};

template <class T>
struct TakeConvolutionSample {
  SampledConvolution<T> convolution;
  Sample* samples;

  constexpr void operator()(std::size_t s) const {
    const ImageExtents e = convolution.extents();
    const std::size_t place = sampled_place(s, e.size());
    const std::array<std::size_t, 4> at{place / (e.c * e.h * e.w), place / (e.h * e.w) % e.c,
                                        place / e.w % e.h, place % e.w};
    const auto strides = e.strides(convolution.tensors.order);
    std::size_t lies = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis) lies += at[axis] * strides[axis];
    samples[s] = {place, convolution.exact(at),
                  static_cast<double>(static_cast<float>(convolution.data()[lies]))};
  }
};

/// Places of a result.
template <class Backend, class T>
std::vector<Sample> samples_of(Backend& backend, const SampledConvolution<T>& convolution) {
  return samples_by<TakeConvolutionSample<T>>(backend, convolution);
}

/// Throws std::runtime_error unless one result is right.
template <class Backend, class T>
void require_right(Backend& backend, const std::string& what,
                   const SampledConvolution<T>& convolution, double factor_epsilon) {
  require_right<T>(what, samples_of(backend, convolution), convolution.terms(), factor_epsilon);
}

}  // namespace bench
