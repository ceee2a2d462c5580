#pragma once
// The members of a layer, published as a concept.

#include <concepts>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/backend/activation.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/redistribute/redistribute.hpp"

namespace shardwise {

/// The tensor of forward that a layer's backward needs.
enum class Saves : std::uint8_t { nothing, input, output };

/// The layouts of one parameter: how the ranks store it and how the layer uses it. Its gradient
/// owes the adjoint of the redistribution from the first to the second before each step.
template <Layout Stored, Layout Used>
struct ParameterUse {
  using stored = Stored;  ///< how the ranks hold it
  using used = Used;      ///< how the layer uses it
  /// The redistribution that its gradient owes.
  using debt = adjoint_t<Redistribute<Stored, Used>>;

  static_assert(Redistribute<Stored, Used>::movement == Movement::none ||
                    Redistribute<Stored, Used>::movement == Movement::keep_first,
                "a parameter is used where it is stored: from Stored to Used nothing may move. "
                "Store it as it is used, or as Invariant if it is used as Replicated or Partial.");
};

/// The numbers of one parameter: its global shape, and the rule of its initial values.
struct ParameterSpec {
  std::string_view name;            ///< "weight"
  Shape shape;                      ///< global
  init::Rule begins = init::zeros;  ///< the rule of its initial values
  Fans fans{};                      ///< of the layer over all ranks, for rules that need them
  /// Whether weight decay applies with Decay::chosen: by default to all but vectors, such as
  /// biases and the weights of normalisations.
  bool decays = shape.rank() > 1;
};

/// An exchange between ranks inside a layer or loss. It is listed so that it is run, transposed and
/// planned like any other redistribution. Its values are of type `accumulate_t` of the layer's
/// dtype, or of type `Values` if they need a wider type. A reduction other than a sum has no
/// adjoint, and is allowed only for all-reduces.
template <class R, Reduction Op = Reduction::sum, class Values = void>
struct Exchange {
  using redistribution = R;                   ///< of the values
  static constexpr Reduction reduction = Op;  ///< how summands are combined

  /// The type of its values, in a layer whose sums are of type Sum.
  template <class Sum>
  using value_type = std::conditional_t<std::is_void_v<Values>, Sum, Values>;

  /// Their dtype, in a layer whose sums are of dtype `sum`.
  static constexpr Dtype dtype(Dtype sum) {
    if constexpr (std::is_void_v<Values>)
      return sum;
    else
      return dtype_v<Values>;
  }

  static_assert(Op == Reduction::sum || R::movement == Movement::all_reduce ||
                    R::movement == Movement::none,
                "an exchange by maximum or minimum is an all-reduce: Redistribute<Partial, "
                "Invariant> or Redistribute<Partial, Replicated>.");
};

namespace detail {
/// Whether an exchange has an adjoint.
template <class E>
inline constexpr bool has_adjoint = E::reduction == Reduction::sum;
}  // namespace detail

/// The layouts of a layer that works on single elements or whole rows: it keeps the offered layout,
/// but a sum must be complete first. A Partial becomes the layout that the next layer prefers if
/// that is sharded, else Invariant. A layer whose result for a sample, token or row depends on
/// others must not derive from it: ranks may have those.
struct KeepsLayout {
  ///@{
  /// As `Layer` says.
  static constexpr bool keeps_shape = true;

  template <Layout Wanted>
  using desired_input_layout = std::conditional_t<std::same_as<Wanted, Partial>, Invariant, Wanted>;

  template <Layout Offered, Layout Wanted>
  using input_layout =
      std::conditional_t<!std::same_as<Offered, Partial>, Offered,
                         std::conditional_t<ShardedLayout<Wanted>, Wanted, Invariant>>;

  template <Layout In>
  using output_layout = In;

  constexpr Shape output_shape(const Shape& in) const { return in; }
  ///@}
};

/// The layouts of a layer that keeps the offered layout if it is one of these; any other becomes
/// the preferred one among these, or Invariant.
template <Layout... Kept>
struct KeepsOneOf {
  /// Whether it is one of these.
  template <Layout L>
  static constexpr bool keeps = (std::same_as<L, Kept> || ...);

