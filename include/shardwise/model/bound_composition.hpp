#pragma once
// A composition that runs.

#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <utility>

#include "shardwise/core/type_set.hpp"
#include "shardwise/model/binder.hpp"
#include "shardwise/model/bound.hpp"
#include "shardwise/model/bound_parts.hpp"
#include "shardwise/model/composition.hpp"
#include "shardwise/model/finite.hpp"
#include "shardwise/model/fusion.hpp"
#include "shardwise/model/parameter.hpp"
#include "shardwise/model/sum.hpp"
#include "shardwise/model/values.hpp"

namespace shardwise::detail {

/// The sum of the gradients that two parts give for the value that both read. It uses the memory of
/// one of them if no other value shares it.
template <class Context, class T, Layout L>
Value<T, L> added(Run<Context>& run, Value<T, L>&& a, Value<T, L>&& b) {
  const Observation here(
      run.observer,
      Work{Work::Kind::compute, [] { return std::string("the sum of gradients"); }, 0, {}});
  const View<const T, L> first = a.view(), second = b.view();
  Value<T, L> sum = a.may_write()   ? std::move(a)
                    : b.may_write() ? std::move(b)
                                    : Value<T, L>(run.pool, first.global(), run.place());
  run.backend.for_each(first.size(),
                       Summed<T, 2>{{first.data(), second.data()}, sum.writable().data()});
  if (run.pass.finds_non_finite())
    require_finite(run.backend, run.pool, run.all_ranks, sum.view().span(), "the sum of gradients");
  return sum;
}

///@{
/// The calls of a part, in one function for all parts of one type. If all parts of a composition
/// were in one function, the optimiser would take long.
template <class B, class Context, class Y, class... Xs>
[[gnu::noinline]] void forward_into(B& bound, Run<Context>& run, Y& y, Xs&&... xs) {
  y = converted<typename Y::layout>(run, bound.forward(run, std::forward<Xs>(xs)...));
}
template <Layout Back, class B, class Context, class DY, class DX>
[[gnu::noinline]] void backward_into(B& bound, Run<Context>& run, DY& dy, DX& dx) {
  dx = bound.backward(run, converted<Back>(run, std::move(dy)));
}
///@}

/// The dtype of the value in a slot; an input may have its own.
template <bool IsInput>
struct slot_element {
  template <class L, class T, std::size_t Slot>
  using of = T;
};
template <>
struct slot_element<true> {
  template <class L, class T, std::size_t Slot>
  using of = input_element_t<L, T, Slot>;
};

/// The place of a slot's value, or of its gradient, while L runs. Values that only go from one part
/// to the next share one place for each type.
template <class L, std::size_t Slot>
inline constexpr std::size_t place_of_slot = L::wires.goes_straight(Slot) ? L::last_slot : Slot;

template <std::size_t Place, class V>
struct SlotValue {
  V value;
};

template <class... Places>
struct SlotValues : Places... {};
template <class Place>
auto& held(Place& place) noexcept {
  return place.value;
}

/// The value that a part reads: its last reader takes it over, other readers share it.
template <bool IsLast, class V>
decltype(auto) read(V& given) {
  if constexpr (IsLast) {
    return std::move(given);
  } else {
    return V(given);
  }
}

/// The parts run in order, and backward in reverse order. The last part that reads a value takes it
/// over; others share it. A value's gradient is the sum of the gradients from its readers.
template <class L, class S, class E>
requires detail::ListsParts<L>
class Bound<L, S, E> {
  using Ctx = typename S::context;
  using T = typename Ctx::dtype;
  using Numbers = std::make_index_sequence<L::size>;
  using Parts = detail::BoundParts<L, S, E, Numbers>;

  template <std::size_t Index>
  using At = detail::SettingAt<L, S, E, Index>;
  template <std::size_t Index>
  using part_type = typename L::template part_type<Index>;
  template <std::size_t Index>
  static constexpr std::size_t given_slot = L::inputs + Index;
  template <std::size_t Slot>
  using slot_layout =
      typename L::template slot_layout<Slot, typename E::offered, typename E::wanted>;

  template <std::size_t Slot>
  using value_in = detail::SlotValue<
      detail::place_of_slot<L, Slot>,
      Value<typename detail::slot_element<(Slot < L::inputs)>::template of<L, T, Slot>,
            slot_layout<Slot>>>;
  template <std::size_t Slot>
  using gradient_in =
      detail::SlotValue<detail::place_of_slot<L, Slot>, Value<T, dual_t<slot_layout<Slot>>>>;

