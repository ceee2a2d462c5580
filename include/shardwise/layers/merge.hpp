#pragma once
// What a layer that merges several values says about itself.

#include <array>
#include <concepts>
#include <cstddef>

#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"

namespace shardwise {

/// A merge makes one value of several, its operands, and has no parameters. It says what a Layer
/// says, with these differences; N is the number of operands.
///
/// Layouts      `takes`, `gives` and `wants` are those of the first operand; the others are brought
///              to the same layout In.
/// Shapes       `output_shape(const std::array<Shape, N>& in)`; a shape of rank 0 is not known yet.
/// Forward      `forward(Frame&, const std::array<View<const T, In>, N>& x, View<T, Out> y)`.
/// Backward     `backward(Frame&, saved, DY dy, const std::array<View<T, dual_t<In>>, N>& dx)`
///              *assigns* each dx that has memory; those without are not wanted. `saved` is
///              `Nothing{}`, or with Saves::input an array of the N inputs.
///
/// Optional members:
///     static constexpr bool in_place = true;         y may be the memory of any operand
///     static constexpr bool passes_gradient = true;  each dx is dy: there is no backward
///     static constexpr bool keeps_shape = true;      all operands and y have the same shape
///
/// valid: `Sum`      invalid: `Relu`
template <class Op>
concept Merge = requires(const Op& op, const std::array<Shape, 2>& in) {
  typename Op::template takes<Invariant, Invariant>;
  typename Op::template gives<typename Op::template takes<Invariant, Invariant>>;
  typename Op::template wants<Invariant>;
  { Op::saves } -> std::convertible_to<Saves>;
  { op.output_shape(in) } -> std::convertible_to<Shape>;
};

namespace detail {

template <class Op>
inline constexpr bool passes_gradient = requires {
  requires Op::passes_gradient;
};

}  // namespace detail

}  // namespace shardwise
