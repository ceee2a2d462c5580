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

/// The number of features that L takes and gives, as far as its type says; `dynamic` is unknown.
template <class L>
consteval std::size_t static_features_in() {
  if constexpr (StatesFeatures<L>) return L::in_features;
  return dynamic;
}
template <class L>
consteval std::size_t static_features_out(std::size_t in) {
  if constexpr (StatesFeatures<L>) return L::out_features;
  if constexpr (KeepsShape<L>) return in;
  return dynamic;
}

/// The error for two layers that do not meet.
template <class Producer, class Consumer, std::size_t Produced, std::size_t Expected>
consteval bool extents_must_meet() {
  static_assert(Produced == dynamic || Expected == dynamic || Produced == Expected,
                "Consumer takes Expected features, but Producer in front of it gives Produced. "
                "Make the output size of the one the input size of the other.");
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

}  // namespace shardwise::detail