  template <class Indices>
  struct slots;
  template <std::size_t... Is>
  struct slots<std::index_sequence<Is...>> {
    using values =
        typename decltype((detail::TypeSet<>{} | ... |
                           detail::TypeSet<value_in<Is>>{}))::template as<detail::SlotValues>;
    using gradients =
        typename decltype((detail::TypeSet<>{} | ... |
                           detail::TypeSet<gradient_in<Is>>{}))::template as<detail::SlotValues>;
  };
  using Values = typename slots<std::make_index_sequence<L::slot_count>>::values;
  using SlotGradients = typename slots<std::make_index_sequence<L::slot_count>>::gradients;
  using InputNumbers = std::make_index_sequence<L::inputs>;
  using OutputNumbers = std::make_index_sequence<L::outputs>;
  static constexpr const auto& has_gradient = detail::slot_gradients<L, E, S::input_gradients>;

 public:
  using parameter_types = typename Parts::parameter_types;
  /// What goes back to the slots that it reads, if it has several inputs.
  using Gradients = input_gradients_t<T, E, S>;

  Bound(const L& list, const detail::shapes_of<L::inputs>& in, Binder<Ctx>& binder)
      : Bound(list, detail::slots_from<L::slot_count>(in), binder) {}

  values_t<T, output_layout_at_t<L, E>> forward(Run<Ctx>& run,
                                                input_values_t<L, T, typename E::offered>&& x) {
    Values values;
    put_inputs(run, values, x, InputNumbers{});
    forward(run, values, Numbers{});
    return outputs(values, OutputNumbers{});
  }

  input_gradients_t<T, E, S> backward(Run<Ctx>& run,
                                      values_t<T, detail::duals_t<output_layout_at_t<L, E>>>&& dy) {
    SlotGradients gradients;
    put_output_gradients(gradients, dy, OutputNumbers{});
    backward(run, gradients, Numbers{});
    return input_gradients(run, gradients, InputNumbers{});
  }

  template <class Visitor>
  void visit_buffers(const std::string& path, Visitor&& f) {
    buffers(path, f, Numbers{});
  }

 private:
  template <std::size_t Index>
  auto& bound() noexcept {
    return static_cast<detail::NumberedBound<Index, detail::bound_part_t<L, S, E, Index>>&>(parts_)
        .bound;
  }

  Bound(const L& list, typename Parts::Shapes&& shapes, Binder<Ctx>& binder)
      : parts_(list, shapes, binder) {}

  template <class X, std::size_t... Ks>
  static void put_inputs(Run<Ctx>& run, Values& values, X& x, std::index_sequence<Ks...>) {
    detail::with_tensors(x, [&](auto&... one) {
      ((detail::held<value_in<Ks>>(values) = converted<slot_layout<Ks>>(run, std::move(one))), ...);
    });
  }

  template <std::size_t... Ks>
  static values_t<T, output_layout_at_t<L, E>> outputs(Values& values, std::index_sequence<Ks...>) {
    return {std::move(detail::held<value_in<L::wires.output_slot(Ks)>>(values))...};
  }

  template <class DY, std::size_t... Ks>
  static void put_output_gradients(SlotGradients& gradients, DY& dy, std::index_sequence<Ks...>) {
    detail::with_tensors(dy, [&](auto&... one) {
      ((detail::held<gradient_in<L::wires.output_slot(Ks)>>(gradients) = std::move(one)), ...);
    });
  }

  /// From the last to the first: the reverse of forward's order.
  template <std::size_t... Ks>
  input_gradients_t<T, E, S> input_gradients(Run<Ctx>& run, SlotGradients& gradients,
                                             std::index_sequence<Ks...>) {
    constexpr std::size_t last = L::inputs - 1;
    input_gradients_t<T, E, S> dx;
    if constexpr (last == 0) {
      bring_back<0>(run, gradients, dx);
    } else {
      (bring_back<last - Ks>(run, gradients, std::get<last - Ks>(dx)), ...);
    }
    return dx;
  }
  template <std::size_t K, class DX>
  void bring_back([[maybe_unused]] Run<Ctx>& run, [[maybe_unused]] SlotGradients& gradients,
                  [[maybe_unused]] DX& dx) {
    if constexpr (!std::same_as<DX, Nothing>)
      dx = converted<typename DX::layout>(run, std::move(detail::held<gradient_in<K>>(gradients)));
  }

  template <std::size_t... Is>
  void forward(Run<Ctx>& run, Values& values, std::index_sequence<Is...>) {
    (forward_part<Is>(run, values, std::make_index_sequence<part_type<Is>::arity>{}), ...);
  }

