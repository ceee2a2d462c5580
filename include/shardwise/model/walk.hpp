#pragma once
// A walk through a model without running it: every redistribution, layer and merge, in the order of
// forward. Visitors of this walk make plans and descriptions.

#include <array>
#include <cstddef>
#include <utility>

#include "shardwise/model/bound_composition.hpp"
#include "shardwise/model/bound_recompute.hpp"
#include "shardwise/model/bound_repeat.hpp"
#include "shardwise/model/over_context.hpp"
#include "shardwise/model/rows_over_context.hpp"

namespace shardwise::detail {

/// The default of a visitor: it does nothing. Most visitors have
///
///     redistribution<R, returns, X>(shape)   R before the next visit, and whether its adjoint runs
///                                            in backward; X is the dtype, void for the model's
///     layer<L, In, returns>(layer, in, out)  a layer with an input of shape `in` and layout In,
///                                            and whether its own backward runs
///
/// and some of the members below. One that sees what moves between several ranks along `context`
/// has
///
///     context()                              the number of ranks there
///     over_context<R, L, returns>(shape)     R on a tensor that is L along `tensor`
struct WalkVisitor {
  /// What a visitor stores about the value of the last visit.
  using Position = Nothing;
  ///@{
  /// The walk returns to a value: `go_to` gets what `position` returned when the value was made.
  constexpr Position position() const { return {}; }
  constexpr void go_to(Position) {}
  ///@}
  ///@{
  /// The walk is at an input of the model or, after the last redistribution, at an output.
  template <Layout L>
  constexpr void input(const Shape&) {}
  template <Layout L>
  constexpr void output(const Shape&) {}
  ///@}
  /// Several parts read the value.
  constexpr void fork() {}
  /// A merge whose first operand has the layout In; `operands` are the positions of all operands,
  /// and `in` their shapes.
  template <class Op, Layout In, bool Returns, std::size_t N>
  constexpr void merge(const std::array<Position, N>& /*operands*/,
                       const std::array<Shape, N>& /*in*/, const Shape& /*out*/) {}
  ///@{
  /// The visits between the two are of part `number` of a composition.
  constexpr void enter(std::size_t /*number*/) {}
  constexpr void leave() {}
  ///@}
  ///@{
  /// The visits between the two are inside L, a composition; its input already has its layout,
  /// In, and the shape `in` (the first input, if there are several). Returns says whether any part
  /// of L runs backward. `open` may change the position of an only input; `close` gets what it
  /// returned.
  template <bool Returns, Layout In, class L>
  constexpr Nothing open(const L&, const Shape& /*in*/) {
    return {};
  }
  template <bool Returns, class L>
  constexpr void close(Nothing) {}
  ///@}
};

/// A visitor that sees what moves along `context`.
template <class Visitor>
concept SeesContext = requires(const Visitor& visitor) {
  visitor.context();
};

/// Visits an output of a model that has the layout Given and is wanted in Wanted.
template <Layout Given, Layout Wanted, bool Returns, class Visitor>
constexpr void visit_output(const Shape& shape, Visitor& visitor) {
  visitor.template redistribution<Redistribute<Given, Wanted>, Returns, void>(shape);
  visitor.template output<Wanted>(shape);
}

/// Visits what moves along `context` of operand J of the merge Op, which is L along `tensor`.
template <class Op, std::size_t J, Layout L, bool Returns, class Visitor>
constexpr void visit_operand([[maybe_unused]] const Shape& first, [[maybe_unused]] const Shape& own,
                             [[maybe_unused]] Visitor& visitor) {
  if constexpr (SeesContext<Visitor> && may_need_others<Op, J>)
    if (visitor.context() > 1)
      for_over_context<Op, J>(axis_over_context(first), axis_over_context(own), [&]<class R>() {
        visitor.template over_context<R, L, Returns>(own);
      });
}

/// Visits L between the ends E as `Bound` runs it; S is a `Setting` without context. Returns the
/// shape that L gives for `in`.
template <class L, class S, class E>
struct Walk {
  using In = input_layout_at_t<L, E>;

