#pragma once
// The members of a layer that merges several values.

#include <array>
#include <concepts>
#include <cstddef>

#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

/// A merge computes one value from several operands, and has no parameters. Its members are those
/// of a Layer, with these differences; N is the number of operands.
///
/// Layouts      `input_layout`, `output_layout` and `desired_input_layout` are those of the first
///              operand. The others are converted to this layout, or to `operand<J, In>`, see
///              below.
/// On a mesh    it takes S as operand 0 and gives S; the others are laid out as `operand<J, S>`.
/// Shapes       `output_shape(const std::array<Shape, N>& in)`; a shape of rank 0 is unknown.
/// Forward      `forward(Frame&, const X& x, View<T, Out> y)`: x is a std::tuple of views of the
///              operands, each a View<const T, L> of its layout.
/// Backward     `backward(Frame&, const Saved& saved, DY dy, const DX& dx)` *assigns* each
///              View<T, dual_t<L>> of the tuple dx that has memory; the others are not needed.
///              `saved` is `Nothing{}`, or x with Saves::input.
///
/// Optional members:
///     template <std::size_t J, Layout In> using operand;   the layout of operand J, from 1 on,
///                                                          if the first one is laid out as In
///     static constexpr bool in_place = true;         y may be the memory of any operand
///     static constexpr bool random = true;           draws random numbers: `frame.random()`
///     static constexpr bool passes_gradient = true;  each dx is dy: there is no backward
///     static constexpr bool keeps_shape = true;      all operands and y have the same shape
///     static constexpr bool keeps_features = true;   all have as many features or channels
///     static constexpr bool adds_features = true;    y has the sum of those of the operands
///
/// valid: `Sum`, for two operands      invalid: `Relu`
template <class Op, std::size_t N = 2>
concept Merge = requires(const Op& op, const std::array<Shape, N>& in) {
  typename Op::template input_layout<Invariant, Invariant>;
  typename Op::template output_layout<typename Op::template input_layout<Invariant, Invariant>>;
  typename Op::template desired_input_layout<Invariant>;
  { Op::saves } -> std::convertible_to<Saves>;
  { op.output_shape(in) } -> std::convertible_to<Shape>;
};

namespace detail {

template <class Op>
inline constexpr bool passes_gradient = requires {
  requires Op::passes_gradient;
};
template <class Op>
inline constexpr bool adds_features = requires {
  requires Op::adds_features;
};

template <class Op, std::size_t J, class In>
struct operand_layout {
  using type = In;
};
template <class Op, std::size_t J, class In>
requires(J > 0 &&
         requires { typename Op::template operand<J, In>; }) struct operand_layout<Op, J, In> {
  using type = typename Op::template operand<J, In>;
};

/// The layout of operand J of a merge whose first operand has the layout In.
template <class Op, std::size_t J, Layout In>
using operand_t = typename detail::operand_layout<Op, J, In>::type;

}  // namespace detail

}  // namespace shardwise
