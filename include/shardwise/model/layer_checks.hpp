#pragma once
// Errors that name what a layer lacks, before any other code uses it.

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/merge.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/kinds.hpp"

namespace shardwise::detail {

/// A layer that can be constructed without sizes: its type has all of them. Any other layer says in
/// `sizes_to_give` how many its constructor takes.
template <class L>
concept HasAllSizes = std::is_default_constructible_v<L> && !requires {
  requires L::sizes_to_give >
  0;
};

/// The error for a type that is not a layer, one sentence for each member that may be missing. L is
/// part Number of a composition, or stands alone.
template <std::size_t Number, class L>
consteval bool must_be_layer() {
  if constexpr (!IsComposition<L> && !Layer<L>) {
    static_assert(std::is_class_v<L>, "L is no layer: a model is made of types like Relu.");
    static_assert(
        requires { typename L::template input_layout<Invariant, Invariant>; },
        "The layer L lacks `template <Layout Offered, Layout Wanted> using input_layout`, the "
        "layout of its input. Write it, or derive L from KeepsLayout. (L is part "
        "Number of its composition, counted from 0.)");
    static_assert(
        requires { typename L::template desired_input_layout<Invariant>; },
        "The layer L lacks `template <Layout Wanted> using desired_input_layout`, the layout that "
        "it would like to be offered. Write it, or derive L from KeepsLayout. (L is part Number of "
        "its composition, counted from 0.)");
    static_assert(
        requires { typename L::template output_layout<Invariant>; },
        "The layer L lacks `template <Layout In> using output_layout`, the layout of its output. "
        "Write it, or derive L from KeepsLayout. (L is part Number of its composition, counted "
        "from 0.)");
    static_assert(
        requires {
          { L::saves } -> std::convertible_to<Saves>;
        },
        "The layer L lacks `static constexpr Saves saves`, what its backward needs "
        "again. Write Saves::nothing, ::input or ::output. (L is part Number of its composition, "
        "counted from 0.)");
    static_assert(
        requires(const L& l, const Shape& in) {
          { l.output_shape(in) } -> std::convertible_to<Shape>;
        },
        "The layer L lacks `Shape output_shape(const Shape& in) const`, the global shape "
        "of its output. Write it, or derive L from KeepsLayout. (L is part Number of its "
        "composition, counted from 0.)");
  }
  return true;
}

/// The error for a part of a composition that is not a merge or a Graph though it reads several
/// values, or is not a layer though it reads one.
template <std::size_t Number, class L, std::size_t Arity>
consteval bool must_be_part() {
  static_assert(output_count_of<L> == 1,
                "L has several outputs, and stands within another composition. Only a Model itself "
                "may have several: write its parts into one Graph. (L is part Number of its "
                "composition, counted from 0.)");
  static_assert(!ListsParts<L> || input_count_of<L> == Arity,
                "L is a Graph, and reads another number of slots than it has inputs: name a slot "
                "for each of them, At<L, 0, 1> for two. What stands in a Sequential, Join, "
                "Residual, Repeat or Recompute reads one. (L is part Number of its composition, "
                "counted from 0.)");
  if constexpr (Arity == 1) {
    return must_be_layer<Number, L>();
  } else if constexpr (ListsParts<L>) {
    return true;
  } else {
    static_assert(
        Merge<L, Arity>,
        "L reads several slots and is no Merge, as Sum is one, and no Graph. A Merge has "
        "input_layout, "
        "desired_input_layout, output_layout, saves and `output_shape(const "
        "std::array<Shape, N>&) const`. (L is part Number of its composition, counted from 0.)");
    return true;
  }
}

/// The error for a layer that does not run on views of X in the layout In and of T in the layout
/// Out, forward or, if it is needed, backward.
template <class L, class Frame, class X, class T, Layout In, Layout Out, bool Backward>
consteval bool must_run() {
  if constexpr (!only_reshapes<L>) {
    static_assert(
        requires(const L& l, Frame& frame, View<const X, In> x, View<T, Out> y) {
          l.forward(frame, x, y);
        },
        "The layer L lacks `template <class Frame, class X, class Y> void forward(Frame&, "
        "X x, Y y) const`, where x is a View<const T, In> and y a View<T, Out>. Write it "
        "so, const and public.");
  }
  if constexpr (!only_reshapes<L> && Backward) {
    using Saved = std::conditional_t<
        L::saves == Saves::nothing, Nothing,
        std::conditional_t<L::saves == Saves::output, View<const T, Out>, View<const X, In>>>;
    static_assert(
        requires(const L& l, Frame& frame, Saved saved, View<const T, dual_t<Out>> dy,
                 View<T, dual_t<In>> dx) { l.backward(frame, saved, dy, dx); },
        "The layer L lacks `template <class Frame, class DY, class DX> void "
        "backward(Frame&, Saved, DY dy, DX dx) const`, and the model is for training. "
        "Write it, with Saved as L::saves says (Nothing, or a view of x or y), or make "
        "the Model for ForwardOnly.");
    if constexpr (goes_backward_in_parts<L>) {
      static_assert(
          L::saves == Saves::input &&
              requires(const L& l, Frame& frame, Saved x, View<const T, dual_t<Out>> dy,
                       View<T, dual_t<In>> dx) {
                l.backward_input(frame, dy, dx);
                l.backward_parameters(frame, x, dy);
              },
          "The layer L says `backward_in_parts`, and so it has Saves::input, `template <class "
          "Frame, class DY, class DX> void backward_input(Frame&, DY dy, DX dx) const` and "
          "`template <class Frame, class X, class DY> void backward_parameters(Frame&, X x, DY dy) "
          "const`. Write what is missing, or say false.");
    }
  }
  return true;
}

/// The error for a merge Op that does not run forward on a tuple X of views and a view Y or, if it
/// is needed, backward from DY to a tuple DX.
template <class Op, class Frame, class X, class Y, class DY, class DX, bool Backward>
consteval bool merge_must_run() {
  static_assert(
      requires(const Op& op, Frame& frame, const X& x, const Y& y) { op.forward(frame, x, y); },
      "The merge Op lacks `template <class Frame, class X, class Y> void forward(Frame&, const X& "
      "x, const Y& y) const`, where x is a std::tuple of views of its operands. Write it so, const "
      "and public.");
  if constexpr (Backward && !passes_gradient<Op>) {
    using Saved = std::conditional_t<Op::saves == Saves::input, X, Nothing>;
    static_assert(
        requires(const Op& op, Frame& frame, const Saved& saved, const DY& dy, const DX& dx) {
          op.backward(frame, saved, dy, dx);
        },
        "The merge Op lacks `template <class Frame, class DY, class DX> void backward(Frame&, "
        "const Saved&, const DY& dy, const DX& dx) const`, where dx is a std::tuple of views of "
        "the gradients. Write it, with Saved as Op::saves says (Nothing, or a tuple of views of "
        "the operands), or say `passes_gradient`.");
  }
  return true;
}

}  // namespace shardwise::detail
