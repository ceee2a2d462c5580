#pragma once
// A composition that runs.

#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "shardwise/core/error.hpp"
#include "shardwise/model/bound.hpp"
#include "shardwise/model/composition.hpp"
#include "shardwise/model/finite.hpp"
#include "shardwise/model/fusion.hpp"
#include "shardwise/model/parameter.hpp"
#include "shardwise/model/sum.hpp"

namespace shardwise {

namespace detail {

/// Which part of a composition is at work, for the place of an error that passes.
template <class L>
struct Position {
  std::size_t number = 0;

  void add_to(error& e) const { add(e, std::make_index_sequence<L::size>{}); }

 private:
  template <std::size_t... Is>
  void add(error& e, std::index_sequence<Is...>) const {
    using Name = std::string (*)();
    static constexpr Name names[] = {name_of<typename L::template layer_type<Is>>...};
    static constexpr bool compositions[] = {IsComposition<typename L::template layer_type<Is>>...};
    if constexpr (L::numbers_parts) {
      e.add_place(sentence({number, ": ", names[number]()}), compositions[number] ? " / " : ": ");
    } else if (!compositions[number]) {
      e.add_place(names[number]());
    }
  }
};

/// Makes a call for part I of the composition L, and tells the observer of it if it has a number.
template <std::size_t I, class L, class Context, class Call>
decltype(auto) at_part(Run<Context>& run, Position<L>& at, Call&& call) {
  at.number = I;
  if constexpr (L::numbers_parts) {
    const Observation here(run.observer, [] {
      return Work{Work::Kind::part, name_of<typename L::template layer_type<I>>, I, {}};
    });
    return call();
  } else {
    return call();
  }
}

/// The sum of what two parts give back for the value that both read, in the memory of one of them
/// if nobody else holds that.
template <class Context, class T, Layout L>
Value<T, L> added(Run<Context>& run, Value<T, L>&& a, Value<T, L>&& b) {
  const Observation here(run.observer, [] {
    return Work{Work::Kind::compute, [] { return std::string("the sum of gradients"); }, 0, {}};
  });
  const View<const T, L> first = a.view(), second = b.view();
  Value<T, L> sum = a.may_write()   ? std::move(a)
                    : b.may_write() ? std::move(b)
                                    : Value<T, L>(run.pool, first.global(), run.place());
  run.backend.for_each(first.size(),
                       Summed<T, 2>{{first.data(), second.data()}, sum.writable().data()});
  if (run.finds_non_finite)
    require_finite(run.backend, run.pool, run.ranks, sum.view().span(), "the sum of gradients");
  return sum;
}

template <std::size_t I, class B>
struct NumberedBound {
  B bound;
};

template <class L, class S, class E, class Indices>
struct BoundParts;
template <class L, class S, class E, std::size_t... Is>
struct BoundParts<L, S, E, std::index_sequence<Is...>>
    : NumberedBound<Is, bound_part_t<L, S, E, Is>>... {
  using Shapes = std::array<Shape, L::size + 1>;

  /// `shapes` begins with that of the input; bases are made in their order, so that each finds the
  /// shapes of those before it.
  BoundParts(const L& list, Shapes shapes, Binder<typename S::context>& binder, Position<L>& at)
      : NumberedBound<Is, bound_part_t<L, S, E, Is>>{bind<Is>(list, shapes, binder, at)}... {}

 private:
  template <std::size_t I>
  static auto bind(const L& list, Shapes& shapes, Binder<typename S::context>& binder,
                   Position<L>& at) {
    using Part = typename L::template part_type<I>;
    using Layer = typename Part::layer;
    using B = bound_part_t<L, S, E, I>;
    return at_part<I>(binder.run, at, [&] {
      if constexpr (I > 0) {
        // Asked of what runs, whose code is there once for all sizes.
        using Before = typename L::template part_type<I - 1>;
        shapes[I] = part_shape<Before>(as_dynamic(list.template layer<I - 1>()), shapes);
      }
      const Layer& layer = list.template layer<I>();
      if constexpr (IsComposition<Layer>) {
        return B(layer, shapes[Part::slots[0]], binder);
      } else if constexpr (Part::arity == 1) {
        return B(as_dynamic(layer), shapes[Part::slots[0]], binder, name_of<Layer>);
      } else {
        return B(layer, operand_shapes<Part>(shapes));
      }
    });
  }
};

/// What lies in a slot while a composition runs, or the gradient of it.
template <std::size_t Slot, class V>
struct SlotValue {
  V value;
};
template <class Indices, class... Vs>
struct SlotValues;
template <std::size_t... Slots, class... Vs>
struct SlotValues<std::index_sequence<Slots...>, Vs...> : SlotValue<Slots, Vs>... {};

template <std::size_t Slot, class V>
V& in_slot(SlotValue<Slot, V>& slot) {
  return slot.value;
}

}  // namespace detail

/// The parts run in their order, and backward in the reverse order. The last part that reads a
/// value takes it over; others share it. A value's gradient is the sum of what its readers give.
template <class L, class S, class E>
requires detail::ListsParts<L>
class Bound<L, S, E> {
  using Ctx = typename S::context;
  using T = typename Ctx::dtype;
  using Numbers = std::make_index_sequence<L::size>;
  using Slots = std::make_index_sequence<L::size + 1>;
  using Parts = detail::BoundParts<L, S, E, Numbers>;
  using Position = detail::Position<L>;