  template <class Visitor>
  static constexpr Shape visit(const L& layer, const Shape& in, Visitor& visitor) {
    visitor.template redistribution<Redistribute<typename E::offered, In>, S::input_gradient,
                                    input_element_t<L, void>>(in);
    if constexpr (SeesContext<Visitor> && MovesRows<L>)
      if (const int ranks = visitor.context(); ranks > 1)
        for_rows_taken<L>(in, ranks, [&]<class R>() {
          visitor.template over_context<R, In, S::input_gradient>(in);
        });
    const Shape out = layer.output_shape(in);
    visitor.template layer<L, In, goes_backward<L, S, E>>(layer, in, out);
    if constexpr (SeesContext<Visitor> && GivesRows<L>)
      if (const int ranks = visitor.context(); ranks > 1)
        for_rows_given<L>(in, out, ranks, [&]<class R>() {
          visitor.template over_context<R, output_layout_at_t<L, E>, goes_backward<L, S, E>>(out);
        });
    return out;
  }
};

template <class L, class S, class E>
requires ListsParts<L>
struct Walk<L, S, E> {
  using Shapes = std::array<Shape, L::slot_count>;
  template <class Visitor>
  using Positions = std::array<typename Visitor::Position, L::slot_count>;
  template <std::size_t Slot>
  using slot_layout =
      typename L::template slot_layout<Slot, typename E::offered, typename E::wanted>;
  static constexpr const auto& has_gradient = slot_gradients<L, E, S::input_gradients>;

  template <class Visitor>
  static constexpr Shape visit(const L& list, const Shape& in, Visitor& visitor) {
    Shapes shapes{in};
    Positions<Visitor> positions{visitor.position()};
    visit(list, shapes, positions, visitor);
    return shapes[L::last_slot];
  }

  /// Computes the shapes and the visitor's positions of all slots from those of the inputs.
  template <class Visitor>
  static constexpr void visit(const L& list, Shapes& shapes, Positions<Visitor>& positions,
                              Visitor& visitor) {
    [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
      (bring_input<Ks>(shapes[Ks], positions[Ks], visitor), ...);
    }
    (std::make_index_sequence<L::inputs>{});
    const auto opened =
        visitor.template open<goes_backward<L, S, E>, slot_layout<0>>(list, shapes[0]);
    if constexpr (L::inputs == 1) positions[0] = visitor.position();
    [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
      ((visitor.go_to(positions[Ks]), keep<Ks>(positions, visitor)), ...);
    }
    (std::make_index_sequence<L::inputs>{});
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (visit_part<Is>(list, shapes, positions, visitor), ...);
    }
    (std::make_index_sequence<L::size>{});
    visitor.template close<goes_backward<L, S, E>, L>(opened);
  }

  /// After all parts: output K of the model.
  template <std::size_t K, class Visitor>
  static constexpr void leave(const Shapes& shapes, const Positions<Visitor>& positions,
                              Visitor& visitor) {
    constexpr std::size_t slot = L::wires.output_slot(K);
    visitor.go_to(positions[slot]);
    visit_output<slot_layout<slot>, nth_layout_t<typename E::wanted, K>,
                 S::trains && has_gradient[slot]>(shapes[slot], visitor);
  }

 private:
  template <std::size_t K, class Visitor>
  static constexpr void bring_input(const Shape& shape, typename Visitor::Position& position,
                                    Visitor& visitor) {
    visitor.go_to(position);
    bring<K, nth_layout_t<typename E::offered, K>, input_element_t<L, void, K>>(shape, visitor);
    position = visitor.position();
  }

  /// The redistribution before a slot.
  template <std::size_t Slot, Layout Given, class X, class Visitor>
  static constexpr void bring(const Shape& shape, Visitor& visitor) {
    visitor.template redistribution<Redistribute<Given, slot_layout<Slot>>,
                                    S::trains && has_gradient[Slot], X>(shape);
  }

  template <std::size_t Slot, class Visitor>
  static constexpr void keep(Positions<Visitor>& positions, Visitor& visitor) {
    if (L::wires.count[Slot] > 1) visitor.fork();
    positions[Slot] = visitor.position();
  }

  template <std::size_t Index, class Visitor>
  static constexpr void visit_part(const L& list, Shapes& shapes, Positions<Visitor>& positions,
                                   Visitor& visitor) {
    using Part = typename L::template part_type<Index>;
    using At = SettingAt<L, S, E, Index>;
    constexpr std::size_t given = L::inputs + Index;
    const auto& layer = list.template layer<Index>();
    if (L::numbers_parts) visitor.enter(Index);
    if constexpr (Part::arity == 1) {
      visitor.go_to(positions[Part::slots[0]]);
      shapes[given] = Walk<typename At::Layer, Setting<typename S::context, typename At::Use>,
                           typename At::Here>::visit(layer, shapes[Part::slots[0]], visitor);
    } else if constexpr (ListsParts<typename At::Layer>) {
      visit_graph<Index>(layer, shapes, positions, visitor,
                         std::make_index_sequence<Part::arity>{});
    } else {
      shapes[given] = layer.output_shape(operand_shapes<Part>(shapes));
      visit_merge<Index>(shapes, positions, visitor, std::make_index_sequence<Part::arity>{});
    }
    if (L::numbers_parts) visitor.leave();
    bring<given, output_layout_at_t<typename At::Layer, typename At::Here>, void>(shapes[given],
                                                                                  visitor);
    keep<given>(positions, visitor);
  }

