#pragma once
// The numbers of features of neighbouring layers must be equal. The compiler checks static sizes.

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/merge.hpp"
#include "shardwise/model/input_element.hpp"

namespace shardwise::detail {

/// A layer that knows the number of its input features: `in_features`, and `in()` if that is
/// dynamic.
template <class L>
concept StatesFeatures = requires {
  { L::in_features } -> std::convertible_to<std::size_t>;
  { L::out_features } -> std::convertible_to<std::size_t>;
};

/// A layer whose output has the shape of its input, so its neighbours decide the number of
/// features.
template <class L>
concept KeepsShape = requires {
  requires L::keeps_shape;
};

/// A layer that keeps the axis of features or channels, and may change the others.
template <class L>
concept KeepsFeatures = KeepsShape<L> || requires {
  requires L::keeps_features;
};

/// A layer whose features are channels of images in any case, as those of a convolution are.
template <class L>
concept StatesChannels = StatesFeatures<L> && requires(const L& layer) {
  layer.in_channels();
};

/// The number of features that L takes as operand J and gives, if its type has it; else `dynamic`.
template <class L, std::size_t J = 0>
consteval std::size_t static_features_in() {
  if constexpr (ReadsSeveral<L>) return L::features[J];
  if constexpr (StatesFeatures<L>) return L::in_features;
  return dynamic;
}
template <class L>
consteval std::size_t static_features_out(std::size_t in) {
  if constexpr (StatesFeatures<L>) return L::out_features;
  if constexpr (KeepsFeatures<L>) return in;
  return dynamic;
}

/// The features of each input of a composition of several; none of others.
template <class L>
inline constexpr std::span<const std::size_t> features_of_inputs{};
template <ReadsSeveral L>
inline constexpr std::span<const std::size_t> features_of_inputs<L>{L::features.data(), L::inputs};

/// The number of features that each slot of a list of parts needs; the first `Inputs` slots are
/// inputs. The first reader that knows the number decides: it takes that many features (`dynamic`
/// if any number is allowed), or it keeps those of its input.
template <std::size_t Inputs, class... Parts, std::size_t N = sizeof...(Parts)>
constexpr std::array<std::size_t, Inputs + N> features_needed(
    const std::array<std::size_t, N>& taken, const std::array<bool, N>& keeps) {
  constexpr std::array<std::span<const std::size_t>, N> slots{Parts::slots...};
  constexpr std::array<std::span<const std::size_t>, N> own{
      features_of_inputs<typename Parts::layer>...};
  std::array<std::size_t, Inputs + N> needed;
  needed.fill(dynamic);
  for (std::size_t part = N; part-- > 0;) {
    const bool open = taken[part] == dynamic && keeps[part];
    const std::size_t features = open ? needed[Inputs + part] : taken[part];
    for (std::size_t j = 0; j < slots[part].size(); ++j) {
      const std::size_t of_operand = j > 0 && j < own[part].size() ? own[part][j] : features;
      if (of_operand != dynamic) needed[slots[part][j]] = of_operand;
    }
  }
  return needed;
}

/// The sum of the features in these slots, if all are known.
constexpr std::size_t sum_of_features(std::span<const std::size_t> features,
                                      std::span<const std::size_t> slots) {
  std::size_t sum = 0;
  for (const std::size_t slot : slots) {
    if (features[slot] == dynamic) return dynamic;
    sum += features[slot];
  }
  return sum;
}

/// The number of features in each slot of a list of parts, if their types have it.
template <std::size_t Inputs, class... Parts, std::size_t N = sizeof...(Parts)>
consteval std::array<std::size_t, Inputs + N> features_of() {
  auto features = features_needed<Inputs, Parts...>(
      {static_features_in<typename Parts::layer>()...}, {KeepsFeatures<typename Parts::layer>...});
  std::size_t slot = Inputs;
  ((features[slot] = adds_features<typename Parts::layer>
                         ? sum_of_features(features, Parts::slots)
                         : static_features_out<typename Parts::layer>(features[Parts::slots[0]]),
    ++slot),
   ...);
  return features;
}

/// Whether two numbers of features can be equal; `dynamic` can equal any number.
consteval bool features_meet(std::size_t a, std::size_t b) {
  return a == dynamic || b == dynamic || a == b;
}

/// The error for a block whose output and input have different numbers of features.
template <class Block, std::size_t Taken, std::size_t Given>
consteval bool block_must_keep_features() {
  static_assert(features_meet(Taken, Given),
                "Block takes Taken features and gives Given, but a Residual adds what it gives to "
                "what it takes, and a Repeat passes it to the next block. Make the two equal.");
  return true;
}

/// The error for two neighbouring layers with different numbers of features or channels. Consumer
/// is part ConsumerNumber.
template <std::size_t ConsumerNumber, class Producer, class Consumer, std::size_t Produced,
          std::size_t Expected>
consteval bool extents_must_meet() {
  if constexpr (StatesChannels<Consumer> || (StatesChannels<Producer> && KeepsShape<Consumer>)) {
    static_assert(features_meet(Produced, Expected),
                  "Consumer takes Expected channels, but Producer in front of it gives Produced. "
                  "Make the output channels of the one the input channels of the other. (Consumer "
                  "is part ConsumerNumber of its composition, counted from 0.)");
  } else {
    static_assert(features_meet(Produced, Expected),
                  "Consumer takes Expected features, but Producer in front of it gives Produced. "
                  "Make the output size of the one the input size of the other. (Consumer is part "
                  "ConsumerNumber of its composition, counted from 0.)");
  }
  return true;
}

/// The error for two layers of which one would cut units that the other needs whole. A layer may
/// say how many features or channels its shards keep together, `out_grain`; this must be a multiple
/// of the `in_grain` of the layer that needs them.
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

/// The error for two parts that read the same input but take different numbers of features.
/// Consumer is part ConsumerNumber.
template <std::size_t ConsumerNumber, class Consumer, std::size_t Given, std::size_t Expected>
consteval bool readers_must_agree() {
  static_assert(features_meet(Given, Expected),
                "Consumer takes Expected features, but another part that reads the same input "
                "takes Given. Make the two equal. (Consumer is part ConsumerNumber of its "
                "composition, counted from 0.)");
  return true;
}

/// The error for operands with different numbers of features.
template <std::size_t Number, class Merge, std::size_t First, std::size_t Other>
consteval bool operands_must_meet() {
  static_assert(
      features_meet(First, Other),
      "Merge is given values with First features and with Other features, and takes "
      "values with the same number. Make the branches in front of it give as many features. "
      "(Merge is part Number of its composition, counted from 0.)");
  return true;
}

/// The last layer that determined the number of features in a slot of L; void for an input.
template <class L, std::size_t Slot>
consteval auto producer() {
  if constexpr (Slot < L::inputs) {
    return std::type_identity<void>{};
  } else if constexpr (KeepsFeatures<typename L::template layer_type<Slot - L::inputs>>) {
    return producer<L, L::template part_type<Slot - L::inputs>::slots[0]>();
  } else {
    return std::type_identity<typename L::template layer_type<Slot - L::inputs>>{};
  }
}

/// Checks that the numbers of features of part Index of L match, from operand J on, and that no
/// shard cuts a group that must stay whole.
template <class L, std::size_t Index, std::size_t J = 0>
consteval void check_part() {
  using Part = typename L::template part_type<Index>;
  using Layer = typename Part::layer;
  constexpr std::size_t slot = Part::slots[J];
  constexpr std::size_t expected = static_features_in<Layer, J>();
  using Producer = typename decltype(producer<L, slot>())::type;
  static_assert(
      slot < L::inputs || !has_own_element<Layer, J>,
      "Layer reads elements of its own dtype (input_element), which no layer gives: it "
      "reads an input of the model. Put nothing in front of it. (Layer is part Index of its "
      "composition, counted from 0.)");
  static_assert(
      slot >= L::inputs || has_own_element<Layer, J> == has_own_element<L, slot>,
      "Layer and another part read the same input of the model, one as elements of its "
      "own dtype (input_element). Give the Graph an input for each. (Layer is part Index of "
      "its composition, counted from 0.)");
  if constexpr (std::is_void_v<Producer>) {
    static_assert(readers_must_agree<Index, Layer, L::features[slot], expected>());
  } else {
    static_assert(extents_must_meet<Index, Producer, Layer, L::features[slot], expected>());
    static_assert(shards_must_be_whole<Producer, Layer>());
  }
  if constexpr (J > 0 && KeepsFeatures<Layer>)
    static_assert(
        operands_must_meet<Index, Layer, L::features[Part::slots[0]], L::features[slot]>());
  if constexpr (J + 1 < Part::arity) check_part<L, Index, J + 1>();
}

///@{
/// The shapes of N slots; the shapes of the inputs are known.
template <std::size_t N>
constexpr std::array<Shape, N> slots_from(const Shape& input) {
  return {input};
}
template <std::size_t N, std::size_t Inputs>
constexpr std::array<Shape, N> slots_from(const std::array<Shape, Inputs>& inputs) {
  std::array<Shape, N> shapes;
  for (std::size_t i = 0; i < Inputs; ++i) shapes[i] = inputs[i];
  return shapes;
}
///@}

/// The shapes in the slots that a part reads.
template <class Part, std::size_t N>
constexpr auto operand_shapes(const std::array<Shape, N>& shapes) {
  std::array<Shape, Part::arity> operands;
  for (std::size_t j = 0; j < Part::arity; ++j) operands[j] = shapes[Part::slots[j]];
  return operands;
}

/// The shape of a part's output for the shapes in the slots of its composition.
template <class Part, class Layer, std::size_t N>
[[gnu::noinline]] constexpr Shape part_shape(const Layer& layer,
                                             const std::array<Shape, N>& shapes) {
  if constexpr (Part::arity == 1) {
    return layer.output_shape(shapes[Part::slots[0]]);
  } else {
    return layer.output_shape(operand_shapes<Part>(shapes));
  }
}

/// The number of input features if the layer knows it before it sees an input; else `dynamic`, as
/// for ids, which are no features.
template <class L>
constexpr std::size_t features_in([[maybe_unused]] const L& layer) {
  if constexpr (
      requires { layer.in(); } && !requires { typename L::input_element; }) {
    return layer.in();
  } else {
    return dynamic;
  }
}

/// `leading` with so many features, if they are known and it has no feature axis yet.
[[gnu::noinline]] constexpr Shape with_features(Shape leading, std::size_t features) {
  if (features != dynamic && !leading.has(Axis::feature)) leading.append({Axis::feature, features});
  return leading;
}

/// `leading` with the features of the next layer, if it has no feature axis yet.
template <class L>
constexpr Shape complete_input(const L& layer, const Shape& leading) {
  return with_features(leading, features_in(layer));
}

///@{
/// The shapes of a model's inputs as far as they are known: the given shapes, or for a single input
/// what its first layer knows.
template <class L>
constexpr Shape known_input(const L& layer, const Shape& in) {
  return in.rank() > 0 ? in : complete_input(layer, {});
}
template <class L, std::size_t N>
constexpr std::array<Shape, N> known_input(const L&, const std::array<Shape, N>& in) {
  return in;
}
///@}

///@{
/// Whether anything is known of the shape of each input.
constexpr bool are_known(const Shape& in) { return in.rank() > 0; }
template <std::size_t N>
constexpr bool are_known(const std::array<Shape, N>& in) {
  for (const Shape& one : in)
    if (!are_known(one)) return false;
  return true;
}
///@}

/// Throws shape_error unless `in` is known well enough to make parameters, whose shapes follow from
/// it.
void require_known(const Shape& in);

/// Throws shape_error unless the innermost axes of x have the extents that the layer was bound to;
/// a batch may have any size.
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

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void require_known(const Shape& in) {
  bool known = in.rank() > 0;
  for (const Dim& dim : in) {
    known = known && (dim.known() || dim.axis == Axis::batch || dim.axis == Axis::sequence);
  }
  if (!known) {
    const std::string what = in.rank() == 0 ? "nothing" : "only " + to_string(in);
    throw shape_error(
        {"the shape of the layer's parameters follows from its input, of which ", what,
         " is known: give the Model the shape of its input, as Model(ranks, seed, shape), with "
         "extents for all axes but batch and sequence"});
  }
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
