#pragma once
// A merge of several values that runs.

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/core/names.hpp"
#include "shardwise/layers/merge.hpp"
#include "shardwise/model/bound.hpp"

namespace shardwise::detail {

/// One operand of a merge: the layout that it is offered in, and whether it has a gradient.
template <Layout Offered, bool Gradient>
struct Operand {
  using offered = Offered;                        ///< by the slot that holds it
  static constexpr bool has_gradient = Gradient;  ///< whether backward gives one
};

/// The merge Op between the ends E of its first operand.
///
///     forward(run, Value<T, offered>&&...)      -> Value<T, gives>
///     backward(run, Value<T, dual(gives)>&&)    -> a tuple of Value<T, dual(offered)>, or Nothing
template <class Op, class S, class E, class... Operands>
class BoundMerge {
  using Ctx = typename S::context;
  using T = typename Ctx::dtype;
  using In = takes_t<Op, E>;
  using Out = gives_t<Op, E>;
  using F = Frame<In, S, std::tuple<>, std::tuple<>>;
  static constexpr std::size_t arity = sizeof...(Operands);
  using Values = std::array<Value<T, In>, arity>;
  using Gradient = Value<T, dual_t<In>>;
  template <std::size_t J>
  using Operand = std::tuple_element_t<J, std::tuple<Operands...>>;
  static constexpr bool saves_input = S::input_gradient && Op::saves == Saves::input;

 public:
  /// One for each operand, with which the operand's own gradient is asked for.
  using Gradients =
      std::tuple<std::conditional_t<Operands::has_gradient,
                                    Value<T, dual_t<typename Operands::offered>>, Nothing>...>;

  /// Throws shape_error if it cannot take operands of these shapes, as far as they are known.
  BoundMerge(const Op& op, const std::array<Shape, arity>& in) : op_(op) { op.output_shape(in); }

  /// Brings all operands to one layout, and saves what backward needs.
  Value<T, Out> forward(Run<Ctx>& run, Value<T, typename Operands::offered>&&... offered) {
    Values x{converted<In>(run, std::move(offered))...};
    for (std::size_t j = 0; j < arity; ++j) in_shapes_[j] = x[j].global();
    const Shape out = op_.output_shape(in_shapes_);
    std::array<View<const T, In>, arity> views;
    for (std::size_t j = 0; j < arity; ++j) views[j] = x[j].view();
    if constexpr (saves_input) {
      if (run.training) saved_ = x;
    }
    Value<T, Out> y = output(run, x, out);
    with_frame(run, [&](F& frame) { op_.forward(frame, views, y.writable()); });
    if (run.finds_non_finite)
      require_finite(run.backend, run.pool, run.ranks, y.view().span(), "the output");
    return y;
  }

  /// The gradients of the operands that have one.
  Gradients backward(Run<Ctx>& run, Value<T, dual_t<Out>>&& given) {
    Value<T, dual_t<Out>> dy = std::move(given);
    std::array<Gradient, arity> dx;
    if constexpr (passes_gradient<Op>) {
      for (Gradient& one : dx) one = Gradient(dy);
      dy.release();
    } else {
      const auto saved = std::exchange(saved_, {});
      std::array<View<T, dual_t<In>>, arity> views;
      constexpr bool has[] = {Operands::has_gradient...};
      for (std::size_t j = 0; j < arity; ++j) {
        if (!has[j]) continue;
        dx[j] = Gradient(run.pool, in_shapes_[j], run.place());
        views[j] = dx[j].writable();
      }
      with_frame(run, [&](F& frame) { op_.backward(frame, saved_views(saved), dy.view(), views); });
    }
    return brought_back(run, dx, std::index_sequence_for<Operands...>{});
  }

  ///@{
  /// As a bound layer without parameters.
  template <class Visitor>
  void visit_parameters(Run<Ctx>&, const std::string&, Visitor&&) {}
  template <class Visitor>
  void visit_buffers(const std::string&, Visitor&&) {}
  void forget() { saved_ = {}; }
  ///@}

 private:
  using Saved = std::conditional_t<saves_input, Values, Nothing>;

  /// Room for the output: that of an operand which nobody else reads, if that will do.
  Value<T, Out> output(Run<Ctx>& run, Values& x, const Shape& shape) {
    if constexpr (works_in_place<Op>) {
      for (Value<T, In>& one : x)
        if (one.may_write()) return Value<T, Out>(std::move(one), shape);
    }
    return Value<T, Out>(run.pool, shape, run.place());
  }

  template <class Call>
  void with_frame(Run<Ctx>& run, Call&& call) {
    const Observation here(run.observer, [] {
      return Work{Work::Kind::compute, name_of<Op>, 0, {}};
    });
    const BoundParameters<0> none{};
    F frame(run, none, 0, {}, 0);
    call(frame);
  }

  static auto saved_views([[maybe_unused]] const Saved& saved) {
    if constexpr (saves_input) {
      std::array<View<const T, In>, arity> views;
      for (std::size_t j = 0; j < arity; ++j) views[j] = saved[j].view();
      return views;
    } else {
      return Nothing{};
    }
  }

  /// From the last to the first, since forward converted them from the first to the last.
  template <std::size_t... Js>
  static Gradients brought_back(Run<Ctx>& run, std::array<Gradient, arity>& dx,
                                std::index_sequence<Js...>) {
    Gradients gradients;
    const auto bring = [&]<std::size_t J>(std::integral_constant<std::size_t, J>) {
      if constexpr (Operand<J>::has_gradient) {
        std::get<J>(gradients) =
            converted<dual_t<typename Operand<J>::offered>>(run, std::move(dx[J]));
      }
    };
    (bring(std::integral_constant<std::size_t, arity - 1 - Js>{}), ...);
    return gradients;
  }

  [[no_unique_address]] Op op_;
  std::array<Shape, arity> in_shapes_{};  // of the last forward
  Saved saved_;
};

}  // namespace shardwise::detail
