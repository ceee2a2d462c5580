#pragma once
// Features that must meet: checked by the compiler where sizes are static.

#include <concepts>
#include <cstddef>

#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"

namespace shardwise::detail {

/// A layer that says how many features it takes: `in_features`, and `in()` where that is dynamic.
template <class L>
concept StatesFeatures = requires {
  { L::in_features } -> std::convertible_to<std::size_t>;
  { L::out_features } -> std::convertible_to<std::size_t>;
};

/// A layer whose output has the shape of its input, which leaves features to its neighbours.
template <class L>
concept KeepsShape = requires {
  requires L::keeps_shape;
};

/// A layer that leaves the axis of features or channels as it is, whatever it makes of the others.
template <class L>
concept KeepsFeatures = KeepsShape<L> || requires {
  requires L::keeps_features;
};

/// The number of features that L takes and gives, as far as its type says; `dynamic` is unknown.
template <class L>
consteval std::size_t static_features_in() {
  if constexpr (StatesFeatures<L>) return L::in_features;
  return dynamic;
}
/// As above, of layers one after another; those that keep features are transparent.
template <class L, class... Ls>
consteval std::size_t static_features_in_chain() {
  if constexpr (KeepsFeatures<L> && sizeof...(Ls) > 0) {
    return static_features_in_chain<Ls...>();
  } else {
    return static_features_in<L>();
  }
}
template <class L>
consteval std::size_t static_features_out(std::size_t in) {
  if constexpr (StatesFeatures<L>) return L::out_features;
  if constexpr (KeepsFeatures<L>) return in;
  return dynamic;
}

template <class... Ls>
consteval std::size_t static_features_out_chain() {
  std::size_t features = dynamic;
  ((features = static_features_out<Ls>(features)), ...);
  return features;
}

/// The error for a block whose output meets its input.
template <class Block, std::size_t Taken, std::size_t Given>
consteval bool block_must_keep_features() {
  static_assert(Taken == dynamic || Given == dynamic || Taken == Given,
                "Block takes Taken features and gives Given, but a Residual adds what it gives to "
                "what it takes, and a Repeat passes it to the next block. Make the two equal.");
  return true;
}

/// The error for two layers that do not meet, of which Consumer is layer ConsumerNumber.
template <std::size_t ConsumerNumber, class Producer, class Consumer, std::size_t Produced,
          std::size_t Expected>
consteval bool extents_must_meet() {
  static_assert(Produced == dynamic || Expected == dynamic || Produced == Expected,
                "Consumer takes Expected features, but Producer in front of it gives Produced. "
                "Make the output size of the one the input size of the other. (Consumer is layer "
                "ConsumerNumber of the Sequential, counted from 0.)");
  return true;
}

/// The error for two layers of which one would cut what the other needs whole. A layer may say how
/// many features or channels its shards keep together, `out_grain`, and a multiple of how many it
/// needs, `in_grain`.
template <class Producer, class Consumer>
consteval bool shards_must_be_whole() {
  if constexpr (requires { Producer::out_grain + Consumer::in_grain; }) {
    constexpr std::size_t together = Producer::out_grain;
    constexpr std::size_t needed = Consumer::in_grain;
    static_assert(together == dynamic || together % needed == 0,
                  "Consumer works on whole groups of channels, but shards of Producer in front of "
                  "it could end within a group. Let it keep the channels of a group together: "
                  "kernel(..., {.grain = channels of a group}).");
  }
  return true;
}

/// Number of features that the layer takes, if it knows before it has seen its input; else
/// `dynamic`.
template <class L>
constexpr std::size_t features_in(const L& layer) {
  if constexpr (requires { layer.in(); }) {
    return layer.in();
  } else {
    return dynamic;
  }
}

/// `leading` with the features of the layer behind, if it has none yet.
template <class L>
constexpr Shape complete_input(const L& layer, const Shape& leading) {
  const std::size_t features = features_in(layer);
  if (features == dynamic || leading.has(Axis::feature)) return leading;
  Shape whole = leading;
  whole.append({Axis::feature, features});
  return whole;
}

/// Throws shape_error unless parameters can be made for inputs of shape `in`: they have the shape
/// of what they meet.
inline void require_known(const Shape& in) {
  bool known = in.rank() > 0;
  for (const Dim& dim : in) {
    known = known && (dim.known() || dim.axis == Axis::batch || dim.axis == Axis::sequence);
  }
  if (!known) {
    throw shape_error(
        {"the shape of the layer's parameters follows from its input, of which only ", in,
         " is known: give the Model the shape of its input, with extents for all axes "
         "but batch and sequence"});
  }
}

/// Throws shape_error unless x has the innermost axes that a layer was bound to; a batch may have
/// any size.
inline void require_as_bound(const Shape& x, const Shape& bound) {
  for (std::size_t i = 1; i <= bound.rank() && i <= x.rank(); ++i) {
    const Dim& dim = bound[bound.rank() - i];
    if (dim.known() && dim.axis != Axis::batch && !(dim == x[x.rank() - i])) {
      throw shape_error({"the input is a tensor ", x, ", but the model was bound to ", bound,
                         ": all axes but batch must be equal"});
    }
  }
}

}  // namespace shardwise::detail
