#pragma once
// The part of a product's epilogue that the library has not applied.

#include <cstddef>

#include "shardwise/backend/activation.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::cuda {

/// y[i] = F::value(y[i] + bias of its channel); `bias` may be null. Each channel has `plane`
/// adjacent elements.
template <Real T, class F>
struct BiasAndActivation {
  T* y;
  const T* bias;
  std::size_t channels;
  std::size_t plane;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    A sum = static_cast<A>(y[i]);
    // The division is the most expensive operation here.
    if (bias != nullptr) sum += static_cast<A>(bias[(plane == 1 ? i : i / plane) % channels]);
    y[i] = static_cast<T>(F::value(sum));
  }
};

/// y[i] = the bias of its column.
template <Real T>
struct BiasOfColumn {
  const T* bias;
  std::size_t columns;
  T* y;

  constexpr void operator()(std::size_t i) const { y[i] = bias[i % columns]; }
};

/// Adds the bias, which may be null, to the n elements of y, and applies the activation: in one
/// pass, or in none without bias and activation.
template <Real T, class Backend>
void finish(Backend& backend, T* y, std::size_t n, const T* bias, std::size_t channels,
            std::size_t plane, Activation activation) {
  if (bias == nullptr && activation == Activation::none) return;
  visit(activation, [&](auto f) {
    backend.for_each(n, BiasAndActivation<T, decltype(f)>{y, bias, channels, plane});
  });
}

}  // namespace shardwise::detail::cuda
