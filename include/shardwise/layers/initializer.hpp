#pragma once
// Initial values of parameters: bounds from the *global* fans, numbers by global element.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "shardwise/core/philox.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/global_runs.hpp"

namespace shardwise {

/// A distribution of initial values: uniform on [-scale, scale), normal with standard deviation
/// `scale`, or the constant `scale`.
struct Initializer {
  /// The kind of distribution.
  enum class Kind : std::uint8_t { constant, uniform, normal };

  Kind kind = Kind::constant;  ///< the kind
  double scale = 0.0;          ///< half of the width, standard deviation or value
};

/// The fan-in and fan-out of a layer, counted over all ranks.
struct Fans {
  std::size_t in = 0;   ///< inputs of one output
  std::size_t out = 0;  ///< outputs of one input
};

namespace detail {

/// sqrt(numerator / denominator), and 0 for a layer without inputs, which draws nothing.
inline double root_of_ratio(double numerator, std::size_t denominator) {
  return denominator == 0 ? 0.0 : std::sqrt(numerator / static_cast<double>(denominator));
}

}  // namespace detail

/// Rules for initial values.
namespace init {

/// A rule that turns fans into a distribution.
using Rule = Initializer (*)(const Fans&);

/// Zeros.
inline Initializer zeros(const Fans&) { return {}; }

/// Ones.
inline Initializer ones(const Fans&) { return {Initializer::Kind::constant, 1.0}; }

/// U(-b, b), b = 1 / sqrt(fan_in): the default of torch.nn.Linear for weight and bias.
inline Initializer torch_linear(const Fans& fans) {
  return {Initializer::Kind::uniform, detail::root_of_ratio(1.0, fans.in)};
}

/// N(0, 1): the default of torch.nn.Embedding.
inline Initializer torch_embedding(const Fans&) { return {Initializer::Kind::normal, 1.0}; }

/// N(0, 0.02²): what GPT-2 and vision transformers begin with. Radford et al. 2018, section 4.1.
inline Initializer narrow_normal(const Fans&) { return {Initializer::Kind::normal, 0.02}; }

/// U(-b, b), b = sqrt(6 / fan_in); gain of ReLU. He et al. 2015, equation 10.
inline Initializer kaiming_uniform(const Fans& fans) {
  return {Initializer::Kind::uniform, detail::root_of_ratio(6.0, fans.in)};
}

/// N(0, 2 / fan_in); gain of ReLU. He et al. 2015, equation 10.
inline Initializer kaiming_normal(const Fans& fans) {
  return {Initializer::Kind::normal, detail::root_of_ratio(2.0, fans.in)};
}

/// U(-b, b), b = sqrt(6 / (fan_in + fan_out)). Glorot and Bengio 2010, equation 16.
inline Initializer xavier_uniform(const Fans& fans) {
  return {Initializer::Kind::uniform, detail::root_of_ratio(6.0, fans.in + fans.out)};
}

/// N(0, 2 / (fan_in + fan_out)). Glorot and Bengio 2010, equation 12.
inline Initializer xavier_normal(const Fans& fans) {
  return {Initializer::Kind::normal, detail::root_of_ratio(2.0, fans.in + fans.out)};
}

}  // namespace init

namespace detail {

/// Uniform values on [-scale, scale).
template <class T>
struct UniformValues {
  RandomStream stream;
  double scale;
  T* values;

  constexpr void operator()(std::uint64_t begin, std::uint64_t end, std::size_t local) const {
    stream.for_each_uniform(begin, end, [*this, begin, local](std::uint64_t i, float u) {
      const double value = scale * (2.0 * static_cast<double>(u) - 1.0);
      values[local + (i - begin)] = static_cast<T>(static_cast<accumulate_t<T>>(value));
    });
  }
};

/// Normal values of standard deviation `scale`.
template <class T>
struct NormalValues {
  RandomStream stream;
  double scale;
  T* values;

  constexpr void operator()(std::uint64_t begin, std::uint64_t end, std::size_t local) const {
    stream.for_each_normal(begin, end, [*this, begin, local](std::uint64_t i, double z) {
      values[local + (i - begin)] = static_cast<T>(static_cast<accumulate_t<T>>(scale * z));
    });
  }
};

/// Fills a rank's part of a parameter, in the backend's memory; `runs` are its runs in the whole
/// one. Element i of the global tensor is number i of the stream, so every split of it has the same
/// values, and no rank draws numbers of another rank's part.
template <class B, class T>
void initialize(B& backend, const GlobalRuns& runs, T* values, const Initializer& initial,
                const RandomStream& stream) {
  switch (initial.kind) {
    case Initializer::Kind::constant:
      fill(backend, values, runs.count * runs.length,
           static_cast<T>(static_cast<accumulate_t<T>>(initial.scale)));
      break;
    case Initializer::Kind::uniform:
      for_each_piece(backend, runs, UniformValues<T>{stream, initial.scale, values});
      break;
    case Initializer::Kind::normal:
      for_each_piece(backend, runs, NormalValues<T>{stream, initial.scale, values});
      break;
  }
}

}  // namespace detail

}  // namespace shardwise
