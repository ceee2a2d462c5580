#pragma once
// Whether a matrix product is right, at places drawn at random: products of the sizes that are
// timed are too many for an oracle. Each place is summed by a plain loop in double, on the device
// where the matrices lie.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "gpu/uniform.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace bench {

/// Where sample s lies among `size` elements: the first and the last one, then others.
constexpr std::size_t sampled_place(std::size_t s, std::size_t size) {
  if (s < 2) return s * (size - 1);
  const std::uint64_t bits = (std::uint64_t{mixed(static_cast<std::uint32_t>(2 * s))} << 32U) |
                             mixed(static_cast<std::uint32_t>(2 * s + 1));
  return static_cast<std::size_t>(bits % size);
}

/// Elements of a matrix: (r, k) lies at r row + k step.
template <class T>
struct Strided {
  const T* data = nullptr;  ///< null: all ones
  std::size_t row = 0;
  std::size_t step = 0;

  constexpr std::size_t at(std::size_t r, std::size_t k) const { return r * row + k * step; }
};

/// result[r, c] = f(Σ_k a[r, k] b[c, k] + bias[c]), where f is ReLU or nothing. Summands count only
/// where `open`, which lies as `a` does, is above zero: so ReLU's gradient goes on.
template <class T>
struct SampledProduct {
  std::size_t rows, columns, terms;
  Strided<T> a;
  Strided<T> b;
  const T* open = nullptr;  ///< null: all count
  const T* bias = nullptr;  ///< null: none
  bool relu = false;
  const T* result = nullptr;  ///< [rows, columns]

  constexpr double exact(std::size_t r, std::size_t c) const {
    double sum = bias == nullptr ? 0 : static_cast<double>(static_cast<float>(bias[c]));
    for (std::size_t k = 0; k < terms; ++k) {
      const std::size_t at = a.at(r, k);
      if (open != nullptr && !(static_cast<float>(open[at]) > 0)) continue;
      const double factor =
          b.data == nullptr ? 1 : static_cast<double>(static_cast<float>(b.data[b.at(c, k)]));
      sum += static_cast<double>(static_cast<float>(a.data[at])) * factor;
    }
    return relu && sum < 0 ? 0 : sum;
  }
};

/// One place of a product: what is there and what should be.
struct Sample {
  std::uint64_t place;
  double exact, got;
};

template <class T>
struct TakeSample {
  SampledProduct<T> product;
  Sample* samples;
  constexpr void operator()(std::size_t s) const {
    const std::size_t place = sampled_place(s, product.rows * product.columns);
    samples[s] = {place, product.exact(place / product.columns, place % product.columns),
                  static_cast<double>(static_cast<float>(product.result[place]))};
  }
};

/// How far a sum of `terms` products of numbers in [-1, 1) may be from exact. Such a sum is about
/// sqrt(terms) / 3 large. `factor_epsilon` is what factors are rounded to before they are
/// multiplied.
template <class T>
double allowed(std::size_t terms, double exact, double factor_epsilon = 0) {
  using Sum = shardwise::accumulate_t<T>;
  const double root = std::sqrt(static_cast<double>(terms));
  const double of_sum = static_cast<double>(std::numeric_limits<Sum>::epsilon()) * root;
  const double of_result = std::is_same_v<T, Sum> ? 0 : sizeof(T) == 2 ? 0x1p-7 : 0;
  return 8 * (of_sum + factor_epsilon) * std::max(1.0, root / 3) + of_result * std::abs(exact);
}

/// NaNs, which no result has.
template <class Backend, class T>
void poison(Backend& backend, T* data, std::size_t n) {
  shardwise::detail::fill(backend, data, n,
                          static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
}

/// Places of a product, as they are where the backend's tensors lie.
template <class Backend, class T>
std::vector<Sample> samples_of(Backend& backend, const SampledProduct<T>& product) {
  constexpr std::size_t count = 256;
  shardwise::Pool pool(backend.memory());
  const shardwise::Buffer memory = pool.take(count * sizeof(Sample));
  auto* const there = static_cast<Sample*>(memory.data());
  backend.for_each(count, TakeSample<T>{product, there});
  std::vector<Sample> samples(count);
  backend.to_host(there, count, samples.data());
  return samples;
}

/// Throws std::runtime_error unless every sample is what it should be.
template <class T>
void require_right(const std::string& what, const std::vector<Sample>& samples, std::size_t terms,
                   double factor_epsilon = 0) {
  for (const auto& [place, exact, got] : samples) {
    const double apart = std::abs(got - exact);
    if (apart <= allowed<T>(terms, exact, factor_epsilon)) continue;  // a NaN is wrong
    throw std::runtime_error(what + ": element " + std::to_string(place) + " is " +
                             std::to_string(got) + ", not " + std::to_string(exact));
  }
}

}  // namespace bench
