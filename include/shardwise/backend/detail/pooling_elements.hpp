#pragma once
// Pooling as functions for a backend's `for_each`: each call computes one element of a result from
// all its inputs, so no two calls write the same element. This is for devices with many threads. On
// a CPU the loops of pooling_loops.hpp vectorise, and compute a gradient ten times as fast.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "shardwise/backend/detail/taps.hpp"
#include "shardwise/backend/pooling.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail {

/// a / b; in 32 bits if both fit, since processors divide those several times as fast.
constexpr std::size_t quotient(std::size_t a, std::size_t b) {
  if (((a | b) >> 32) != 0) return a / b;
  return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
}

/// An element by its plane and its position in it.
struct PlaneElement {
  std::size_t plane;
  std::array<std::size_t, 3> place;
};

/// Element `number` of planes of inputs (`extent` is &SpatialAxis::input) or of outputs.
constexpr PlaneElement plane_element(const ConvolutionCall& call, std::size_t number,
                                     std::size_t SpatialAxis::*extent) {
  PlaneElement element{};
  for (std::size_t axis = 3; axis-- > 0;) {
    const std::size_t whole = quotient(number, call.space[axis].*extent);
    element.place[axis] = number - whole * call.space[axis].*extent;
    number = whole;
  }
  element.plane = number;
  return element;
}

/// The output that reads `element` through a tap; axis.output if there is none.
constexpr std::size_t output_at(const SpatialAxis& axis, std::size_t element, std::size_t tap) {
  const std::size_t padded = element + axis.before;
  if (padded < tap * axis.dilation) return axis.output;
  const std::size_t first_tap = padded - tap * axis.dilation;
  const std::size_t output = quotient(first_tap, axis.stride);
  return output * axis.stride == first_tap && output < axis.output ? output : axis.output;
}

/// Calls f(tap, in) for the taps of an output's window on elements; `in` is the element's number
/// over all planes.
template <class F>
constexpr void for_each_element_read(const ConvolutionCall& call, const PlaneElement& output, F f) {
  const auto& [depth, height, width] = call.space;
  std::size_t tap = 0;
  for (std::size_t a = 0; a < depth.kernel; ++a) {
    const std::size_t d = element_at(depth, output.place[0], a);
    for (std::size_t b = 0; b < height.kernel; ++b) {
      const std::size_t h = element_at(height, output.place[1], b);
      for (std::size_t c = 0; c < width.kernel; ++c, ++tap) {
        const std::size_t w = element_at(width, output.place[2], c);
        if (d >= depth.input || h >= height.input || w >= width.input) continue;
        f(tap, ((output.plane * depth.input + d) * height.input + h) * width.input + w);
      }
    }
  }
}

/// Calls f(tap, out, place) for the outputs that read an element through `tap`; `out` is the
/// output's number over all planes, `place` its position in its plane.
template <class F>
constexpr void for_each_output_reading(const ConvolutionCall& call, const PlaneElement& input,
                                       F f) {
  const auto& [depth, height, width] = call.space;
  std::size_t tap = 0;
  for (std::size_t a = 0; a < depth.kernel; ++a) {
    const std::size_t d = output_at(depth, input.place[0], a);
    for (std::size_t b = 0; b < height.kernel; ++b) {
      const std::size_t h = output_at(height, input.place[1], b);
      for (std::size_t c = 0; c < width.kernel; ++c, ++tap) {
        const std::size_t w = output_at(width, input.place[2], c);
        if (d == depth.output || h == height.output || w == width.output) continue;
        f(tap, ((input.plane * depth.output + d) * height.output + h) * width.output + w,
          std::array<std::size_t, 3>{d, h, w});
      }
    }
  }
}

/// The maximum of one window; `record`, if not null, gets its tap, or `none` if all taps are on
/// padding.
template <Real T, class Tap>
struct MaximumOfWindow {
  static constexpr Tap none = std::numeric_limits<Tap>::max();

  PoolingCall call;
  const T* x;
  T* y;
  Tap* record;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    A largest = -std::numeric_limits<A>::infinity();
    Tap through = none;
    for_each_element_read(call, plane_element(call, i, &SpatialAxis::output),
                          [&](std::size_t tap, std::size_t in) {
                            const A value = static_cast<A>(x[in]);
                            if (!(value > largest || value != value || through == none)) return;
                            largest = value;
                            through = static_cast<Tap>(tap);
                          });
    y[i] = static_cast<T>(largest);
    if (record != nullptr) record[i] = through;
  }
};

