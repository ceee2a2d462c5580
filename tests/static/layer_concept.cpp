// What is a layer, and what is not.

#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/linear.hpp"

using namespace shardwise;

namespace {

static_assert(Layer<Relu> && Layer<Gelu> && Layer<GeluTanh> && Layer<Silu>);
static_assert(Layer<Tanh> && Layer<Sigmoid> && Layer<Flatten>);
static_assert(Layer<Dropout<1, 4>> && Layer<Dropout<0, 1>>);
static_assert(Layer<To<Invariant>> && Layer<To<Sharded<Axis::sequence>>>);
static_assert(Layer<Linear<split::none, 3, 4>> && Layer<ColumnParallelLinear<3, dynamic>>);

/// The smallest one that there is.
struct Halve : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;
};
static_assert(Layer<Halve>);

// A name of one's own is still a layer.
struct Hidden : ColumnParallelLinear<3, 4> {};
static_assert(Layer<Hidden>);

// One thing missing each.
struct WithoutSaves : KeepsLayout {};
struct SavesWhat : KeepsLayout {
  [[maybe_unused]] static constexpr int saves = 1;  // no Saves
};
struct WithoutLayouts {
  [[maybe_unused]] static constexpr Saves saves = Saves::nothing;
  constexpr Shape output_shape(const Shape& in) const { return in; }
};
struct WithoutGives {
  [[maybe_unused]] static constexpr Saves saves = Saves::nothing;
  template <class Wanted>
  using desired_input_layout = Wanted;
  template <class Offered, class Wanted>
  using input_layout = Offered;
  constexpr Shape output_shape(const Shape& in) const { return in; }
};
struct WithoutShape {
  static constexpr Saves saves = Saves::nothing;
  template <class Wanted>
  using desired_input_layout = Wanted;
  template <class Offered, class Wanted>
  using input_layout = Offered;
  template <class In>
  using output_layout = In;
};
struct ChangesItself : WithoutShape {
  Shape output_shape(const Shape& in) { return in; }  // not const
};
static_assert(!Layer<WithoutSaves> && !Layer<SavesWhat>);
static_assert(!Layer<WithoutLayouts> && !Layer<WithoutGives>);
static_assert(!Layer<WithoutShape> && !Layer<ChangesItself>);
static_assert(!Layer<int> && !Layer<void> && !Layer<Invariant> && !Layer<Saves>);

// What layers say about themselves decides what is kept for backward.
static_assert(Relu::saves == Saves::output && Tanh::saves == Saves::output);
static_assert(Sigmoid::saves == Saves::output);
static_assert(Gelu::saves == Saves::input && GeluTanh::saves == Saves::input);
static_assert(Silu::saves == Saves::input);
static_assert(Dropout<1, 2>::saves == Saves::nothing);  // the mask is drawn again
static_assert(ColumnParallelLinear<3, 4>::saves == Saves::input);

// In place only where the slope needs nothing but the output.
static_assert(detail::works_in_place<Relu> && detail::works_in_place<Dropout<1, 2>>);
static_assert(!detail::works_in_place<Gelu> && !detail::works_in_place<ColumnParallelLinear<3, 4>>);

}  // namespace
