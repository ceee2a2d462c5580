// The choice of tokens: by how often each is chosen, with probabilities that are known exactly, and
// what must not change a choice.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <vector>

#include "shardwise/core/philox.hpp"
#include "shardwise/generate/sampler.hpp"
#include "support/count_allocations.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::message_of;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Logits whose probabilities are these shares at this temperature.
std::vector<double> logits_of(const std::vector<double>& shares, double temperature) {
  std::vector<double> logits;
  for (const double share : shares) logits.push_back(temperature * std::log(share));
  return logits;
}

template <class T>
std::int32_t pick(Sampler& sampler, const std::vector<T>& logits, std::uint64_t sequence = 0,
                  std::uint64_t position = 0) {
  return sampler.pick(std::span<const T>(logits), sequence, position);
}

/// How often each id is chosen in 100 sequences of 1000 tokens.
std::vector<int> chosen(const Sampling& sampling, const std::vector<double>& logits) {
  Sampler sampler(sampling);
  std::vector<int> times(logits.size());
  for (std::uint64_t sequence = 0; sequence < 100; ++sequence)
    for (std::uint64_t position = 0; position < 1000; ++position)
      ++times[static_cast<std::size_t>(pick(sampler, logits, sequence, position))];
  return times;
}

/// Pearson's sum for 100,000 choices. An id with the share 0 must not be chosen.
double chi_square(const std::vector<int>& times, const std::vector<double>& shares) {
  double all = 0;
  for (const double share : shares) all += share;
  double sum = 0;
  for (std::size_t id = 0; id < shares.size(); ++id) {
    const double expected = 100'000 * shares[id] / all;
    if (expected == 0) CHECK(times[id] == 0);
    if (expected > 0) sum += (times[id] - expected) * (times[id] - expected) / expected;
  }
  return sum;
}

}  // namespace

TEST_CASE("tokens are chosen as often as their probabilities say") {
  const std::vector<double> shares{8, 25, 1, 12, 5, 36, 4, 9};  // in percent
  const std::vector<double> logits = logits_of(shares, 0.7);
  struct Case {
    std::size_t top_k;
    double top_p;
    std::vector<double> shares;
    double bound;  // of chi-square, which a right sampler exceeds for 1 of 1000 seeds
  };
  const Case cases[] = {
      {0, 1, shares, 24.32},                             // 7 degrees of freedom
      {5, 1, {8, 25, 0, 12, 0, 36, 0, 9}, 18.47},        // 4
      {0, 0.8, {0, 25, 0, 12, 0, 36, 0, 9}, 16.27},      // 3: 36 + 25 + 12 is below 80
      {5, 0.8, {0, 25, 0, 12, 0, 36, 0, 0}, 13.82},      // 2: 36 + 25 + 12 is 73 of 90
      {0, 0.72, {0, 25, 0, 12, 0, 36, 0, 0}, 13.82},     // and 73 of 100
      {0, 0.74, {0, 25, 0, 12, 0, 36, 0, 9}, 16.27},     // one is not enough for more
      {8, 0.995, shares, 24.32},                         // the least likely one reaches it
      {100, 0.985, {8, 25, 0, 12, 5, 36, 4, 9}, 22.46},  // and is not needed for this
  };
  for (const Case& of : cases) {
    CAPTURE(of.top_k);
    CAPTURE(of.top_p);
    const Sampling sampling{
        .temperature = 0.7, .top_k = of.top_k, .top_p = of.top_p, .seed = Seed{11}};
    CHECK(chi_square(chosen(sampling, logits), of.shares) < of.bound);
  }
}

TEST_CASE("a temperature makes differences of logits smaller or larger") {
  const std::vector<double> logits = logits_of({1, 2, 4}, 1);
  const auto off = [&](double temperature, const std::vector<double>& shares) {
    return chi_square(chosen({.temperature = temperature, .seed = Seed{5}}, logits), shares);
  };
  CHECK(off(1, {1, 2, 4}) < 13.82);     // 2 degrees of freedom, 1 of 1000
  CHECK(off(0.5, {1, 4, 16}) < 13.82);  // squares
  CHECK(off(2, {1, std::sqrt(2), 2}) < 13.82);
  CHECK(off(1e300, {1, 1, 1}) < 13.82);
  CHECK(off(1e-300, {0, 0, 1}) == 0);
}

TEST_CASE("the token with the largest logit, of equal ones that with the lowest id") {
  for (const double temperature : {0.0, 1e-300}) {
    Sampler greedy({.temperature = temperature, .top_k = 1});
    CHECK(pick<double>(greedy, {1, 3, 2}) == 1);
    CHECK(pick<double>(greedy, {-5}) == 0);
    CHECK(pick<double>(greedy, {1, 3, -2, 3, 3}) == 1);
    CHECK(pick<double>(greedy, {-0.0, 0.0}) == 0);
    CHECK(pick<double>(greedy, {-infinity, -1e308, 1e308, -infinity}) == 2);
    CHECK(pick<double>(greedy, {-infinity, -1e308}) == 1);
  }
}