/// The gradient of one element: Σ dy over the outputs whose maximum is this element.
template <Real T, class Tap>
struct GradientOfMaxima {
  PoolingCall call;
  const T* dy;
  const Tap* record;
  T* dx;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    A sum = 0;
    for_each_output_reading(call, plane_element(call, i, &SpatialAxis::input),
                            [&](std::size_t tap, std::size_t out, const auto&) {
                              if (record[out] == tap) sum += static_cast<A>(dy[out]);
                            });
    dx[i] = static_cast<T>(sum);
  }
};

/// The divisor of the sum over a window.
struct WindowDivisor {
  PoolingCall call;
  PoolingCall::Divisor divisor;

  constexpr std::size_t operator()(const std::array<std::size_t, 3>& output) const {
    if (divisor == PoolingCall::Divisor::taps) return call.taps();
    std::size_t elements = 1;
    for (std::size_t axis = 0; axis < 3; ++axis)
      elements *= taps_on_input(call.space[axis], output[axis]);
    return elements == 0 ? 1 : elements;
  }

 private:
  static constexpr std::size_t taps_on_input(const SpatialAxis& axis, std::size_t output) {
    std::size_t taps = 0;
    for (std::size_t k = 0; k < axis.kernel; ++k) taps += element_at(axis, output, k) < axis.input;
    return taps;
  }
};

/// The mean of one window.
template <Real T>
struct MeanOfWindow {
  WindowDivisor divisor;
  const T* x;
  T* y;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    const PlaneElement output = plane_element(divisor.call, i, &SpatialAxis::output);
    A sum = 0;
    for_each_element_read(divisor.call, output,
                          [&](std::size_t, std::size_t in) { sum += static_cast<A>(x[in]); });
    y[i] = static_cast<T>(sum / static_cast<A>(divisor(output.place)));
  }
};

/// The gradient of one element: its share of dy of each window that contains it.
template <Real T>
struct GradientOfMeans {
  WindowDivisor divisor;
  const T* dy;
  T* dx;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    A sum = 0;
    for_each_output_reading(divisor.call, plane_element(divisor.call, i, &SpatialAxis::input),
                            [&](std::size_t, std::size_t out, const auto& place) {
                              sum += static_cast<A>(dy[out]) / static_cast<A>(divisor(place));
                            });
    dx[i] = static_cast<T>(sum);
  }
};

/// See PoolingBackend. The record is the number of the maximum's tap, as in MaxPoolingLoops: one
/// byte for each output, four if a window has more than 254 taps.
template <Real T, class B>
class MaxPoolingElements {
 public:
  ///@{
  /// As `PoolingBackend` says.
  explicit MaxPoolingElements(B& backend) : backend_(&backend) {}

  std::size_t record_bytes(const PoolingCall& call) const {
    return call.planes() * call.output_plane() * (fits_byte(call) ? 1 : sizeof(std::uint32_t));
  }

  void forward(const PoolingCall& call, const T* x, T* y, void* record) {
    const std::size_t outputs = call.planes() * call.output_plane();
    if (fits_byte(call)) {
      backend_->for_each(outputs, MaximumOfWindow<T, std::uint8_t>{
                                      call, x, y, static_cast<std::uint8_t*>(record)});
    } else {
      backend_->for_each(outputs, MaximumOfWindow<T, std::uint32_t>{
                                      call, x, y, static_cast<std::uint32_t*>(record)});
    }
  }

  void backward(const PoolingCall& call, const T* dy, const void* record, T* dx) {
    const std::size_t inputs = call.planes() * call.input_plane();
    if (fits_byte(call)) {
      backend_->for_each(inputs, GradientOfMaxima<T, std::uint8_t>{
                                     call, dy, static_cast<const std::uint8_t*>(record), dx});
    } else {
      backend_->for_each(inputs, GradientOfMaxima<T, std::uint32_t>{
                                     call, dy, static_cast<const std::uint32_t*>(record), dx});
    }
  }
  ///@}

 private:
  static bool fits_byte(const PoolingCall& call) { return call.taps() < 255; }

  B* backend_;
};

/// See PoolingBackend.
template <Real T, class B>
class AveragePoolingElements {
 public:
  ///@{
  /// As `PoolingBackend` says.
  explicit AveragePoolingElements(B& backend) : backend_(&backend) {}

  void forward(const PoolingCall& call, PoolingCall::Divisor divisor, const T* x, T* y) {
    backend_->for_each(call.planes() * call.output_plane(), MeanOfWindow<T>{{call, divisor}, x, y});
  }
  void backward(const PoolingCall& call, PoolingCall::Divisor divisor, const T* dy, T* dx) {
    backend_->for_each(call.planes() * call.input_plane(),
                       GradientOfMeans<T>{{call, divisor}, dy, dx});
  }
  ///@}

 private:
  B* backend_;
};

}  // namespace shardwise::detail
