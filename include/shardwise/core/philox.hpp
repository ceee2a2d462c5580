#pragma once
// Random numbers as a pure function of their position, so that every rank draws its own slice of a
// tensor and the whole is the same at any number of ranks.
//
// The generator is Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011): it turns a counter of 128 bits and a key of 64 bits into four words of 32.
// Nothing here allocates, and only the constructor of a stream throws.

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/independent_loop.hpp"

namespace shardwise {

namespace detail {

///@{
/// Words of 32 bits: of the counter, of the key, and of the random bits.
using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;
using PhiloxBlock = std::array<std::uint32_t, 4>;
///@}

/// The key of the next of the ten rounds.
constexpr PhiloxKey next_philox_key(PhiloxKey key) {
  return {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
}

/// One round: changes the four words of a counter.
constexpr void philox_round(PhiloxKey key, std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                            std::uint32_t& d) {
  const std::uint64_t even = std::uint64_t{0xD2511F53} * a;
  const std::uint64_t odd = std::uint64_t{0xCD9E8D57} * c;
  a = static_cast<std::uint32_t>(odd >> 32) ^ b ^ key[0];
  b = static_cast<std::uint32_t>(odd);
  c = static_cast<std::uint32_t>(even >> 32) ^ d ^ key[1];
  d = static_cast<std::uint32_t>(even);
}

/// The block that belongs to `counter` under `key`: ten rounds. A bijection of the counter.
constexpr PhiloxBlock philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round, key = detail::next_philox_key(key))
    detail::philox_round(key, counter[0], counter[1], counter[2], counter[3]);
  return counter;
}

}  // namespace detail

/// The seed of a run. Equal seeds give equal weights, masks and data order.
struct Seed {
  std::uint64_t value = 0;  ///< any number
};

/// The ordinal of draws that belong to no layer: the order of samples and synthetic data. Layers
/// count from 0.
inline constexpr std::uint64_t data_ordinal = (std::uint64_t{1} << 24) - 1;

