#pragma once
// Pooling as loops over the taps of a window, for one row of outputs at a time.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/backend/detail/taps.hpp"
#include "shardwise/backend/pooling.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/independent_loop.hpp"

namespace shardwise::detail {

/// Calls f with the stride: as a constant if it is 1 or 2, so that compilers vectorise.
template <class F>
void with_stride(std::size_t stride, F f) {
  if (stride == 1) return f(std::integral_constant<std::size_t, 1>{});
  if (stride == 2) return f(std::integral_constant<std::size_t, 2>{});
  f(stride);
}

/// See PoolingBackend. The record is the number of the maximum's tap: one byte for each output,
/// four if a window has more than 254 taps. Without it, backward would need the whole input, which
/// is several times as large. Allocates only for larger planes than before.
template <Real T>
class MaxPoolingLoops {
 public:
  template <class Backend>
  explicit MaxPoolingLoops(Backend&) {}

  std::size_t record_bytes(const PoolingCall& call) const {
    return call.planes() * call.output_plane() * (fits_byte(call) ? 1 : sizeof(std::uint32_t));
  }

  void forward(const PoolingCall& call, const T* x, T* y, void* record) {
    for (std::size_t plane = 0; plane < call.planes(); ++plane) {
      find_maxima(call, x + plane * call.input_plane());
      T* const out = y + plane * call.output_plane();
      for (std::size_t k = 0; k < largest_.size(); ++k) out[k] = static_cast<T>(largest_[k]);
      if (record == nullptr) continue;
      with_taps(call, record, [&](auto* taps) {
        using Tap = std::remove_reference_t<decltype(*taps)>;
        for (std::size_t k = 0; k < taps_.size(); ++k)
          taps[plane * call.output_plane() + k] = static_cast<Tap>(taps_[k]);
      });
    }
  }

  void backward(const PoolingCall& call, const T* dy, const void* record, T* dx) {
    find_offsets(call);
    with_taps(call, record, [&](const auto* taps) {
      for (std::size_t plane = 0; plane < call.planes(); ++plane) {
        sums_.assign(call.input_plane(), A(0));
        add_to_maxima(call, taps + plane * call.output_plane(), dy + plane * call.output_plane());
        T* const result = dx + plane * call.input_plane();
        for (std::size_t k = 0; k < sums_.size(); ++k) result[k] = static_cast<T>(sums_[k]);
      }
    });
  }

 private:
  using A = accumulate_t<T>;

  static constexpr std::uint32_t no_tap = std::numeric_limits<std::uint32_t>::max();

  /// One value of a byte is reserved for `no_tap`.
  static bool fits_byte(const PoolingCall& call) { return call.taps() < 255; }

  template <class Memory, class F>
  static void with_taps(const PoolingCall& call, Memory* record, F f) {
    constexpr bool reads = std::is_const_v<Memory>;
    if (fits_byte(call)) {
      f(static_cast<std::conditional_t<reads, const std::uint8_t, std::uint8_t>*>(record));
    } else {
      f(static_cast<std::conditional_t<reads, const std::uint32_t, std::uint32_t>*>(record));
    }
  }

  void find_maxima(const PoolingCall& call, const T* x) {
    largest_.assign(call.output_plane(), -std::numeric_limits<A>::infinity());
    taps_.assign(call.output_plane(), no_tap);
    for_each_tap_row(
        call, [&](std::size_t tap, std::size_t in, std::size_t out, std::size_t length) {
          const auto this_tap = static_cast<std::uint32_t>(tap);
          A* const largest = largest_.data() + out;
          std::uint32_t* const taps = taps_.data() + out;
          const T* const row = x + in;
          with_stride(call.space[2].stride, [=](auto stride) {
            independent_loop(length, [=](std::size_t k) {
              const A value = static_cast<A>(row[k * stride]);
              // All without a branch, so that the loop vectorises.
              const bool takes = (value > largest[k]) | (value != value) | (taps[k] == no_tap);
              largest[k] = select(takes, value, largest[k]);
              taps[k] = select(takes, this_tap, taps[k]);
            });
          });
        });
  }

  /// The distance of each tap of a window from the first one, in elements of a plane.
  void find_offsets(const PoolingCall& call) {
    const auto& [depth, height, width] = call.space;
    offsets_.clear();
    for (std::size_t a = 0; a < depth.kernel; ++a)
      for (std::size_t b = 0; b < height.kernel; ++b)
        for (std::size_t c = 0; c < width.kernel; ++c)
          offsets_.push_back((a * depth.dilation * height.input + b * height.dilation) *
                                 width.input +
                             c * width.dilation);
  }

