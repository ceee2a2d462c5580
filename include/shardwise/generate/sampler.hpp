#pragma once
// The choice of a token by the logits of a model.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/philox.hpp"

namespace shardwise {

namespace detail {

/// The number of the stream of sampled tokens among those of data_ordinal. 0 is the order of
/// samples, and 1 to 3 are the images that examples make up.
inline constexpr std::uint64_t token_stream = 4;

/// A number in [0, 1) for a token of a sequence, a multiple of 2^-53.
/// throws   argument_error for a sequence of 2^32 or more
constexpr double uniform_of_token(Seed seed, std::uint64_t sequence, std::uint64_t position) {
  const RandomStream stream(seed, data_ordinal, sequence, token_stream);
  const std::uint64_t upper = stream.bits(2 * position) >> 5;      // 27 bits
  const std::uint64_t lower = stream.bits(2 * position + 1) >> 6;  // 26 bits
  return static_cast<double>(upper << 26 | lower) * 0x1p-53;
}

}  // namespace detail

/// How a token is chosen; the same on every rank. The options apply in this order, each to the
/// tokens that the one before it left.
struct Sampling {
  double temperature = 0;  ///< that divides the logits; 0 for the token with the largest logit
  std::size_t top_k = 0;   ///< only so many of the most likely tokens; 0 for all
  double top_p = 1;        ///< only the fewest most likely tokens whose probability reaches this
  Seed seed{};             ///< of the random numbers

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    f("temperature", temperature);
    f("top_k", top_k);
    f("top_p", top_p);
    f("seed", seed.value);
  }
};

/// Chooses tokens by their logits. A choice depends only on the logits, the options, the number
/// of the sequence and the position of the token in it. So ranks with equal logits choose equal
/// tokens, on processors of one kind, and it does not matter which sequences are in a batch. Of
/// tokens with equal logits the one with the lowest id counts as more likely.
///
///     probability(id) = exp(logit(id) / temperature) / sum of these over the tokens that are left
///
/// All numbers are double. After the first choice by so many logits, nothing is allocated.
/// source   Holtzman, Buys, Du, Forbes, Choi: "The curious case of neural text degeneration", ICLR
///          2020, section 3.1, for top_p
class Sampler {
 public:
  /// throws   argument_error for a temperature that is negative or not finite, and for a top_p that
  ///          is not in (0, 1]
  explicit Sampler(const Sampling& options) : options_(options) {
    const double t = options.temperature, p = options.top_p;
    if (!(t >= 0 && t <= std::numeric_limits<double>::max()))
      throw argument_error({"Sampling: the temperature is ", t,
                            "; it divides the logits, so it must be positive and finite, or 0 for "
                            "the token with the largest logit"});
    if (!(p > 0 && p <= 1))
      throw argument_error({"Sampling: top_p is ", p,
                            "; it is a probability, so it must be in (0, 1], where 1 leaves out no "
                            "token"});
  }

  /// The options that it was made with.
  const Sampling& options() const { return options_; }

  /// The id of the token at `position` of sequence number `sequence`, from its logits, one for each
  /// id. A token whose logit is -infinity is never chosen.
  /// throws   numeric_error if a logit is NaN or infinity, or if all are -infinity; argument_error
  ///          without logits, and for a sequence of 2^32 or more if the temperature is not 0
  template <Real T>
  std::int32_t pick(std::span<const T> logits, std::uint64_t sequence, std::uint64_t position) {
    const std::size_t largest = largest_of(logits, sequence, position);
    if (options_.temperature == 0) return static_cast<std::int32_t>(largest);
    const double u = detail::uniform_of_token(options_.seed, sequence, position);
    weigh(logits, static_cast<double>(logits[largest]));
    keep_top_k();
    keep_top_p();
    return drawn(u);
  }

 private:
  struct Token {
    double logit;
    double weight;  // its probability, times a number that all tokens share
    std::int32_t id;
  };