  template <std::size_t I>
  using At = detail::Fusion<L, S, E, I>;
  template <std::size_t I>
  using part_type = typename L::template part_type<I>;
  template <std::size_t Slot>
  using slot_layout =
      typename L::template slot_layout<Slot, typename E::offered, typename E::wanted>;

  template <class Indices>
  struct values_of;
  template <std::size_t... Is>
  struct values_of<std::index_sequence<Is...>> {
    using type = detail::SlotValues<Slots, Value<T, slot_layout<Is>>...>;
    using gradients = detail::SlotValues<Slots, Value<T, dual_t<slot_layout<Is>>>...>;
  };
  using Values = typename values_of<Slots>::type;
  using Gradients = typename values_of<Slots>::gradients;
  static constexpr const auto& has_gradient = detail::slot_gradients<L, E, S::input_gradient>;

 public:
  Bound(const L& list, const Shape& in, Binder<Ctx>& binder)
      : parts_(placed([&](Position& at) { return Parts(list, {in}, binder, at); })) {}

  auto forward(Run<Ctx>& run, Value<T, typename E::offered>&& x) {
    Values values;
    put<0>(run, values, std::move(x));
    placed([&](Position& at) { forward(run, values, at, Numbers{}); });
    return std::move(detail::in_slot<L::size>(values));
  }

  input_gradient_t<T, E, S> backward(Run<Ctx>& run, Value<T, dual_t<gives_t<L, E>>>&& dy) {
    Gradients gradients;
    detail::in_slot<L::size>(gradients) = std::move(dy);
    placed([&](Position& at) { backward(run, gradients, at, Numbers{}); });
    if constexpr (S::input_gradient) {
      return converted<dual_t<typename E::offered>>(run, std::move(detail::in_slot<0>(gradients)));
    } else {
      return {};
    }
  }

  template <class Visitor>
  void visit_parameters(Run<Ctx>& run, const std::string& path, Visitor&& f) {
    visit(run, path, f, Numbers{});
  }

  template <class Visitor>
  void visit_buffers(const std::string& path, Visitor&& f) {
    buffers(path, f, Numbers{});
  }

  void forget() { forget(Numbers{}); }

 private:
  template <std::size_t I>
  auto& bound() {
    return static_cast<detail::NumberedBound<I, detail::bound_part_t<L, S, E, I>>&>(parts_).bound;
  }

  /// Adds the part at work to the place of an error that passes.
  template <class Call>
  static auto placed(Call&& call) {
    Position at;
    try {
      return call(at);
    } catch (error& e) {
      at.add_to(e);
      throw;
    }
  }

  template <std::size_t... Is>
  void forward(Run<Ctx>& run, Values& values, Position& at, std::index_sequence<Is...>) {
    (forward_part<Is>(run, values, at, std::make_index_sequence<part_type<Is>::arity>{}), ...);
  }