TEST_CASE("of equal logits, those with the lowest ids are left by top_k and top_p") {
  const std::vector<double> equal(8, -3.0);
  const std::vector<double> first{1, 1, 1, 0, 0, 0, 0, 0};
  CHECK(chi_square(chosen({.temperature = 1, .top_k = 3}, equal), first) < 13.82);
  CHECK(chi_square(chosen({.temperature = 1, .top_p = 0.3}, equal), first) < 13.82);
  const std::vector<double> behind = logits_of({2, 7, 2, 1, 2}, 1);
  const std::vector<double> two{2, 7, 0, 0, 0};
  CHECK(chi_square(chosen({.temperature = 1, .top_k = 2}, behind), two) < 10.83);  // 1
  CHECK(chi_square(chosen({.temperature = 1, .top_p = 0.6}, behind), two) < 10.83);
}

TEST_CASE("a choice follows from seed, sequence and position alone") {
  const std::vector<double> two{0.5, 0.5};
  for (const std::uint64_t seed : {0U, 7U}) {
    Sampler sampler({.temperature = 1.3, .seed = Seed{seed}});
    for (const std::uint64_t sequence : {0U, 1U, 4'000'000'000U}) {
      const RandomStream stream(Seed{seed}, data_ordinal, sequence, 4);
      for (std::uint64_t position = 0; position < 100; ++position) {
        const auto upper_half = static_cast<std::int32_t>(stream.bits(2 * position) >> 31);
        CHECK(pick(sampler, two, sequence, position) == upper_half);
      }
    }
  }
}

TEST_CASE("the number of a token has 53 bits, and all of them count") {
  Sampler sampler({.temperature = 1, .seed = Seed{1}});
  for (std::uint64_t position = 0; position < 100; ++position) {
    const double u = detail::uniform_of_token(Seed{1}, 0, position);
    CHECK(u >= 0);
    CHECK(u < 1);
    CHECK(std::ldexp(u, 53) == std::floor(std::ldexp(u, 53)));
    CHECK(std::ldexp(u, 30) != std::floor(std::ldexp(u, 30)));  // 1 of 2^23 has no more bits
    for (const double off : {-0x1p-40, 0x1p-40}) {  // two ids that meet beside the number
      const std::vector<double> logits{std::log(u + off), std::log1p(-u - off)};
      CHECK(pick(sampler, logits, 0, position) == (off < 0 ? 1 : 0));
    }
  }
}

TEST_CASE_TEMPLATE("logits of every dtype", T, float, double, bf16, fp16) {
  std::vector<T> logits;
  for (int id = 0; id < 300; ++id) logits.push_back(static_cast<T>(0.25F * float(id * 37 % 101)));
  logits[17] = static_cast<T>(-std::numeric_limits<float>::infinity());
  const std::vector<double> wide(logits.begin(), logits.end());
  for (const double temperature : {0.0, 5.0}) {
    Sampler sampler({.temperature = temperature, .top_k = 250, .top_p = 0.95, .seed = Seed{3}});
    for (std::uint64_t position = 0; position < 200; ++position) {
      const std::int32_t id = pick(sampler, logits, 6, position);
      CHECK(id == pick(sampler, wide, 6, position));
      CHECK(id != 17);
    }
  }

  Sampler sampler({.temperature = 1});
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    logits[41] = static_cast<T>(bad);
    const auto message = message_of<numeric_error>([&] { pick(sampler, logits, 9, 23); });
    check_mentions(message,
                   {"position 23 of sequence 9", "id 41", bad != bad ? "NaN" : "infinity"});
  }
}

TEST_CASE("nothing is allocated after the first choice") {
  std::vector<float> logits(1000);
  for (std::size_t id = 0; id < logits.size(); ++id) logits[id] = float(id * 37 % 101) * 0.1F;
  for (const std::size_t top_k : {0U, 50U}) {
    for (const double top_p : {1.0, 0.9}) {
      Sampler sampler({.temperature = 0.8, .top_k = top_k, .top_p = top_p});
      std::uint64_t position = 0;
      const auto step = [&] { pick(sampler, logits, 0, position++); };
      CHECK(testing::allocated_after_second(step) == 0);
    }
  }
}

TEST_CASE("what cannot be chosen from is refused") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto made = [](const Sampling& sampling) {
    return message_of<argument_error>([&] { Sampler{sampling}; });
  };
  check_mentions(made({.temperature = -0.5}), {"temperature", "-0.5", "positive and finite"});
  for (const double temperature : {nan, infinity, -infinity})
    CHECK(made({.temperature = temperature}) != "");
  check_mentions(made({.top_p = 0}), {"top_p is 0", "(0, 1]"});
  for (const double top_p : {-0.1, 1.0001, nan}) CHECK(made({.top_p = top_p}) != "");

  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    const auto refused = [&](const std::vector<double>& logits) {
      return message_of<numeric_error>([&] { pick(sampler, logits, 2, 5); });
    };
    check_mentions(refused({1, nan, 2}), {"position 5 of sequence 2", "id 1 is NaN"});
    check_mentions(refused({nan, 1}), {"id 0 is NaN"});
    check_mentions(refused({-infinity, 1, infinity}), {"id 2 is infinity"});
    check_mentions(refused({-infinity, -infinity}), {"position 5 of sequence 2", "all logits"});
    check_mentions(message_of<argument_error>([&] { pick<double>(sampler, {}); }), {"no logits"});
    CHECK(pick<double>(sampler, {-infinity, 1}) == 1);
  }
  Sampler sampler({.temperature = 1});
  check_mentions(message_of<argument_error>([&] { pick<double>(sampler, {1}, 1ULL << 32); }),
                 {"4294967296"});
}
