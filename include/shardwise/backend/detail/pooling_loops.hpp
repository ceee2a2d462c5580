#pragma once
// Pooling as readable loops: what the kernels of other backends are checked against.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "shardwise/backend/detail/taps.hpp"
#include "shardwise/backend/pooling.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail {

/// See MaxPoolingKernel. The record is the number of the tap that the maximum was read through: one
/// byte for each output, four if a window has more than 254 taps. To find the maxima again backward
/// would need the whole input, of which there is a multiple. Allocates for larger planes than it
/// has met only.
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
    with_taps(call, record, [&](const auto* taps) {
      for (std::size_t plane = 0; plane < call.planes(); ++plane) {
        const std::size_t first = plane * call.output_plane();
        sums_.assign(call.input_plane(), A(0));
        for_each_tap_row(
            call, [&](std::size_t tap, std::size_t in, std::size_t out, std::size_t length) {
              for (std::size_t k = 0; k < length; ++k) {
                if (taps[first + out + k] == tap)
                  sums_[in + k * call.space[2].stride] += static_cast<A>(dy[first + out + k]);
              }
            });
        T* const result = dx + plane * call.input_plane();
        for (std::size_t k = 0; k < sums_.size(); ++k) result[k] = static_cast<T>(sums_[k]);
      }
    });
  }

 private:
  using A = accumulate_t<T>;

  static constexpr std::uint32_t no_tap = std::numeric_limits<std::uint32_t>::max();

  /// One value of a byte is left for `no_tap`.
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
    for_each_tap_row(call,
                     [&](std::size_t tap, std::size_t in, std::size_t out, std::size_t length) {
                       for (std::size_t k = 0; k < length; ++k) {
                         const A value = static_cast<A>(x[in + k * call.space[2].stride]);
                         const bool is_nan = value != value;
                         if (value > largest_[out + k] || is_nan || taps_[out + k] == no_tap) {
                           largest_[out + k] = value;
                           taps_[out + k] = static_cast<std::uint32_t>(tap);
                         }
                       }
                     });
  }

  std::vector<A> largest_;           // of the windows of one plane
  std::vector<std::uint32_t> taps_;  // through which those were read
  std::vector<A> sums_;              // a plane of a gradient before it is rounded
};

/// See AveragePoolingKernel. Sums run tap by tap. Allocates for larger planes than it has met only.
template <Real T>
class AveragePoolingLoops {
 public:
  template <class Backend>
  explicit AveragePoolingLoops(Backend&) {}

  void forward(const PoolingCall& call, Divisor divisor, const T* x, T* y) {
    count(call, divisor);
    for (std::size_t plane = 0; plane < call.planes(); ++plane) {
      const T* const image = x + plane * call.input_plane();
      sums_.assign(call.output_plane(), A(0));
      for_each_tap_row(call, [&](std::size_t, std::size_t in, std::size_t out, std::size_t length) {
        for (std::size_t k = 0; k < length; ++k)
          sums_[out + k] += static_cast<A>(image[in + k * call.space[2].stride]);
      });
      T* const result = y + plane * call.output_plane();
      for (std::size_t k = 0; k < sums_.size(); ++k)
        result[k] = static_cast<T>(sums_[k] / divisors_[k]);
    }
  }

  void backward(const PoolingCall& call, Divisor divisor, const T* dy, T* dx) {
    count(call, divisor);
    for (std::size_t plane = 0; plane < call.planes(); ++plane) {
      const T* const gradient = dy + plane * call.output_plane();
      sums_.assign(call.input_plane(), A(0));
      for_each_tap_row(call, [&](std::size_t, std::size_t in, std::size_t out, std::size_t length) {
        for (std::size_t k = 0; k < length; ++k)
          sums_[in + k * call.space[2].stride] +=
              static_cast<A>(gradient[out + k]) / divisors_[out + k];
      });
      T* const result = dx + plane * call.input_plane();
      for (std::size_t k = 0; k < sums_.size(); ++k) result[k] = static_cast<T>(sums_[k]);
    }
  }

 private:
  using A = accumulate_t<T>;

  /// The divisor of each output of a plane.
  void count(const PoolingCall& call, Divisor divisor) {
    if (divisor == Divisor::taps) {
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
  std::vector<A> sums_;  // a plane of a result before it is rounded
};

}  // namespace shardwise::detail
