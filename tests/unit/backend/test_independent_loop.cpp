// The loop of element-wise layers, which takes the widest vectors that keep the bits.

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "shardwise/backend/activation.hpp"
#include "shardwise/core/independent_loop.hpp"

using namespace shardwise;

namespace {

/// Numbers of many sizes, and what is no number.
std::vector<float> inputs() {
  std::vector<float> x;
  for (int i = -2000; i < 2000; ++i) x.push_back(static_cast<float>(i * std::exp(i / 200)));
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float special : {0.0F, -0.0F, infinity, -infinity, std::nanf(""), 1e-40F})
    x.push_back(special);
  return x;
}

/// Whether the bits are equal. A NaN has no bits that an operation promises.
bool same_number(float a, float b) {
  return std::isnan(a) ? std::isnan(b)
                       : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace

TEST_CASE("a loop has the bits of a plain loop, whatever vectors the processor has") {
  const std::vector<float> x = inputs();
  const std::size_t n = x.size();
  for (const Activation activation : {Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                      Activation::silu, Activation::tanh}) {
    CAPTURE(static_cast<int>(activation));
    std::vector<float> plain(n), taken(n);
    visit(activation, [&](auto f) {
      const auto into = [&x, f](std::vector<float>& y) {
        return [f, from = x.data(), to = y.data()](std::size_t i) { to[i] = f.value(from[i]); };
      };
      detail::plain_loop(n, into(plain));
      detail::independent_loop(n, into(taken));
    });
    std::size_t different = 0;
    for (std::size_t i = 0; i < n; ++i) different += !same_number(plain[i], taken[i]);
    CHECK(different == 0);
  }
}
