#pragma once
// Numbers to multiply: what they are does not matter, as long as they are none that slow down.

#include <cstddef>
#include <random>
#include <vector>

namespace bench {

/// n numbers in [-1, 1), the same for the same seed.
inline std::vector<float> random_values(std::size_t n, unsigned seed = 7) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> in(-1, 1);
  std::vector<float> values(n);
  for (float& value : values) value = in(generator);
  return values;
}

}  // namespace bench
