#pragma once
// The inputs of the reference values, made by integer formulas so that they need not be stored.
// make_witness.py has the same formulas; all results are exact in float and in double.

#include <cstdint>

namespace witness {

/// Element `i` of the made-up tensor with number `tensor`: a multiple of 1/1024 in (-1, 1).
/// Scattered like random numbers, since i is squared modulo a prime.
constexpr double made(std::int64_t tensor, std::int64_t i) {
  const std::int64_t r = i % 2003;
  return static_cast<double>((r * r * tensor + r * 7919) % 2003 - 1001) / 1024.0;
}

/// The class of row `row`, below `classes`.
constexpr std::int32_t made_label(std::int64_t row, std::int64_t classes) {
  return static_cast<std::int32_t>((row * 7 + 3) % classes);
}

/// Which element of a tensor of `size` elements the `k`-th committed sample is.
constexpr std::int64_t sample_index(std::int64_t k, std::int64_t size) {
  return (k * 1237 + 11) % size;
}

static_assert(made(1, 0) == -1001.0 / 1024.0);
static_assert(made(3, 2005) == (3 * 4 + 2 * 7919) % 2003 / 1024.0 - 1001.0 / 1024.0);

}  // namespace witness
