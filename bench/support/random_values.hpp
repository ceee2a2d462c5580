#pragma once
// Numbers to multiply: what they are does not matter, as long as they are none that slow down.

#include <cstddef>
#include <random>
#include <vector>

namespace bench {

/// n numbers in [-1, 1), the same for the same seed up to T's rounding.
template <class T = float>
std::vector<T> random_values(std::size_t n, unsigned seed = 7) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> in(-1, 1);
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(in(generator));
  return values;
}

}  // namespace bench