  /// Part Index, which is a composition of several inputs.
  template <std::size_t Index, class Layer, class Visitor, std::size_t... Js>
  static constexpr void visit_graph(const Layer& layer, Shapes& shapes,
                                    const Positions<Visitor>& positions, Visitor& visitor,
                                    std::index_sequence<Js...>) {
    using Part = typename L::template part_type<Index>;
    using At = SettingAt<L, S, E, Index>;
    using Steps = Walk<Layer, Setting<typename S::context, typename At::Use>, typename At::Here>;
    auto inside = slots_from<Layer::slot_count>(operand_shapes<Part>(shapes));
    typename Steps::template Positions<Visitor> there{positions[Part::slots[Js]]...};
    Steps::visit(layer, inside, there, visitor);
    shapes[L::inputs + Index] = inside[Layer::last_slot];
  }

  template <std::size_t Index, class Visitor, std::size_t... Js>
  static constexpr void visit_merge(const Shapes& shapes, const Positions<Visitor>& positions,
                                    Visitor& visitor, std::index_sequence<Js...>) {
    using Part = typename L::template part_type<Index>;
    using At = SettingAt<L, S, E, Index>;
    using Op = typename At::Layer;
    using In = input_layout_at_t<Op, typename At::Here>;
    std::array<typename Visitor::Position, Part::arity> operands;
    const auto bring_operand = [&]<std::size_t J>(std::integral_constant<std::size_t, J>) {
      constexpr std::size_t slot = Part::slots[J];
      visitor.go_to(positions[slot]);
      constexpr bool returns = S::trains && has_gradient[slot];
      using Taken = operand_t<Op, J, In>;
      visitor.template redistribution<Redistribute<slot_layout<slot>, Taken>, returns, void>(
          shapes[slot]);
      visit_operand<Op, J, Taken, returns>(shapes[Part::slots[0]], shapes[slot], visitor);
      return visitor.position();
    };
    ((operands[Js] = bring_operand(std::integral_constant<std::size_t, Js>{})), ...);
    visitor.template merge<Op, In, goes_backward<Op, typename At::Use, typename At::Here>>(
        operands, operand_shapes<Part>(shapes), shapes[L::inputs + Index]);
  }
};

template <class L, class S, class E>
requires RepeatsBlock<L>
struct Walk<L, S, E> {
  using Stream = input_layout_at_t<L, E>;
  using Block = typename L::repeated_block;
  using BlockEnds = typename L::template block_ends<Stream>;
  using Enter = Redistribute<typename E::offered, Stream>;
  using Leave = Redistribute<output_layout_at_t<Block, BlockEnds>, Stream>;
  using Later = Setting<typename S::context, use_behind<L, S, E>>;

  template <class Visitor>
  static constexpr Shape visit(const L& repeat, const Shape& in, Visitor& visitor) {
    visitor.template redistribution<Enter, S::input_gradient, void>(in);
    const auto opened = visitor.template open<goes_backward<L, S, E>, Stream>(repeat, in);
    Shape shape = in;
    for (std::size_t i = 0; i < repeat.times(); ++i) {
      visitor.enter(i);
      shape = i == 0 ? Walk<Block, S, BlockEnds>::visit(repeat.block(), shape, visitor)
                     : Walk<Block, Later, BlockEnds>::visit(repeat.block(), shape, visitor);
      visitor.template redistribution<Leave, goes_backward<L, S, E>, void>(shape);
      visitor.leave();
    }
    visitor.template close<goes_backward<L, S, E>, L>(opened);
    return shape;
  }
};

/// Visits a whole model: its inputs, its parts, and its outputs.
template <class E, class Use, class L, class Visitor>
constexpr void walk(const L& model, const shapes_t<typename E::offered>& in, Visitor& visitor) {
  using S = Setting<void, Use>;
  if constexpr (ListsParts<L>) {
    using Steps = Walk<L, S, E>;
    auto shapes = slots_from<L::slot_count>(in);
    typename Steps::template Positions<Visitor> positions{};
    [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
      ((visitor.template input<nth_layout_t<typename E::offered, Ks>>(shapes[Ks]),
        positions[Ks] = visitor.position()),
       ...);
    }
    (std::make_index_sequence<L::inputs>{});
    Steps::visit(model, shapes, positions, visitor);
    [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
      (Steps::template leave<Ks>(shapes, positions, visitor), ...);
    }
    (std::make_index_sequence<L::outputs>{});
  } else {
    visitor.template input<typename E::offered>(in);
    const Shape out = Walk<L, S, E>::visit(model, in, visitor);
    visit_output<output_layout_at_t<L, E>, typename E::wanted, goes_backward<L, S, E>>(out,
                                                                                       visitor);
  }
}

}  // namespace shardwise::detail
