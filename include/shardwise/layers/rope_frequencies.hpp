#pragma once
// The frequencies with which rotary position embeddings turn, and how they are scaled for sequences
// that are longer than those of the training.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "shardwise/core/compiled.hpp"
#include "shardwise/version.hpp"

namespace shardwise {

/// How frequencies change for longer sequences. Made by `linear`, `llama3` and `yarn`.
struct RopeScaling {
  /// The formula.
  enum class Kind : std::uint8_t { none, linear, llama3, yarn };

  Kind kind = Kind::none;  ///< the formula
  double factor = 1;       ///< how many times longer sequences become
  ///@{
  /// llama3: turns in the original length below which a frequency is scaled, and above which it is
  /// kept. yarn: beta_slow and beta_fast, the same for its ramp.
  double low = 1;
  double high = 4;
  ///@}
  double original = 8192;  ///< positions of the original training
  double amplitude = 1;    ///< yarn: factor of cos and sin

  /// All frequencies over `factor`.
  static constexpr RopeScaling linear(double factor) { return {Kind::linear, factor}; }
  /// source  transformers, modeling_rope_utils.py, `llama3`
  static constexpr RopeScaling llama3(double factor, double low, double high, double original) {
    return {Kind::llama3, factor, low, high, original};
  }
  /// With the amplitude 0.1 ln(factor) + 1.
  /// source  Peng et al. 2023, sections 3.2 to 3.4; transformers, modeling_rope_utils.py, `yarn`
  static RopeScaling yarn(double factor, double original, double beta_fast = 32,
                          double beta_slow = 1);
};

namespace detail {

/// The frequencies of the pairs of a head of which `features` features turn: pair i turns by
/// theta^(-2 i / features) for each position, before scaling. A template, since only a template may
/// be constexpr and call functions of the library; A is double.
template <class A = double>
struct RopeFrequencies {
  A theta = 10000;        ///< the base
  A features = 0;         ///< that turn, two for each pair
  RopeScaling scaling{};  ///< for longer sequences

  /// Radians for each position, of pair `i`.
  constexpr A operator()(std::size_t i) const {
    const A plain = std::exp(-2 * static_cast<A>(i) / features * std::log(theta));
    switch (scaling.kind) {
      case RopeScaling::Kind::linear:
        return plain / scaling.factor;
      case RopeScaling::Kind::llama3:
        return mixed(plain, kept_by_turns(plain));
      case RopeScaling::Kind::yarn:
        return mixed(plain, 1 - ramp(static_cast<A>(i)));
      default:
        return plain;
    }
  }

 private:
  /// The part `kept` of the frequency is not scaled.
  constexpr A mixed(A plain, A kept) const {
    return plain * kept + plain / scaling.factor * (1 - kept);
  }
  constexpr A kept_by_turns(A plain) const {
    const A turns = scaling.original * plain / (2 * std::numbers::pi);
    return std::clamp((turns - scaling.low) / (scaling.high - scaling.low), A(0), A(1));
  }
  /// 0 for pairs that turn often in the original length, 1 for those that turn seldom.
  constexpr A ramp(A i) const {
    const A first = std::max(std::floor(pair_that_turns(scaling.high)), A(0));
    const A last = std::min(std::ceil(pair_that_turns(scaling.low)), features - 1);
    return std::clamp((i - first) / (last == first ? A(0.001) : last - first), A(0), A(1));
  }
  /// The pair, as a real number, that makes so many turns in the original length.
  constexpr A pair_that_turns(A turns) const {
    return features * std::log(scaling.original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  }
};

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE RopeScaling RopeScaling::yarn(double factor, double original, double beta_fast,
                                               double beta_slow) {
  return {Kind::yarn, factor,   beta_slow,
          beta_fast,  original, factor > 1 ? 0.1 * std::log(factor) + 1 : 1};
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
