#pragma once
// Convolutions as readable loops, which the kernels of other backends are compared with.

#include <cstddef>
#include <vector>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/backend/detail/taps.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail {

/// See ConvolutionBackend for shapes. The loops work on whole rows: a plane of a result is summed
/// by input channel and tap; the gradient of a tap is summed for each position in a row, and then
/// over the positions. The order depends only on the sizes. Packs nothing, so it ignores the
/// version of a weight; allocates only if sizes are larger than before.
template <Real T>
class ReferenceConvolution {
 public:
  template <class Backend>
  ReferenceConvolution(Backend&, const ConvolutionChannels& channels) : channels_(channels) {}

  void forward(const ConvolutionCall& call, const T* x, Weight<T> weight, const T* bias,
               Activation activation, T* y) {
    const std::size_t stride = call.space[2].stride;
    visit(activation, [&](auto f) {
      for_each_output([&](std::size_t o, std::size_t first_input) {
        for (std::size_t n = 0; n < call.images; ++n) {
          clear(call.output_plane());
          for (std::size_t i = 0; i < channels_.in; ++i) {
            const T* plane = x + (n * inputs() + first_input + i) * call.input_plane();
            const T* w = weight.data + (o * channels_.in + i) * call.taps();
            for_each_tap_row(
                call, [&](std::size_t tap, std::size_t in, std::size_t out, std::size_t length) {
                  const A factor = static_cast<A>(w[tap]);
                  for (std::size_t k = 0; k < length; ++k)
                    sums_[out + k] += factor * static_cast<A>(plane[in + k * stride]);
                });
          }
          const A shift = bias == nullptr ? A(0) : static_cast<A>(bias[o]);
          T* result = y + (n * outputs() + o) * call.output_plane();
          for (std::size_t k = 0; k < sums_.size(); ++k)
            result[k] = static_cast<T>(f.value(sums_[k] + shift));
        }
      });
    });
  }

  void backward(const ConvolutionCall& call, const T* x, const T* dy, Weight<T> weight,
                Write write_mode, T* dw, T* db, T* dx) {
    if (dw != nullptr) backward_weight(call, x, dy, write_mode, dw);
    if (db != nullptr) backward_bias(call, dy, write_mode, db);
    if (dx != nullptr) backward_input(call, dy, weight, dx);
  }

 private:
  using A = accumulate_t<T>;

  void backward_input(const ConvolutionCall& call, const T* dy, Weight<T> weight, T* dx) {
    const std::size_t stride = call.space[2].stride;
    for (std::size_t n = 0; n < call.images; ++n) {
      for_each_input([&](std::size_t input, std::size_t i, std::size_t first_output) {
        clear(call.input_plane());
        for (std::size_t o = first_output; o < first_output + channels_.out; ++o) {
          const T* plane = dy + (n * outputs() + o) * call.output_plane();
          const T* w = weight.data + (o * channels_.in + i) * call.taps();
          for_each_tap_row(
              call, [&](std::size_t tap, std::size_t in, std::size_t out, std::size_t length) {
                const A factor = static_cast<A>(w[tap]);
                for (std::size_t k = 0; k < length; ++k)
                  sums_[in + k * stride] += factor * static_cast<A>(plane[out + k]);
              });
        }
        T* result = dx + (n * inputs() + input) * call.input_plane();
        for (std::size_t k = 0; k < sums_.size(); ++k) result[k] = static_cast<T>(sums_[k]);
      });
    }
  }

  void backward_weight(const ConvolutionCall& call, const T* x, const T* dy, Write write_mode,
                       T* dw) {
    const std::size_t stride = call.space[2].stride;
    const std::size_t width = call.space[2].output;
    for_each_output([&](std::size_t o, std::size_t first_input) {
      for (std::size_t i = 0; i < channels_.in; ++i) {
        clear(call.taps() * width);  // a sum for each tap and each position in a row of outputs
        for (std::size_t n = 0; n < call.images; ++n) {
          const T* input = x + (n * inputs() + first_input + i) * call.input_plane();
          const T* output = dy + (n * outputs() + o) * call.output_plane();
          for_each_tap_row(call, [&](std::size_t tap, std::size_t in, std::size_t out,
                                     std::size_t length) {
            A* sums = sums_.data() + tap * width;
            for (std::size_t k = 0; k < length; ++k)
              sums[k] += static_cast<A>(output[out + k]) * static_cast<A>(input[in + k * stride]);
          });
        }
        for (std::size_t tap = 0; tap < call.taps(); ++tap) {
          const A* row = sums_.data() + tap * width;
          store(dw[(o * channels_.in + i) * call.taps() + tap], sum_of(row, width), write_mode);
        }
      }
    });
  }

  void backward_bias(const ConvolutionCall& call, const T* dy, Write write_mode, T* db) const {
    for (std::size_t o = 0; o < outputs(); ++o)
      store(db[o], sum_of_channel(call, dy, o), write_mode);
  }

  std::size_t inputs() const { return channels_.groups * channels_.in; }
  std::size_t outputs() const { return channels_.groups * channels_.out; }

  /// Calls f(output channel, first input channel of its group).
  template <class F>
  void for_each_output(F f) const {
    for (std::size_t o = 0; o < outputs(); ++o) f(o, o / channels_.out * channels_.in);
  }

  /// Calls f(input channel, its number in its group, first output channel of the group).
  template <class F>
  void for_each_input(F f) const {
    for (std::size_t i = 0; i < inputs(); ++i)
      f(i, i % channels_.in, i / channels_.in * channels_.out);
  }

  template <class Number>
  static A sum_of(const Number* numbers, std::size_t n) {
    return lane_sum<A>(n, [=](std::size_t k) { return static_cast<A>(numbers[k]); });
  }

  A sum_of_channel(const ConvolutionCall& call, const T* dy, std::size_t channel) const {
    const std::size_t plane = call.output_plane();
    A sum = 0;
    for (std::size_t n = 0; n < call.images; ++n)
      sum += sum_of(dy + (n * outputs() + channel) * plane, plane);
    return sum;
  }

  void clear(std::size_t size) { sums_.assign(size, A(0)); }

  ConvolutionChannels channels_;
  std::vector<A> sums_;  // of a plane, or of a kernel, before rounding
};

}  // namespace shardwise::detail
