#pragma once
// What is done behind a product that the library has not done in it.

#include <cstddef>

#include "shardwise/backend/activation.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::cuda {

/// z[i] = y[i] + bias of its channel, y[i] = F::value(z[i]); `bias` and `z` may be null. Each
/// channel has `plane` elements side by side.
template <Real T, class F>
struct BiasAndActivation {
  T* y;
  const T* bias;
  std::size_t channels;
  std::size_t plane;
  T* z;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    A sum = static_cast<A>(y[i]);
    // Dividing costs more than all else here.
    if (bias != nullptr) sum += static_cast<A>(bias[(plane == 1 ? i : i / plane) % channels]);
    if (z != nullptr) z[i] = static_cast<T>(sum);
    y[i] = static_cast<T>(F::value(sum));
  }
};

/// Adds the bias, which may be null, to the n elements of y, keeps them in z unless that is null,
/// and applies the activation: in one pass or, if nothing is asked for, in none.
template <Real T, class Backend>
void finish(Backend& backend, T* y, std::size_t n, const T* bias, std::size_t channels,
            std::size_t plane, Activation activation, T* z = nullptr) {
  if (bias == nullptr && activation == Activation::none && z == nullptr) return;
  visit(activation, [&](auto f) {
    backend.for_each(n, BiasAndActivation<T, decltype(f)>{y, bias, channels, plane, z});
  });
}

}  // namespace shardwise::detail::cuda
