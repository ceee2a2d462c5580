#pragma once
// One forward of a linear layer, as the products of shardwise take it.

#include <array>
#include <cstddef>
#include <cstring>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/vector_dot.hpp"
#include "shardwise/core/independent_loop.hpp"

namespace shardwise::detail::onednn {

/// values[i] = activation(values[i]), for a processor with vectors of 16 floats.
[[gnu::noinline]] inline void activate(Activation activation, float* values, std::size_t n) {
  visit(activation, [=](auto f) {
    in_vectors_of_16(
        [=] { plain_loop(n, [=](std::size_t i) { values[i] = f.value(values[i]); }); });
  });
}

/// y[rows, out] = activation(x[rows, in] wᵀ + bias[out]) with w [out, in] as it lies. `bias` may be
/// null; extents are not zero.
template <class T>
struct Forward {
  std::size_t rows, in, out;
  const T* x;
  const T* w;
  const T* bias;
  Activation activation;
  T* y;

  /// Writes `count` neighbouring outputs of a row from `o` on, at most 16, whose sums are the first
  /// of these 16. For a processor with vectors of 16 floats.
  [[gnu::always_inline]] void put(std::size_t row, std::size_t o, std::size_t count,
                                  const float* sums) const {
    constexpr std::size_t width = 16;
    Floats16 values;
    load(sums, values);
    if (bias != nullptr) {
      std::array<T, width> line{};
      std::memcpy(static_cast<void*>(line.data()), bias + o, count * sizeof(T));
      Floats16 added;
      load(line.data(), added);
      values += added;
    }
    std::array<float, width> outputs;
    std::memcpy(outputs.data(), &values, sizeof values);
    if (activation != Activation::none) activate(activation, outputs.data(), width);
    std::array<T, width> line;
    for (std::size_t i = 0; i < width; ++i) line[i] = static_cast<T>(outputs[i]);
    std::memcpy(static_cast<void*>(y + row * out + o), line.data(), count * sizeof(T));
  }
};

}  // namespace shardwise::detail::onednn
