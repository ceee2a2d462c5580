#pragma once
// A walk through a model without running it: every redistribution, layer and merge, in the order of
// forward. Plans and descriptions are made of what a visitor sees on it.

#include <array>
#include <cstddef>
#include <utility>

#include "shardwise/model/bound_composition.hpp"
#include "shardwise/model/bound_repeat.hpp"

namespace shardwise::detail {

/// What a visitor does unless it says otherwise: nothing. Most are told of
///
///     redistribution<R, returns>(shape)      R in front of what comes next, and whether its
///                                            adjoint runs in backward
///     layer<L, In, returns>(layer, in, out)  a layer that takes `in`, laid out as In, and whether
///                                            its own backward runs
///
/// and some of what stands here.
struct WalkVisitor {
  /// What a visitor knows of the value that it was told of last.
  using Position = Nothing;
  ///@{
  /// The walk comes back to a value: `go_to` is given what `position` was when it was made.
  constexpr Position position() const { return {}; }
  constexpr void go_to(Position) {}
  ///@}
  /// Several parts read the value.
  constexpr void fork() {}
  /// A merge whose first operand is laid out as In; `operands` are the positions of all, and `in`
  /// the shapes.
  template <class Op, Layout In, bool Returns, std::size_t N>
  constexpr void merge(const std::array<Position, N>& /*operands*/,
                       const std::array<Shape, N>& /*in*/, const Shape& /*out*/) {}
  ///@{
  /// What is visited in between is part `number` of a composition.
  constexpr void enter(std::size_t /*number*/) {}
  constexpr void leave() {}
  ///@}
  ///@{
  /// What is visited in between is inside of L, a composition; its input is laid out for it.
  template <class L>
  constexpr void open() {}
  template <class L>
  constexpr void close() {}
  ///@}
};

/// Visits L between the ends E as `Bound` runs it; S is a `Setting` without context. Returns the
/// shape that L gives for `in`.
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
requires ListsParts<L>
struct Walk<L, S, E> {
  using Shapes = std::array<Shape, L::size + 1>;
  template <class Visitor>
  using Positions = std::array<typename Visitor::Position, L::size + 1>;
  template <std::size_t Slot>
  using slot_layout =
      typename L::template slot_layout<Slot, typename E::offered, typename E::wanted>;
  static constexpr const auto& has_gradient = slot_gradients<L, E, S::input_gradient>;

  template <class Visitor>
  static constexpr Shape visit(const L& list, const Shape& in, Visitor& visitor) {
    Shapes shapes{in};
    Positions<Visitor> positions{};
    bring<0, typename E::offered>(in, visitor);
    visitor.template open<L>();
    keep<0>(positions, visitor);
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (visit_part<Is>(list, shapes, positions, visitor), ...);
    }
    (std::make_index_sequence<L::size>{});
    visitor.template close<L>();
    return shapes[L::size];
  }

 private:
  /// The redistribution in front of a slot.
  template <std::size_t Slot, Layout Given, class Visitor>
  static constexpr void bring(const Shape& shape, Visitor& visitor) {
    visitor.template redistribution<Redistribute<Given, slot_layout<Slot>>,
                                    S::trains && has_gradient[Slot]>(shape);
  }

  template <std::size_t Slot, class Visitor>
  static constexpr void keep(Positions<Visitor>& positions, Visitor& visitor) {
    if (L::wires.count[Slot] > 1) visitor.fork();
    positions[Slot] = visitor.position();
  }

  template <std::size_t I, class Visitor>
  static constexpr void visit_part(const L& list, Shapes& shapes, Positions<Visitor>& positions,
                                   Visitor& visitor) {
    using Part = typename L::template part_type<I>;
    using At = SettingAt<L, S, E, I>;
    const auto& layer = list.template layer<I>();
    if (L::numbers_parts) visitor.enter(I);
    if constexpr (Part::arity == 1) {
      visitor.go_to(positions[Part::slots[0]]);
      shapes[I + 1] = Walk<typename At::Layer, Setting<typename S::context, typename At::Use>,
                           typename At::Here>::visit(layer, shapes[Part::slots[0]], visitor);
    } else {
      shapes[I + 1] = layer.output_shape(operand_shapes<Part>(shapes));
      visit_merge<I>(shapes, positions, visitor, std::make_index_sequence<Part::arity>{});
    }
    if (L::numbers_parts) visitor.leave();
    bring<I + 1, gives_t<typename At::Layer, typename At::Here>>(shapes[I + 1], visitor);
    keep<I + 1>(positions, visitor);
  }

  template <std::size_t I, class Visitor, std::size_t... Js>
  static constexpr void visit_merge(const Shapes& shapes, const Positions<Visitor>& positions,
                                    Visitor& visitor, std::index_sequence<Js...>) {
    using Part = typename L::template part_type<I>;
    using At = SettingAt<L, S, E, I>;
    using Op = typename At::Layer;
    using In = takes_t<Op, typename At::Here>;
    std::array<typename Visitor::Position, Part::arity> operands;
    const auto bring_operand = [&]<std::size_t J>(std::integral_constant<std::size_t, J>) {
      constexpr std::size_t slot = Part::slots[J];
      visitor.go_to(positions[slot]);
      visitor.template redistribution<Redistribute<slot_layout<slot>, operand_t<Op, J, In>>,
                                      S::trains && has_gradient[slot]>(shapes[slot]);
      return visitor.position();
    };
    ((operands[Js] = bring_operand(std::integral_constant<std::size_t, Js>{})), ...);
    visitor.template merge<Op, In, goes_backward<Op, typename At::Use, typename At::Here>>(
        operands, operand_shapes<Part>(shapes), shapes[I + 1]);
  }
};

template <class L, class S, class E>
requires RepeatsBlock<L>
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
    visitor.template open<L>();
    Shape shape = in;
    for (std::size_t i = 0; i < L::times; ++i) {
      visitor.enter(i);
      shape = i == 0 ? Walk<Block, S, BlockEnds>::visit(repeat.block(), shape, visitor)
                     : Walk<Block, Later, BlockEnds>::visit(repeat.block(), shape, visitor);
      visitor.template redistribution<Leave, goes_backward<L, S, E>>(shape);
      visitor.leave();
    }
    visitor.template close<L>();
    return shape;
  }
};

}  // namespace shardwise::detail
