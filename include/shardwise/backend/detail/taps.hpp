#pragma once
// The elements under the taps of a convolution or pooling.

#include <algorithm>
#include <cstddef>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail {

/// The outputs for which tap `tap` is on an element, and not on padding.
constexpr Interval outputs_on_input(const SpatialAxis& axis, std::size_t tap) {
  // The first o with o stride >= bound.
  const auto first_at = [&](std::size_t bound) {
    return std::min((bound + axis.stride - 1) / axis.stride, axis.output);
  };
  const std::size_t at = tap * axis.dilation;
  const std::size_t begin = at < axis.before ? first_at(axis.before - at) : 0;
  const std::size_t beyond = axis.before + axis.input;
  const std::size_t end = at < beyond ? first_at(beyond - at) : 0;
  return {begin, std::max(begin, end) - begin};
}

/// The element under a tap of an output; outside the input if the tap is on padding.
constexpr std::size_t element_at(const SpatialAxis& axis, std::size_t output, std::size_t tap) {
  return output * axis.stride + tap * axis.dilation - axis.before;
}

/// Calls f(tap, in, out, length) for every tap and every row of outputs that use it: the outputs
/// out, out + 1, ... out + length - 1 of a plane read through it the elements in, in + stride, ...
/// of a plane, with the stride of the innermost axis. Skips padding.
template <class F>
void for_each_tap_row(const ConvolutionCall& call, F&& f) {
  const auto& [depth, height, width] = call.space;
  std::size_t tap = 0;
  for (std::size_t a = 0; a < depth.kernel; ++a) {
    const Interval slices = outputs_on_input(depth, a);
    for (std::size_t b = 0; b < height.kernel; ++b) {
      const Interval rows = outputs_on_input(height, b);
      for (std::size_t c = 0; c < width.kernel; ++c, ++tap) {
        const Interval run = outputs_on_input(width, c);
        if (run.size == 0) continue;
        for (std::size_t d = slices.offset; d < slices.end(); ++d) {
          for (std::size_t h = rows.offset; h < rows.end(); ++h) {
            const std::size_t in_row =
                element_at(depth, d, a) * height.input + element_at(height, h, b);
            const std::size_t out_row = d * height.output + h;
            f(tap, in_row * width.input + element_at(width, run.offset, c),
              out_row * width.output + run.offset, run.size);
          }
        }
      }
    }
  }
}

}  // namespace shardwise::detail
