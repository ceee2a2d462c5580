#pragma once
// Rotary position embedding: turns pairs of features of each head by an angle that grows with the
// position.

#include <cstddef>
#include <cstdint>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/rope_frequencies.hpp"
#include "shardwise/layout/token_rows.hpp"

namespace shardwise {

namespace detail {

template <class A>
struct Turn {
  A cosine;
  A sine;
};

/// to[i] is the frequency of pair i.
struct PutFrequency {
  static constexpr bool is_scalar = true;

  RopeFrequencies<> frequencies;
  double* to;

  constexpr void operator()(std::size_t i) const { to[i] = frequencies(i); }
};

/// turns[row, i] is the turn of pair i at the position of the row.
template <class A>
struct RopeTurns {
  TokenRows rows;
  Sequences sequences;
  const double* frequencies;
  double amplitude;
  std::size_t pairs;
  Turn<A>* turns;

  constexpr auto operator()(std::size_t row) const {
    const auto position = static_cast<double>(sequences[rows.global(row)].position);
    return
        [position, in = frequencies, factor = amplitude, to = turns + row * pairs](std::size_t i) {
          const CirclePoint point = circle_point(position * in[i]);
          to[i] = {static_cast<A>(point.cosine * factor), static_cast<A>(point.sine * factor)};
        };
  }
};

/// y[i] = x[i] for head i, whose first 2 · pairs features are turned, forwards or back.
template <class T>
struct TurnedHeads {
  using A = accumulate_t<T>;

  const Turn<A>* turns;
  std::size_t heads;  ///< of a row
  std::size_t size;   ///< of a head
  std::size_t pairs;
  bool halves;
  A direction;  ///< 1, or -1 to turn back
  const T* x;
  T* y;

  constexpr void operator()(std::size_t head) const {
    const Turn<A>* const turn = turns + head / heads * pairs;
    const T* const in = x + head * size;
    T* const out = y + head * size;
    for (std::size_t p = 0; p < pairs; ++p) {
      const std::size_t first = halves ? p : 2 * p;
      const std::size_t second = halves ? p + pairs : 2 * p + 1;
      const A a = static_cast<A>(in[first]), b = static_cast<A>(in[second]);
      const A sine = direction * turn[p].sine;
      out[first] = static_cast<T>(a * turn[p].cosine - b * sine);
      out[second] = static_cast<T>(b * turn[p].cosine + a * sine);
    }
    for (std::size_t i = 2 * pairs; i < size; ++i) out[i] = in[i];
  }
};

}  // namespace detail

/// Turns pair i of the features of each head by position · frequency(i), see RopeFrequencies.
/// Positions are those of the tokens' segments, see `Segment`. x is [batch, sequence, heads × size]
/// or [sequence, heads × size], where the grain of the features is the size of a head, see
/// HeadLinear.
/// layout   L -> L, for every L but Partial
/// saves    nothing; backward turns back
/// sends    nothing
/// throws   argument_error for options outside their range; shape_error if x does not have such
///          axes, or heads of fewer features than turn, or of an odd number
/// source   Su et al. 2021, section 3.2
class Rope : public KeepsLayout {
 public:
  /// The features that turn together.
  enum class Pairs : std::uint8_t {
    halves,     ///< i and i + n / 2 of n: the order of GPT-NeoX, and of Llama in transformers
    neighbours  ///< 2 i and 2 i + 1: the order of GPT-J, and of Llama as Meta published it
  };

  /// What is not in its type.
  struct Options {
    double theta = 10000;         ///< base of the frequencies, above 1
    std::size_t features = 0;     ///< of each head that turn, the first ones; 0 for all
    Pairs pairs = Pairs::halves;  ///< which of them turn together
    RopeScaling scaling{};        ///< for longer sequences
  };

  /// All features of a head turn, by frequencies from 10000 on.
  constexpr Rope() = default;
  /// throws   argument_error for options outside their range
  constexpr explicit Rope(const Options& options) : options_(options) {
    const RopeScaling& s = options.scaling;
    const bool is_ramp = s.kind == RopeScaling::Kind::llama3 || s.kind == RopeScaling::Kind::yarn;
    if (options.theta > 1 && options.features % 2 == 0 && s.factor > 0 && s.amplitude > 0 &&
        (!is_ramp || (s.original > 0 && s.low > 0 && s.high > s.low)))
      return;
    throw argument_error({"Rope: theta ", options.theta, ", ", options.features,
                          " features, scaling by ", s.factor, " from ", s.original,
                          " positions, low ", s.low, ", high ", s.high,
                          ": theta must be above 1, features an even number, and the scaling's "
                          "numbers above 0 with low below high"});
  }

  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool in_place = true;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0) return x;
    const Dim& last = x.back();
    const bool fits = last.axis == Axis::feature && turning(last) % 2 == 0 && turning(last) > 0 &&
                      turning(last) <= last.grain;
    if (fits && detail::sequence_position(x) + 2 == x.rank()) return x;
    throw shape_error({"the input of a Rope is a tensor ", x,
                       ": it must be [batch, sequence, feature heads*size], with heads of an even "
                       "number of features, of which ",
                       turning(last), " turn"});
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    turn(frame, x, y, 1);
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    if constexpr (Frame::input_gradient) turn(frame, dy, dx, -1);
  }
  ///@}

 private:
  constexpr std::size_t turning(const Dim& heads) const {
    return options_.features == 0 ? heads.grain : options_.features;
  }

  template <class Frame, class X, class Y>
  void turn(Frame& frame, const X& x, const Y& y, int direction) const {
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    const Dim& heads = x.global().back();
    const std::size_t features = turning(heads), pairs = features / 2;
    const TokenRows rows = token_rows(frame.held_part(x));
    const detail::RopeFrequencies<> frequencies{options_.theta, static_cast<double>(features),
                                                options_.scaling};
    const Buffer of_pairs = frame.take(pairs * sizeof(double));
    auto* const there = static_cast<double*>(of_pairs.data());
    frame.backend().for_each(pairs, detail::PutFrequency{frequencies, there});
    const Buffer memory = frame.take(rows.count() * pairs * sizeof(detail::Turn<A>));
    auto* const turns = static_cast<detail::Turn<A>*>(memory.data());
    detail::for_each_in_rows(frame.backend(), rows.count(), pairs,
                             detail::RopeTurns<A>{rows, frame.sequences(x.global()), there,
                                                  options_.scaling.amplitude, pairs, turns});
    frame.backend().for_each(x.size() / heads.grain,
                             detail::TurnedHeads<T>{turns, x.local().back().units, heads.grain,
                                                    pairs, options_.pairs == Pairs::halves,
                                                    static_cast<A>(direction), x.data(), y.data()});
  }

  Options options_{};
};

}  // namespace shardwise