  template <std::size_t Index, std::size_t... Js>
  void forward_part(Run<Ctx>& run, Values& values, std::index_sequence<Js...>) {
    [[maybe_unused]] const auto here = detail::in_part<L, Index>(run);
    auto& y = detail::held<value_in<given_slot<Index>>>(values);
    if constexpr (detail::ReadsSeveral<typename At<Index>::Layer>) {
      using Inputs =
          input_values_t<typename At<Index>::Layer, T, typename At<Index>::Here::offered>;
      detail::forward_into(bound<Index>(), run, y,
                           Inputs{detail::read<is_last_read<Index, Js>>(
                               detail::held<read_in<Index, Js>>(values))...});
    } else {
      detail::forward_into(
          bound<Index>(), run, y,
          detail::read<is_last_read<Index, Js>>(detail::held<read_in<Index, Js>>(values))...);
    }
  }

  /// The place of the value that part Index reads as its operand J.
  template <std::size_t Index, std::size_t J>
  using read_in = value_in<part_type<Index>::slots[J]>;

  template <std::size_t Index, std::size_t J>
  static constexpr bool is_last_read =
      L::wires.last[part_type<Index>::slots[J]].part ==
      Index&& L::wires.last[part_type<Index>::slots[J]].operand == J;

  template <std::size_t... Is>
  void backward(Run<Ctx>& run, SlotGradients& gradients, std::index_sequence<Is...>) {
    (backward_part<L::size - 1 - Is>(run, gradients), ...);
  }

  template <std::size_t Index>
  void backward_part(Run<Ctx>& run, SlotGradients& gradients) {
    using Placed = At<Index>;
    using B = detail::bound_part_t<L, S, E, Index>;
    using Back = dual_t<output_layout_at_t<typename Placed::Layer, typename Placed::Here>>;
    if constexpr (goes_backward<typename Placed::Layer, typename Placed::Use,
                                typename Placed::Here>) {
      auto& dy = detail::held<gradient_in<given_slot<Index>>>(gradients);
      [[maybe_unused]] const auto here = detail::in_part<L, Index>(run);
      if constexpr (part_type<Index>::arity > 1) {
        typename B::Gradients dx;
        detail::backward_into<Back>(bound<Index>(), run, dy, dx);
        give_back<Index>(run, gradients, dx, std::make_index_sequence<part_type<Index>::arity>{});
      } else if constexpr (!Placed::Use::input_gradient) {
        Nothing none;
        detail::backward_into<Back>(bound<Index>(), run, dy, none);
      } else if constexpr (is_last_read<Index, 0>) {
        detail::backward_into<Back>(
            bound<Index>(), run, dy,
            detail::held<gradient_in<part_type<Index>::slots[0]>>(gradients));
      } else {
        Value<T, dual_t<slot_layout<part_type<Index>::slots[0]>>> dx;
        detail::backward_into<Back>(bound<Index>(), run, dy, dx);
        give_back<Index, 0>(run, gradients, dx);
      }
    }
  }

  /// Part Index gives back the gradients of its operands, from the last to the first. The part that
  /// reads a value last in forward gives its gradient first.
  template <std::size_t Index, class DX, std::size_t... Js>
  static void give_back(Run<Ctx>& run, SlotGradients& gradients, DX& dx,
                        std::index_sequence<Js...>) {
    constexpr std::size_t last = sizeof...(Js) - 1;
    (give_back<Index, last - Js>(run, gradients, std::get<last - Js>(dx)), ...);
  }
  template <std::size_t Index, std::size_t J, class One>
  static void give_back(Run<Ctx>& run, SlotGradients& gradients, One& dx) {
    constexpr std::size_t slot = part_type<Index>::slots[J];
    if constexpr (has_gradient[slot]) {
      auto& sum = detail::held<gradient_in<slot>>(gradients);
      if constexpr (is_last_read<Index, J>) {
        sum = std::move(dx);
      } else {
        sum = detail::added(run, std::move(sum), std::move(dx));
      }
    }
  }

  template <class Visitor, std::size_t... Is>
  void buffers(const std::string& path, Visitor&& f, std::index_sequence<Is...>) {
    (bound<Is>().visit_buffers(path_of(path, Is), f), ...);
  }

  static std::string path_of(const std::string& path, std::size_t number) {
    return L::numbers_parts ? detail::path_of_part(path, L::first_number + number) : path;
  }

  Parts parts_;
};

}  // namespace shardwise::detail