namespace detail {

/// The upper 24 bits as a number in [0, 1): exact in float, so equal in float and double. (Vectors
/// of numbers with a sign are converted faster.)
constexpr float to_uniform(std::uint32_t word) {
  return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-24F;
}

/// The least multiple of 2^-24 that is not below `probability`, which is less than 1: a uniform
/// number is below the one where it is below the other.
constexpr float least_uniform(double probability) {
  const double exact = probability * 0x1p24;
  const auto below = static_cast<std::int32_t>(exact);
  return static_cast<float>(below + (below < exact ? 1 : 0)) * 0x1p-24F;
}

/// Two words to two independent standard normals (Box and Muller 1958), at most 6.7 in magnitude.
/// A template, because only templates may be constexpr and call functions that are not.
template <std::same_as<double> A = double>
constexpr std::array<A, 2> box_muller(std::uint32_t radius_word, std::uint32_t angle_word) {
  const A radius = std::sqrt(-2.0 * std::log((radius_word + 1.0) * 0x1p-32));
  const A angle = 2.0 * std::numbers::pi * (angle_word * 0x1p-32);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace detail

/// The random numbers of one tensor at one step, indexed by *global* element.
///
/// Element i takes word i % 4 of the block with this counter and key:
///
///     counter  i / 4 in 62 bits, two zero bits, step in 32, ordinal in 24, tensor in 8
///     key      seed in 64
///
/// Different (seed, ordinal, tensor, step, i) never share a word, because each has its own bits.
///
/// Uniforms have 24 bits and normals come from double arithmetic, whatever the dtype of the tensor:
/// initial values are computed from them in double and rounded once, so that models of all dtypes
/// start from the same numbers, each rounded to its own dtype. Bits and uniforms are the same on
/// every machine, and normals if its log, cos and sin are.
class RandomStream {
 public:
  /// `ordinal`: the layer's number among those that own parameters or randomness, below 2^24.
  /// `step`: the training step of a mask, 0 for initial weights, below 2^32.
  /// `tensor`: the number among the layer's tensors (0 weight, 1 bias), below 2^8.
  /// Throws argument_error for a number above its bound.
  constexpr RandomStream(Seed seed, std::uint64_t ordinal, std::uint64_t step,
                         std::uint64_t tensor = 0)
      : key_{static_cast<std::uint32_t>(seed.value), static_cast<std::uint32_t>(seed.value >> 32)},
        step_(step_word(step)),
        place_(narrow(ordinal, 24, "ordinal") | narrow(tensor, 8, "tensor") << 24) {}

  /// The word of a step in the counter. Throws argument_error for a step above its bound.
  static constexpr std::uint32_t step_word(std::uint64_t step) { return narrow(step, 32, "step"); }

  /// This stream in another step.
  constexpr RandomStream in_step(std::uint32_t step_word) const {
    RandomStream other = *this;
    other.step_ = step_word;
    return other;
  }

  /// 32 random bits of element `i`.
  constexpr std::uint32_t bits(std::uint64_t i) const { return block(i)[i % 4]; }

  /// Element `i` of the uniform distribution on [0, 1), a multiple of 2^-24.
  constexpr float uniform(std::uint64_t i) const { return detail::to_uniform(bits(i)); }

  /// Element `i` of the standard normal distribution.
  double normal(std::uint64_t i) const {
    const detail::PhiloxBlock words = block(i);
    return detail::box_muller(words[i & 2U], words[(i & 2U) + 1])[i & 1U];
  }

  /// Calls f(i, bits(i)) for i = begin, ..., end - 1 and computes each block once.
  template <class F>
  constexpr void for_each_bits(std::uint64_t begin, std::uint64_t end, F f) const {
    for (std::uint64_t i = begin; i < end;) {
      const detail::PhiloxBlock words = block(i);
      do f(i, words[i % 4]);
      while (++i < end && i % 4 != 0);
    }
  }

  /// Calls f(i, uniform(i)) for i = begin, ..., end - 1 and computes each block once.
  template <class F>
  constexpr void for_each_uniform(std::uint64_t begin, std::uint64_t end, F f) const {
    for_each_bits(begin, end,
                  [&f](std::uint64_t i, std::uint32_t word) { f(i, detail::to_uniform(word)); });
  }

  /// The same in any order, with vectors but for the first and last few.
  template <class F>
  [[gnu::always_inline]] inline void for_each_uniform_in_any_order(std::uint64_t begin,
                                                                   std::uint64_t end, F f) const {
    constexpr std::uint64_t fewest = 32;  // fewer are drawn faster one block after another
    std::uint64_t i = begin + std::min(end - begin, (0 - begin) % 4);
    for_each_uniform(begin, i, f);
    while (end - i >= fewest) {
      std::uint32_t words[at_a_time];
      put_blocks(i / 4, words);
      const std::uint64_t count = std::min(end - i, at_a_time);
      detail::plain_loop(
          count, [&words, &f, i](std::size_t k) { f(i + k, detail::to_uniform(words[k])); });
      i += count;
    }
    for_each_uniform(i, end, f);
  }

  /// Calls f(i, normal(i)) for i = begin, ..., end - 1 and computes each pair once.
  template <class F>
  constexpr void for_each_normal(std::uint64_t begin, std::uint64_t end, F f) const {
    for (std::uint64_t i = begin; i < end;) {
      const detail::PhiloxBlock words = block(i);
      do {
        const auto pair = detail::box_muller(words[i & 2U], words[(i & 2U) + 1]);
        do f(i, pair[i & 1U]);
        while (++i < end && i % 2 != 0);
      } while (i < end && i % 4 != 0);
    }
  }

 private:
  static constexpr std::uint32_t narrow(std::uint64_t value, int bits, const char* name) {
    if (value >> bits != 0) refuse(value, bits, name);
    return static_cast<std::uint32_t>(value);
  }
  [[noreturn, gnu::cold]] static void refuse(std::uint64_t value, int bits, const char* name);

  /// The block that holds element `i`.
  constexpr detail::PhiloxBlock block(std::uint64_t i) const {
    const std::uint64_t number = i / 4;
    return detail::philox4x32_10({static_cast<std::uint32_t>(number),
                                  static_cast<std::uint32_t>(number >> 32), step_, place_},
                                 key_);
  }

  /// Words that have vectors together.
  static constexpr std::uint64_t at_a_time = 128;

  /// Writes the blocks from `number` on. Compilers find vectors where loops over blocks are inside
  /// of the one over rounds.
  [[gnu::always_inline]] inline void put_blocks(std::uint64_t number,
                                                std::uint32_t (&words)[at_a_time]) const {
    constexpr std::size_t count = at_a_time / 4;
    std::uint32_t a[count], b[count], c[count], d[count];
    for (std::size_t k = 0; k < count; ++k) {
      a[k] = static_cast<std::uint32_t>(number + k);
      b[k] = static_cast<std::uint32_t>((number + k) >> 32);
      c[k] = step_;
      d[k] = place_;
    }
    detail::PhiloxKey key = key_;
    for (int round = 0; round < 10; ++round, key = detail::next_philox_key(key))
      for (std::size_t k = 0; k < count; ++k) detail::philox_round(key, a[k], b[k], c[k], d[k]);
    for (std::size_t k = 0; k < count; ++k) {
      words[4 * k] = a[k];
      words[4 * k + 1] = b[k];
      words[4 * k + 2] = c[k];
      words[4 * k + 3] = d[k];
    }
  }

  detail::PhiloxKey key_;
  std::uint32_t step_;
  std::uint32_t place_;  // ordinal and, above it, tensor
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE void RandomStream::refuse(std::uint64_t value, int bits, const char* name) {
  throw argument_error({"random stream: ", name, " ", value, " does not fit its ", bits,
                        " bits of the generator's counter; number from 0 upwards"});
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
