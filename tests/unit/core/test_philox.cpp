// Philox against its published answers, and the promise that ranks draw the same numbers however
// the elements are cut.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/core/device_random_stream.hpp"
#include "shardwise/core/philox.hpp"

namespace sw = shardwise;

namespace {

// The lines "philox4x32 10" of tests/kat_vectors in Random123 1.14 (D. E. Shaw Research).
static_assert(sw::detail::philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
              sw::detail::PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(sw::detail::philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                                        {0xffffffff, 0xffffffff}) ==
              sw::detail::PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(sw::detail::philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                                        {0xa4093822, 0x299f31d0}) ==
              sw::detail::PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

// Every field has its own place in counter and key.
constexpr sw::Seed seed{0x0123456789abcdefULL};
static_assert(sw::RandomStream(seed, 0x00c0ffee, 0xdeadbeef, 0xa5).bits((7ULL << 34) + 21) ==
              sw::detail::philox4x32_10({5, 7, 0xdeadbeef, 0xa5c0ffee},
                                        {0x89abcdef, 0x01234567})[1]);

std::vector<std::uint32_t> first_words(const sw::RandomStream& stream) {
  std::vector<std::uint32_t> words;
  stream.for_each_bits(0, 1000, [&](std::uint64_t, std::uint32_t word) { words.push_back(word); });
  return words;
}

}  // namespace

TEST_CASE("the bulk forms give the values of the indexed forms on any range") {
  const sw::RandomStream stream(seed, 3, 4);
  for (const std::uint64_t base : {0ULL, 1ULL << 34, ~0ULL - 64})
    for (std::uint64_t begin = base; begin < base + 9; ++begin)
      for (std::uint64_t end = begin; end < begin + 14; ++end) {
        std::uint64_t words = begin, uniforms = begin, normals = begin;
        stream.for_each_bits(begin, end, [&](std::uint64_t i, std::uint32_t word) {
          CHECK(i == words++);
          CHECK(word == stream.bits(i));
        });
        stream.for_each_uniform(begin, end, [&](std::uint64_t i, float value) {
          CHECK(i == uniforms++);
          CHECK(value == stream.uniform(i));
        });
        stream.for_each_normal(begin, end, [&](std::uint64_t i, double value) {
          CHECK(i == normals++);
          CHECK(value == stream.normal(i));
        });
        CHECK(words == end);
        CHECK(uniforms == end);
        CHECK(normals == end);
      }
}

TEST_CASE("a stream whose step is in memory gives the numbers of that step") {
  std::uint32_t step = 5;
  const sw::detail::DeviceRandomStream stream(sw::RandomStream(seed, 3, 4), &step);
  for (step = 5; step < 8; ++step) {
    const sw::RandomStream right(seed, 3, step);
    CHECK(stream.bits(9) == right.bits(9));
    CHECK(stream.uniform(9) == right.uniform(9));
    std::uint64_t bits = 2, uniforms = 2, in_any_order = 2, normals = 2;
    stream.for_each_bits(2, 9, [&](std::uint64_t i, std::uint32_t word) {
      CHECK(i == bits++);
      CHECK(word == right.bits(i));
    });
    stream.for_each_uniform(2, 9, [&](std::uint64_t i, float value) {
      CHECK(i == uniforms++);
      CHECK(value == right.uniform(i));
    });
    stream.for_each_uniform_in_any_order(2, 9, [&](std::uint64_t i, float value) {
      CHECK(i == in_any_order++);
      CHECK(value == right.uniform(i));
    });
    stream.for_each_normal(2, 9, [&](std::uint64_t i, double value) {
      CHECK(i == normals++);
      CHECK(value == right.normal(i));
    });
    for (const std::uint64_t end : {bits, uniforms, in_any_order, normals}) CHECK(end == 9);
  }
}

TEST_CASE("uniforms in any order are the values of the indexed form on any range") {
  const sw::RandomStream stream(seed, 3, 4);
  std::vector<int> seen;
  for (const std::uint64_t base : {0ULL, (1ULL << 34) - 70, ~0ULL - 300})
    for (std::uint64_t begin = base; begin < base + 5; ++begin)
      for (const std::uint64_t count : {0U, 1U, 5U, 34U, 36U, 128U, 131U, 165U, 290U}) {
        seen.assign(count, 0);
        bool equal = true;
        stream.for_each_uniform_in_any_order(
            begin, begin + count, [&seen, &equal, begin, stream](std::uint64_t i, float value) {
              ++seen.at(i - begin);
              equal = equal && value == stream.uniform(i);
            });
        CHECK(equal);
        CHECK(seen == std::vector<int>(count, 1));
      }
}

TEST_CASE("ranks that draw their blocks together draw the whole") {
  const sw::RandomStream stream(seed, 1, 0);
  for (const std::uint64_t n : {0U, 1U, 3U, 7U, 10U, 608U, 1001U}) {
    std::vector<double> whole;
    stream.for_each_normal(0, n, [&](std::uint64_t, double value) { whole.push_back(value); });
    for (std::uint64_t ranks = 1; ranks <= 8; ++ranks) {
      std::vector<double> joined;
      for (std::uint64_t rank = 0; rank < ranks; ++rank)
        stream.for_each_normal(n * rank / ranks, n * (rank + 1) / ranks,
                               [&](std::uint64_t, double value) { joined.push_back(value); });
      CHECK(joined == whole);
    }
  }
}

TEST_CASE("another seed, ordinal, step or tensor gives other words") {
  const std::vector<std::vector<std::uint32_t>> streams = {
      first_words({seed, 1, 2, 3}),
      first_words({sw::Seed{seed.value + 1}, 1, 2, 3}),
      first_words({sw::Seed{seed.value + (1ULL << 32)}, 1, 2, 3}),
      first_words({seed, 2, 2, 3}),
      first_words({seed, 1, 3, 3}),
      first_words({seed, 1, 2, 4}),
      first_words({seed, 2, 1, 3}),
      first_words({seed, sw::data_ordinal, 2, 3})};
  for (std::size_t a = 0; a < streams.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      std::size_t equal = 0;
      for (std::size_t i = 0; i < streams[a].size(); ++i) equal += streams[a][i] == streams[b][i];
      CHECK(equal == 0);
    }
}

TEST_CASE("uniforms lie in [0, 1) and have the moments of their distribution") {
  const sw::RandomStream stream(seed, 0, 0);
  constexpr std::uint64_t n = 1'000'000;
  double sum = 0, squares = 0;
  float smallest = 1, largest = 0;
  stream.for_each_uniform(0, n, [&](std::uint64_t, float value) {
    sum += value;
    squares += (value - 0.5) * (value - 0.5);
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  });
  CHECK(smallest >= 0.0F);
  CHECK(largest < 1.0F);
  CHECK(smallest < 1e-4F);
  CHECK(largest > 1.0F - 1e-4F);
  // Five standard errors: the mean's is sqrt(1/12/n), the variance's sqrt(1/180/n).
  CHECK(std::abs(sum / n - 0.5) < 5 * std::sqrt(1.0 / 12 / n));
  CHECK(std::abs(squares / n - 1.0 / 12) < 5 * std::sqrt(1.0 / 180 / n));
  static_assert(sw::detail::to_uniform(0xffffffff) == 1.0F - 0x1p-24F);
  static_assert(sw::detail::to_uniform(0) == 0.0F);
}

TEST_CASE("normals have the moments, the tails and the independence of their distribution") {
  const sw::RandomStream stream(seed, 0, 0);
  constexpr std::uint64_t n = 1'000'000;
  double sum = 0, squares = 0, fourth = 0, neighbours = 0, previous = 0;
  double beyond_one = 0, beyond_three = 0;
  stream.for_each_normal(0, n, [&](std::uint64_t, double value) {
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
    neighbours += value * previous;
    previous = value;
    beyond_one += std::abs(value) > 1;
    beyond_three += std::abs(value) > 3;
  });
  // Five standard errors each.
  CHECK(std::abs(sum / n) < 5 * std::sqrt(1.0 / n));
  CHECK(std::abs(squares / n - 1) < 5 * std::sqrt(2.0 / n));
  CHECK(std::abs(fourth / n - 3) < 5 * std::sqrt(96.0 / n));
  CHECK(std::abs(neighbours / n) < 5 * std::sqrt(1.0 / n));
  const auto check_share = [](double count, double expected) {
    CHECK(std::abs(count / n - expected) < 5 * std::sqrt(expected * (1 - expected) / n));
  };
  check_share(beyond_one, std::erfc(1 / std::sqrt(2.0)));
  check_share(beyond_three, std::erfc(3 / std::sqrt(2.0)));
}

TEST_CASE("a uniform number is below a probability where it is below the least one that is not") {
  for (const double p : {0.0, 0x1p-30, 0x1p-24, 0.1, 0.25, 1.0 / 3, 1 - 0x1p-24, 1 - 0x1p-30}) {
    const double least = static_cast<double>(sw::detail::least_uniform(p));
    CHECK(least >= p);
    CHECK(least - 0x1p-24 < p);
    CHECK(least * 0x1p24 == std::floor(least * 0x1p24));
  }
}

TEST_CASE("the extreme words give finite normals") {
  for (const std::uint32_t radius : {0U, 1U, 0x80000000U, 0xffffffffU})
    for (const std::uint32_t angle : {0U, 0x40000000U, 0xffffffffU})
      for (const double value : sw::detail::box_muller(radius, angle)) {
        CHECK(std::isfinite(value));
        CHECK(std::abs(value) < 6.7);
      }
}

TEST_CASE("a number that does not fit its bits is refused") {
  CHECK_NOTHROW(sw::RandomStream(seed, (1ULL << 24) - 1, (1ULL << 32) - 1, 255));
  CHECK_THROWS_AS(sw::RandomStream(seed, 1ULL << 24, 0), sw::argument_error);
  CHECK_THROWS_AS(sw::RandomStream(seed, 0, 1ULL << 32), sw::argument_error);
  CHECK_THROWS_WITH_AS(sw::RandomStream(seed, 0, 0, 256),
                       "random stream: tensor 256 does not fit its 8 bits of the generator's "
                       "counter; number from 0 upwards",
                       sw::argument_error);
}
