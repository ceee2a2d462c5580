#pragma once
// What random convolutions and poolings of tests share.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "shardwise/backend/convolution.hpp"
#include "support/seed.hpp"

namespace backend_test {

using shardwise::SpatialAxis;

/// "; 9 -> 4 by kernel 3, ..." of each axis.
inline std::string to_string(const std::array<SpatialAxis, 3>& space) {
  std::string text;
  for (const SpatialAxis& a : space) {
    text += "; " + std::to_string(a.input) + " -> " + std::to_string(a.output) + " by kernel " +
            std::to_string(a.kernel) + ", stride " + std::to_string(a.stride) + ", dilation " +
            std::to_string(a.dilation) + ", before " + std::to_string(a.before);
  }
  return text;
}

/// 0 to `most`.
inline std::size_t up_to(std::mt19937& random, std::size_t most) { return random() % (most + 1); }
inline bool rarely(std::mt19937& random) { return random() % 16 == 0; }

/// Whole numbers of -2 to 2.
inline std::vector<double> integers(std::mt19937& random, std::size_t size) {
  std::vector<double> numbers(size);
  for (double& v : numbers) v = static_cast<double>(random() % 5) - 2;
  return numbers;
}

/// A window of at most `most_taps` taps, strides and dilations of 1 to 3, over at most
/// `most_inputs` elements with padding of up to `most_padding(reach of the window)` at each end;
/// now and then something is empty.
template <class MostPadding>
SpatialAxis random_axis(std::mt19937& random, std::size_t most_taps, std::size_t most_inputs,
                        MostPadding most_padding) {
  SpatialAxis a;
  a.kernel = 1 + up_to(random, most_taps - 1);
  a.stride = 1 + up_to(random, 2);
  a.dilation = 1 + up_to(random, 2);
  a.input = rarely(random) ? 0 : 1 + up_to(random, most_inputs - 1);
  const std::size_t reach = (a.kernel - 1) * a.dilation + 1, most = most_padding(reach);
  a.before = up_to(random, most);
  const std::size_t padded = a.before + a.input + up_to(random, most);
  a.output = padded < reach ? 0 : (padded - reach) / a.stride + 1;
  if (rarely(random)) a.output = up_to(random, a.output);  // as on a rank with a part of them
  return a;
}

/// `count` problems of draw(random) are right, by is_right(problem, random).
template <class Draw, class IsRight>
void check_random(const char* what, int count, Draw draw, IsRight is_right) {
  const unsigned first = testing::seed();
  MESSAGE(count << " random " << std::string(what) << " from SHARDWISE_TEST_SEED=" << first);
  std::mt19937 random(first);
  for (int k = 0; k < count; ++k) {
    const auto problem = draw(random);
    INFO("seed " << first << ", number " << k << ": " << to_string(problem));
    REQUIRE(is_right(problem, random));
  }
}

}  // namespace backend_test