  static bool is_likelier(const Token& a, const Token& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }

  /// The id of the largest logit, the lowest one of equal logits.
  template <class T>
  static std::size_t largest_of(std::span<const T> logits, std::uint64_t sequence,
                                std::uint64_t position) {
    if (logits.empty())
      throw argument_error("Sampler: there are no logits; give one for each id of the vocabulary");
    constexpr double infinity = std::numeric_limits<double>::infinity();
    std::size_t largest = 0;
    for (std::size_t id = 0; id < logits.size(); ++id) {
      const double logit = static_cast<double>(logits[id]);
      if (!(logit < infinity)) refuse(logit, id, sequence, position);
      if (logit > static_cast<double>(logits[largest])) largest = id;
    }
    if (static_cast<double>(logits[largest]) == -infinity) refuse_all(sequence, position);
    return largest;
  }

  [[noreturn, gnu::cold]] static void refuse(double logit, std::size_t id, std::uint64_t sequence,
                                             std::uint64_t position) {
    throw numeric_error({"Sampler: at position ", position, " of sequence ", sequence,
                         " the logit of id ", id, " is ", logit != logit ? "NaN" : "infinity",
                         ", so the tokens have no probabilities; check that the weights of the "
                         "model are finite, and in float16 that no number exceeds 65504"});
  }
  [[noreturn, gnu::cold]] static void refuse_all(std::uint64_t sequence, std::uint64_t position) {
    throw numeric_error({"Sampler: at position ", position, " of sequence ", sequence,
                         " all logits are -infinity, so no token can be chosen; leave the logit of "
                         "one id finite"});
  }

  /// The tokens that can be chosen, in the order of their ids.
  template <class T>
  void weigh(std::span<const T> logits, double largest) {
    tokens_.clear();
    tokens_.reserve(logits.size());
    for (std::size_t id = 0; id < logits.size(); ++id) {
      const double logit = static_cast<double>(logits[id]);
      const double weight = detail::exponential((logit - largest) / options_.temperature);
      if (weight > 0) tokens_.push_back({logit, weight, static_cast<std::int32_t>(id)});
    }
  }

  void keep_top_k() {
    const std::size_t k = options_.top_k;
    if (k == 0 || k >= tokens_.size()) return;
    const auto end = tokens_.begin() + static_cast<std::ptrdiff_t>(k);
    std::nth_element(tokens_.begin(), end, tokens_.end(), is_likelier);
    tokens_.erase(end, tokens_.end());
    std::sort(tokens_.begin(), end, [](const Token& a, const Token& b) { return a.id < b.id; });
  }

  /// Leaves the most likely tokens, the least likely of them first.
  void keep_top_p() {
    if (options_.top_p == 1) return;
    const double enough = options_.top_p * weight_of_all();
    const auto is_less_likely = [](const Token& a, const Token& b) { return is_likelier(b, a); };
    std::make_heap(tokens_.begin(), tokens_.end(), is_less_likely);
    auto kept = tokens_.end();
    for (double weight = 0; weight < enough && kept != tokens_.begin(); weight += kept->weight) {
      std::pop_heap(tokens_.begin(), kept, is_less_likely);
      --kept;
    }
    tokens_.erase(tokens_.begin(), kept);
  }

  double weight_of_all() const {
    double sum = 0;
    for (const Token& token : tokens_) sum += token.weight;
    return sum;
  }

  /// The token at which the sum of weights exceeds the share u of all.
  std::int32_t drawn(double u) const {
    double left = u * weight_of_all();
    for (const Token& token : tokens_) {
      if (left < token.weight) return token.id;
      left -= token.weight;
    }
    return tokens_.back().id;  // u is so near to 1 that the sum was rounded below its share
  }

  Sampling options_;
  std::vector<Token> tokens_;  // that are left; kept for its memory
};

}  // namespace shardwise