  template <std::size_t I, std::size_t... Js>
  void forward_part(Run<Ctx>& run, Values& values, Position& at, std::index_sequence<Js...>) {
    using Part = At<I>;
    const auto run_part = [&](auto&... z) {
      return detail::at_part<I>(
          run, at, [&] { return bound<I>().forward(run, operand<I, Js>(values)..., z...); });
    };
    if constexpr (Part::is_applied()) {
      return;
    } else if constexpr (Part::fused() == Activation::none) {
      put<I + 1>(run, values, run_part());
    } else if constexpr (Part::gives_z) {
      Value<T, slot_layout<I + 1>> z;
      auto y = run_part(z);
      bound<I + 1>().adopt(run, y, std::move(z));
      put<I + 2>(run, values, std::move(y));
    } else {
      auto y = run_part();
      bound<I + 1>().adopt(run, y);
      put<I + 2>(run, values, std::move(y));
    }
  }

  /// Brings a value to the layout in which it is read.
  template <std::size_t Slot, class V>
  static void put(Run<Ctx>& run, Values& values, V&& value) {
    detail::in_slot<Slot>(values) = converted<slot_layout<Slot>>(run, std::forward<V>(value));
  }

  /// What part I reads as its operand J. The last to read a value takes it.
  template <std::size_t I, std::size_t J>
  static auto operand(Values& values) {
    auto& value = detail::in_slot<part_type<I>::slots[J]>(values);
    if constexpr (is_last_read<I, J>()) {
      return std::move(value);
    } else {
      return std::remove_reference_t<decltype(value)>(value);
    }
  }

  template <std::size_t I, std::size_t J>
  static consteval bool is_last_read() {
    const auto& last = L::wires.last[part_type<I>::slots[J]];
    return last.part == I && last.operand == J;
  }

  template <std::size_t... Is>
  void backward(Run<Ctx>& run, Gradients& gradients, Position& at, std::index_sequence<Is...>) {
    (backward_part<L::size - 1 - Is>(run, gradients, at), ...);
  }

  template <std::size_t I>
  void backward_part(Run<Ctx>& run, Gradients& gradients, Position& at) {
    using Part = At<I>;
    if constexpr (goes_backward<typename Part::Layer, typename Part::Use, typename Part::Here>) {
      auto dx = detail::at_part<I>(run, at, [&] {
        auto dy = converted<dual_t<gives_t<typename Part::Layer, typename Part::Here>>>(
            run, std::move(detail::in_slot<I + 1>(gradients)));
        if constexpr (Part::has_its_slope()) {
          return bound<I>().skip_backward(run, std::move(dy));
        } else if constexpr (Part::takes_slope) {
          const auto z = bound<I - 1>().take_saved();
          return bound<I>().backward(run, std::move(dy), L::template layer_type<I - 1>::activation,
                                     z.view().data());
        } else {
          return bound<I>().backward(run, std::move(dy));
        }
      });
      if constexpr (part_type<I>::arity == 1) {
        give_back<I, 0>(run, gradients, std::move(dx));
      } else {
        [&]<std::size_t... Js>(std::index_sequence<Js...>) {
          (give_back<I, sizeof...(Js) - 1 - Js>(run, gradients,
                                                std::move(std::get<sizeof...(Js) - 1 - Js>(dx))),
           ...);
        }
        (std::make_index_sequence<part_type<I>::arity>{});
      }
    }
  }

  /// Part I gives back the gradient of its operand J. The last to read a value is the first to do
  /// so.
  template <std::size_t I, std::size_t J, class G>
  static void give_back(Run<Ctx>& run, Gradients& gradients, G dx) {
    constexpr std::size_t slot = part_type<I>::slots[J];
    if constexpr (has_gradient[slot]) {
      auto& sum = detail::in_slot<slot>(gradients);
      if constexpr (is_last_read<I, J>()) {
        sum = std::move(dx);
      } else {
        sum = detail::added(run, std::move(sum), std::move(dx));
      }
    }
  }

  template <class Visitor, std::size_t... Is>
  void visit(Run<Ctx>& run, const std::string& path, Visitor&& f, std::index_sequence<Is...>) {
    (bound<Is>().visit_parameters(run, path_of<Is>(path), f), ...);
  }

  template <class Visitor, std::size_t... Is>
  void buffers(const std::string& path, Visitor&& f, std::index_sequence<Is...>) {
    (bound<Is>().visit_buffers(path_of<Is>(path), f), ...);
  }

  template <std::size_t... Is>
  void forget(std::index_sequence<Is...>) {
    (bound<Is>().forget(), ...);
  }

  template <std::size_t I>
  static std::string path_of(const std::string& path) {
    return L::numbers_parts ? detail::path_of_part(path, I) : path;
  }

  Parts parts_;
};

}  // namespace shardwise
