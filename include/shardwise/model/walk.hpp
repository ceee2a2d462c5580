#pragma once
// A walk through a model without running it: every redistribution and every layer, in the order of
// forward. Plans and descriptions are made of what a visitor sees on it.

#include <cstddef>
#include <utility>

#include "shardwise/model/bound_repeat.hpp"
#include "shardwise/model/bound_residual.hpp"
#include "shardwise/model/bound_sequential.hpp"

namespace shardwise::detail {

template <class L, class Visitor>
constexpr void open(Visitor& visitor) {
  if constexpr (requires { visitor.template open<L>(); }) visitor.template open<L>();
}
template <class L, class Visitor>
constexpr void close(Visitor& visitor) {
  if constexpr (requires { visitor.template close<L>(); }) visitor.template close<L>();
}

/// Visits L between the ends E as `Bound` runs it; S is a `Setting` without context. Returns the
/// shape that L gives for `in`. A visitor has
///
///     redistribution<R, returns>(shape)      R in front of what comes next, and whether its
///                                            adjoint runs in backward
///     layer<L, In, returns>(layer, in, out)  a layer that takes `in`, laid out as In, and whether
///                                            its own backward runs
///     enter(number), leave()                 what is visited in between is part `number`
///
/// and, if it asks for them,
///
///     sum()                                  a Residual adds its input to what its block has given
///     open<L>(), close<L>()                  what is visited in between is inside of L, a
///                                            composition; its input is already laid out for it
template <class L, class S, class E>
struct Walk {
  using In = takes_t<L, E>;

  template <class Visitor>
  static constexpr Shape visit(const L& layer, const Shape& in, Visitor& visitor) {
    visitor.template redistribution<Redistribute<typename E::offered, In>, S::input_gradient>(in);
    const Shape out = layer.output_shape(in);
    visitor.template layer<L, In, goes_backward<L, S, E>>(layer, in, out);
    return out;
  }
};

template <class L, class S, class E>
requires requires { typename L::composition; }
struct Walk<L, S, E> {
  template <class Visitor>
  static constexpr Shape visit(const L& layers, const Shape& in, Visitor& visitor) {
    Shape shape = in;
    open<L>(visitor);
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      ((shape = visit_part<Is>(layers, shape, visitor)), ...);
    }
    (std::make_index_sequence<L::size>{});
    close<L>(visitor);
    return shape;
  }

 private:
  template <std::size_t I, class Visitor>
  static constexpr Shape visit_part(const L& layers, const Shape& in, Visitor& visitor) {
    using At = SettingAt<L, S, E, I>;
    using Part =
        Walk<typename At::Layer, Setting<typename S::context, typename At::Use>, typename At::Here>;
    visitor.enter(I);
    const Shape out = Part::visit(layers.template layer<I>(), in, visitor);
    visitor.leave();
    return out;
  }
};

template <class L, class S, class E>
requires requires { typename L::residual_block; }
struct Walk<L, S, E> {
  using Stream = takes_t<L, E>;
  using Block = typename L::residual_block;
  using BlockEnds = Ends<Stream, Stream>;
  using Enter = Redistribute<typename E::offered, Stream>;
  using Leave = Redistribute<gives_t<Block, BlockEnds>, Stream>;

  template <class Visitor>
  static constexpr Shape visit(const L& residual, const Shape& in, Visitor& visitor) {
    visitor.template redistribution<Enter, S::input_gradient>(in);
    open<L>(visitor);
    const Shape out = Walk<Block, S, BlockEnds>::visit(residual.block(), in, visitor);
    visitor.template redistribution<Leave, goes_backward<L, S, E>>(out);
    if constexpr (requires { visitor.sum(); }) visitor.sum();
    close<L>(visitor);
    return out;
  }
};

template <class L, class S, class E>
requires requires { typename L::repeated_block; }
struct Walk<L, S, E> {
  using Stream = takes_t<L, E>;
  using Block = typename L::repeated_block;
  using BlockEnds = typename L::template block_ends<Stream>;
  using Enter = Redistribute<typename E::offered, Stream>;
  using Leave = Redistribute<gives_t<Block, BlockEnds>, Stream>;
  using Later = Setting<typename S::context, use_behind<L, S, E>>;

  template <class Visitor>
  static constexpr Shape visit(const L& repeat, const Shape& in, Visitor& visitor) {
    visitor.template redistribution<Enter, S::input_gradient>(in);
    open<L>(visitor);
    Shape shape = in;
    for (std::size_t i = 0; i < L::times; ++i) {
      visitor.enter(i);
      shape = i == 0 ? Walk<Block, S, BlockEnds>::visit(repeat.block(), shape, visitor)
                     : Walk<Block, Later, BlockEnds>::visit(repeat.block(), shape, visitor);
      visitor.template redistribution<Leave, goes_backward<L, S, E>>(shape);
      visitor.leave();
    }
    close<L>(visitor);
    return shape;
  }
};

}  // namespace shardwise::detail