  /// As `Layer` says.
  template <Layout Wanted>
  using desired_input_layout = std::conditional_t<keeps<Wanted>, Wanted, Invariant>;
  /// As `Layer` says.
  template <Layout Offered, Layout Wanted>
  using input_layout = std::conditional_t<keeps<Offered>, Offered, desired_input_layout<Wanted>>;
  /// As `Layer` says.
  template <Layout In>
  using output_layout = In;
};

/// The layouts of a layer that takes one layout and gives one, whatever is offered and preferred.
template <Layout Taken, Layout Given>
struct TakesAndGives {
  /// As `Layer` says.
  template <Layout Wanted>
  using desired_input_layout = Taken;
  /// As `Layer` says.
  template <Layout Offered, Layout Wanted>
  using input_layout = Taken;
  /// As `Layer` says.
  template <Layout In>
  using output_layout = Given;
};

/// A layer computes. It has no access to a communicator.
///
///     struct Halve : KeepsLayout {                     // a minimal layer
///       static constexpr Saves saves = Saves::nothing;
///       template <class Frame, class X, class Y>
///       void forward(Frame&, X x, Y y) const;          // x: View<const T, In>, y: View<T, Out>
///       template <class Frame, class DY, class DX>
///       void backward(Frame&, Nothing, DY dy, DX dx) const;  // duals: View<const T, dual_t<Out>>,
///     };                                                     //        View<T, dual_t<In>>
///
/// Layouts      `input_layout<Offered, Wanted>`: the layout of its input, if the part before offers
///              `Offered` and the next one prefers `Wanted`. `output_layout<In>`: the layout of its
///              output. `desired_input_layout<Wanted>`: the layout that it prefers for its input.
///              `KeepsLayout`, `KeepsOneOf` and `TakesAndGives` have all three.
/// On a mesh    ranks along other axes than `tensor` have slices: other samples, tokens, rows. The
///              rules hold there, too: `input_layout<S, S>`, where S is `Sharded<A>` of batch,
///              sequence or height. A layer that takes and gives S computes each sample, token or
///              row by itself, but for `exchanges<S>`, which run along that axis if all are
///              all-reduces or move nothing and `exchanges<In>` has them, too, and what the frame
///              says of the whole batch. With `Haloed<A, W>` it is given what its windows read of
///              other slices, and `frame.rows_begin()`. If it gives `Partial` or `Invariant`, that
///              is cut into slices; if it gives another split, it is given whole samples in place
///              of tokens or rows. With any other rule it is refused.
/// Shapes       `output_shape(in)`: global shapes; throws shape_error for an input that it cannot
///              take. Batch and sequence may be `dynamic` while a model is bound.
/// Backward     gets as its second argument the tensor that `saves` names (else `Nothing{}`). It
///              *assigns* dx, and writes parameter gradients by `frame.write()`. If
///              `Frame::input_gradient` is false, dx has no memory and must not be written.
/// Memory       may be a device's: then only loops of `frame.backend()` read and write elements,
///              see DeviceBackend. On the host any loop may.
///
/// Optional members:
///     template <Layout In> using parameters = std::tuple<ParameterUse<Stored, Used>, ...>;
///     std::array<ParameterSpec, n> parameter_specs(const Shape& in) const;
///     template <Layout In> using exchanges = std::tuple<Exchange<Redistribute<F, T>>, ...>;
///     std::array<Shape, n> exchange_shapes(const Shape& in) const;
///     static constexpr bool exchanges_in_evaluation = false;  it exchanges only in training
///     using input_element = std::int32_t;      the dtype of its input if not the model's, such as
///                                              token ids: a model's input without a gradient
///     using along_other_axes = R;              a class whose `input_layout` and `output_layout`
///                                              are the rules there: for a split weight, those of a
///                                              layer with a whole one. Sharded<sequence> given for
///                                              Sharded<height> says that rows become tokens in
///                                              their order: they stay on their ranks where blocks
///                                              of rows are blocks of tokens
///     static constexpr bool random = true;     draws random numbers: `frame.random()`
///     static constexpr bool in_place = true;   y may be x and dx may be dy, the same memory
///     static constexpr bool backward_in_parts = true;  backward is the two functions below
///     static constexpr bool reshapes = true;   no forward or backward: y is the memory of x
///     static constexpr bool keeps_shape = true;  the output always has the input's shape
///     static constexpr bool keeps_features = true;  it always has as many features or channels
///     static constexpr Activation activation;  an element-wise function that the layer before it
///                                              can apply
///     template <Layout In> L with_activation(Activation) const;
///                                              the same layer, which applies this to its output
///     auto make_state(Frame&) const;           the state that it keeps: `frame.state()`
///     template <class Frame> using saved = ...; what forward leaves for backward: `frame.saved()`
///
/// A layer with `backward_in_parts` must save its input and not work in place. Besides `backward`,
/// it has two functions that together do the same. They are called in this order in place of
/// `backward` if the ranks can sum dx while the second one runs, or if a pipeline runs the second
/// one later, with other micro-batches in between. The first one is not called without a dx:
///     template <class Frame, class DY, class DX>
///     void backward_input(Frame&, DY dy, DX dx) const;       // assigns dx
///     template <class Frame, class X, class DY>
///     void backward_parameters(Frame&, X x, DY dy) const;    // writes the parameters' gradients
/// A layer that is derived from such a layer and has its own `backward` must also have these two,
/// or set `backward_in_parts` to false: else its `backward` is not called in these cases.
///
/// `saved` is a type that is default-constructible and movable. forward sets it in training, and
/// backward of the same batch takes it out by std::exchange. There is one object for each batch
/// under way, so what belongs to a batch must be here and not in the state.
///
/// A state that must outlive a step, and so belongs in a checkpoint, has a member
/// `visit_buffers(f)`, which calls f(name, View<T, L>) for each of its tensors; L is Invariant or
/// Sharded.
///
/// valid: `Relu`, `Linear<split::output, 3, 4>`      invalid: `int`, a struct without `saves`
template <class L>
concept Layer = requires(const L& layer, const Shape& in) {
  typename L::template input_layout<Invariant, Invariant>;
  typename L::template output_layout<typename L::template input_layout<Invariant, Invariant>>;
  typename L::template desired_input_layout<Invariant>;
  { L::saves } -> std::convertible_to<Saves>;
  { layer.output_shape(in) } -> std::convertible_to<Shape>;
};

/// The saved argument of a layer that saves nothing.
struct Nothing {};

namespace detail {

template <class L, class In>
struct parameters_of {
  using type = std::tuple<>;
};
template <class L, class In>
requires requires { typename L::template parameters<In>; }
struct parameters_of<L, In> {
  using type = typename L::template parameters<In>;
};

template <class L, class In>
struct exchanges_of {
  using type = std::tuple<>;
};
template <class L, class In>
requires requires { typename L::template exchanges<In>; }
struct exchanges_of<L, In> {
  using type = typename L::template exchanges<In>;
};

template <class L>
inline constexpr bool draws_random = requires {
  requires L::random;
};
template <class L>
inline constexpr bool goes_backward_in_parts = requires {
  requires L::backward_in_parts;
};
template <class L>
inline constexpr bool only_reshapes = requires {
  requires L::reshapes;
};
template <class L>
inline constexpr bool exchanges_in_training_only = requires {
  requires !L::exchanges_in_evaluation;
};
template <class L>
inline constexpr bool works_in_place = requires {
  requires L::in_place;
};
/// Whether the output is the memory of the input, so forward calls nothing of the layer.
template <class L>
inline constexpr bool passes_forward = only_reshapes<L>;

template <class L>
consteval Activation activation_of() {
  if constexpr (requires { L::activation; }) {
    return L::activation;
  } else {
    return Activation::none;
  }
}

template <class L, class Result>
std::type_identity<L> declared_in(Result (L::*)() const);

/// Whether another layer runs in place of L: the same layer with its sizes in the object, whose
/// code is compiled once for all sizes, and which L's member `as_dynamic` makes. A type that
/// inherits this member may compute something else; one that adds only a name says that here.
template <class L>
inline constexpr bool runs_as_dynamic = requires {
  { declared_in(&L::as_dynamic) } -> std::same_as<std::type_identity<L>>;
};

/// The layer that runs in place of this one. A call is shorter than what it copies.
template <class L>
[[gnu::noinline]] constexpr auto as_dynamic(const L& layer) {
  if constexpr (runs_as_dynamic<L>) {
    return layer.as_dynamic();
  } else {
    return layer;
  }
}
template <class L>
using as_dynamic_t = decltype(as_dynamic(std::declval<const L&>()));

/// Whether L, given its input as In, can apply the activation after it. The result must have the
/// type L: the result of a base class's function would not compute what L does.
template <class L, class In>
concept AppliesActivation = requires(const L& layer) {
  { layer.template with_activation<In>(Activation::relu) } -> std::same_as<L>;
};

///@{
/// The parameters and the exchanges of a layer with an input in the layout In, as a std::tuple.
template <class L, Layout In>
using parameters_t = typename detail::parameters_of<L, In>::type;
template <class L, Layout In>
using exchanges_t = typename detail::exchanges_of<L, In>::type;
///@}

}  // namespace detail

}  // namespace shardwise