  /// Adds each element of dy to the sum at its window's maximum. A window that begins on padding
  /// begins before the plane: its unsigned offset wraps around, and wraps back.
  template <class Tap>
  void add_to_maxima(const PoolingCall& call, const Tap* taps, const T* dy) {
    const auto& [depth, height, width] = call.space;
    std::size_t k = 0;
    for (std::size_t d = 0; d < depth.output; ++d) {
      for (std::size_t h = 0; h < height.output; ++h) {
        const std::size_t slice = d * depth.stride - depth.before;
        const std::size_t row = slice * height.input + h * height.stride - height.before;
        std::size_t window = row * width.input - width.before;
        for (std::size_t w = 0; w < width.output; ++w, ++k, window += width.stride) {
          if (taps[k] < offsets_.size()) sums_[window + offsets_[taps[k]]] += static_cast<A>(dy[k]);
        }
      }
    }
  }

  std::vector<A> largest_;            // of the windows of one plane
  std::vector<std::uint32_t> taps_;   // of those maxima
  std::vector<std::size_t> offsets_;  // of the taps
  std::vector<A> sums_;               // a plane of a gradient before rounding
};

/// See PoolingBackend. Sums run tap by tap. Allocates only for larger planes than before.
template <Real T>
class AveragePoolingLoops {
 public:
  template <class Backend>
  explicit AveragePoolingLoops(Backend&) {}

  void forward(const PoolingCall& call, PoolingCall::Divisor divisor, const T* x, T* y) {
    count(call, divisor);
    for (std::size_t plane = 0; plane < call.planes(); ++plane) {
      const T* const image = x + plane * call.input_plane();
      sums_.assign(call.output_plane(), A(0));
      for_each_tap_row(call, [&](std::size_t, std::size_t in, std::size_t out, std::size_t length) {
        const T* const from = image + in;
        A* const to = sums_.data() + out;
        with_stride(call.space[2].stride, [=](auto stride) {
          independent_loop(length,
                           [=](std::size_t k) { to[k] += static_cast<A>(from[k * stride]); });
        });
      });
      T* const result = y + plane * call.output_plane();
      for (std::size_t k = 0; k < sums_.size(); ++k)
        result[k] = static_cast<T>(sums_[k] / divisors_[k]);
    }
  }

  void backward(const PoolingCall& call, PoolingCall::Divisor divisor, const T* dy, T* dx) {
    count(call, divisor);
    for (std::size_t plane = 0; plane < call.planes(); ++plane) {
      const T* const gradient = dy + plane * call.output_plane();
      shares_.resize(call.output_plane());
      for (std::size_t k = 0; k < shares_.size(); ++k)
        shares_[k] = static_cast<A>(gradient[k]) / divisors_[k];
      sums_.assign(call.input_plane(), A(0));
      for_each_tap_row(call, [&](std::size_t, std::size_t in, std::size_t out, std::size_t length) {
        const A* const from = shares_.data() + out;
        A* const to = sums_.data() + in;
        with_stride(call.space[2].stride, [=](auto stride) {
          independent_loop(length, [=](std::size_t k) { to[k * stride] += from[k]; });
        });
      });
      T* const result = dx + plane * call.input_plane();
      for (std::size_t k = 0; k < sums_.size(); ++k) result[k] = static_cast<T>(sums_[k]);
    }
  }

 private:
  using A = accumulate_t<T>;

  /// The divisor of each output of a plane.
  void count(const PoolingCall& call, PoolingCall::Divisor divisor) {
    if (divisor == PoolingCall::Divisor::taps) {
      divisors_.assign(call.output_plane(), static_cast<A>(call.taps()));
      return;
    }
    divisors_.assign(call.output_plane(), A(0));
    for_each_tap_row(call, [&](std::size_t, std::size_t, std::size_t out, std::size_t length) {
      for (std::size_t k = 0; k < length; ++k) divisors_[out + k] += A(1);
    });
    for (A& elements : divisors_) elements = elements == A(0) ? A(1) : elements;
  }

  std::vector<A> divisors_;
  std::vector<A> shares_;  // a plane of a gradient, after division
  std::vector<A> sums_;    // a plane of a result before rounding
};

}  // namespace shardwise::detail
