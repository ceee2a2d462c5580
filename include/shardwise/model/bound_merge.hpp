#pragma once
// A merge of several values that runs.

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/core/names.hpp"
#include "shardwise/core/type_set.hpp"
#include "shardwise/layers/merge.hpp"
#include "shardwise/model/binder.hpp"
#include "shardwise/model/bound.hpp"
#include "shardwise/model/layer_checks.hpp"
#include "shardwise/model/over_context.hpp"
#include "shardwise/model/rows_over_context.hpp"
#include "shardwise/model/values.hpp"

namespace shardwise::detail {

/// One operand of a merge: the layout in which it is offered, the layout in which the merge takes
/// it, and whether it has a gradient.
template <Layout Offered, Layout Taken, bool Gradient>
struct Operand {
  using offered = Offered;                        ///< by the slot that holds it
  using taken = Taken;                            ///< by the merge
  static constexpr bool has_gradient = Gradient;  ///< whether backward computes it
};

/// The merge Op between the ends E of its first operand.
///
///     forward(run, Value<T, offered>&&...)      -> Value<T, gives>
///     backward(run, Value<T, dual(gives)>&&)    -> a tuple of Value<T, dual(offered)>, or Nothing
template <class Op, class S, class E, class... Operands>
class BoundMerge {
  using Ctx = typename S::context;
  using T = typename Ctx::dtype;
  using In = input_layout_at_t<Op, E>;
  using Out = output_layout_at_t<Op, E>;
  using F = Frame<In, S, std::tuple<>, std::tuple<>>;
  static constexpr std::size_t arity = sizeof...(Operands);
  using Numbers = std::index_sequence_for<Operands...>;
  using Values = std::tuple<Value<T, typename Operands::taken>...>;
  using TakenGradients = std::tuple<Value<T, dual_t<typename Operands::taken>>...>;
  static constexpr bool saves_input = S::input_gradient && Op::saves == Saves::input;

 public:
  /// One for each operand; Nothing for an operand without a gradient.
  using Gradients =
      std::tuple<std::conditional_t<Operands::has_gradient,
                                    Value<T, dual_t<typename Operands::offered>>, Nothing>...>;

  /// Throws shape_error if the merge cannot take operands of these shapes, as far as they are
  /// known.
  BoundMerge(const Op& op, const std::array<Shape, arity>& in, Binder<Ctx>& binder)
      : op_(op),
        ordinal_(draws_random<Op> ? binder.next_ordinal++ : 0),
        saved_(binder.saved.size()) {
    for (std::size_t j = 0; j < arity; ++j) binder.saved.add();
    const Shape out = op.output_shape(in);
    binder.given = out;
    require_runs_over_context<Op, typename Operands::taken...>(binder.run, in[0], out);
    (require_no_halo_of_tokens<typename Operands::taken>(binder.run), ...);
    [&]<std::size_t... Js>(std::index_sequence<Js...>) {
      (require_same_slice<Op, Js>(binder.run, in[0], in[Js]), ...);
    }
    (Numbers{});
    bound_.in = in[0];
    bound_.number = saved_;
    for (std::size_t j = 0; j < arity; ++j) operands_[j] = in[j];
    bound_.rows = rows_begin<Op>(binder.run, in[0], out);
  }

  /// Converts the operands to the layouts that Op takes, and saves what backward needs.
  Value<T, Out> forward(Run<Ctx>& run, Value<T, typename Operands::offered>&&... offered) {
    const std::array<Shape, arity> slices{offered.global()...};
    Values x = brought(run, Numbers{}, std::move(offered)...);
    // Tokens that an attention reads of other ranks are none of its output.
    const bool takes_rows = axis_over_context(slices[0]) == Axis::height;
    const Shape out = op_.output_shape(takes_rows ? shapes_of(x) : slices);
    const auto views = views_of(x);
    if constexpr (S::input_gradient && !passes_gradient<Op>) {
      if (run.pass.saves()) save(run, x, Numbers{});
    }
    Value<T, Out> y = output(run, x, out);
    {
      Call at = call(run, std::get<0>(x).global());
      op_.forward(at.frame, views, y.writable());
    }
    if (run.pass.finds_non_finite())
      require_finite(run.backend, run.pool, run.all_ranks, y.view().span(), "the output");
    return y;
  }

  /// The gradients of the operands that have one.
  Gradients backward(Run<Ctx>& run, Value<T, dual_t<Out>>&& given) {
    Value<T, dual_t<Out>> dy = std::move(given);
    TakenGradients dx;
    const Axis first = axis_over_context(passes_gradient<Op> ? dy.global() : saved_of(run, 0).in);
    if constexpr (passes_gradient<Op>) {
      std::apply([&](auto&... one) { ((one = Value<T, dual_t<Out>>(dy)), ...); }, dx);
      dy.release();
    } else {
      const auto saved = taken(run, Numbers{});
      const auto views = room_for(run, dx, Numbers{});
      Call at = call(run, saved_of(run, 0).in);
      op_.backward(at.frame, views_of(saved), dy.view(), views);
    }
    return brought_back(run, first, dx, Numbers{});
  }

  ///@{
  /// As a bound layer without parameters.
  using parameter_types = detail::TypeSet<>;
  template <class Visitor>
  void visit_buffers(const std::string&, Visitor&&) {}
  ///@}

 private:
  SavedByPart& saved_of(Run<Ctx>& run, std::size_t operand) const noexcept {
    return run.pass.flight->parts[saved_ + operand];
  }
  /// The operands as Op takes them.
  template <std::size_t... Js>
  Values brought(Run<Ctx>& run, std::index_sequence<Js...>,
                 Value<T, typename Operands::offered>&&... offered) const {
    const Axis first = axis_over_context(std::get<0>(std::tie(offered...)).global());
    return {over_context<Js, false>(
        run, first, converted<typename Operands::taken>(run, std::move(offered)))...};
  }
  /// Operand J as Op takes it over `context`, from its slice; or the way back of its gradient.
  template <std::size_t J, bool Back, class V>
  V over_context([[maybe_unused]] Run<Ctx>& run, [[maybe_unused]] Axis first, V value) const {
    if constexpr (MeshCommunicator<typename Ctx::communicator> && may_need_others<Op, J>) {
      if (run.all_ranks.sizes().context > 1)
        for_over_context<Op, J>(first, axis_over_context(value.global()), [&]<class R>() {
          using Move = std::conditional_t<Back, adjoint_t<R>, R>;
          value = moved_over_context<Move>(run, std::move(value),
                                           sliced_axes(run, operands_[J]).back().units);
        });
    }
    return value;
  }
  template <std::size_t... Js>
  void save(Run<Ctx>& run, const Values& x, std::index_sequence<Js...>) const {
    ((saved_of(run, Js).in = std::get<Js>(x).global()), ...);
    if constexpr (saves_input) (saved_of(run, Js).saved.save(std::get<Js>(x)), ...);
  }
  template <std::size_t... Js>
  auto taken([[maybe_unused]] Run<Ctx>& run, std::index_sequence<Js...>) const {
    if constexpr (saves_input) {
      return Values{saved_of(run, Js).saved.template take<std::tuple_element_t<Js, Values>>()...};
    } else {
      return Nothing{};
    }
  }

  static_assert(merge_must_run<Op, F, std::tuple<View<const T, typename Operands::taken>...>,
                               View<T, Out>, View<const T, dual_t<Out>>,
                               std::tuple<View<T, dual_t<typename Operands::taken>>...>,
                               S::input_gradient>());

  /// Memory for the output: that of an operand that no other value shares, if Op works in place.
  Value<T, Out> output(Run<Ctx>& run, [[maybe_unused]] Values& x, const Shape& shape) {
    if constexpr (works_in_place<Op>) {
      Value<T, Out> y;
      const auto take = [&](auto& one) {
        if (!one.may_write()) return false;
        y = Value<T, Out>(std::move(one), shape);
        return true;
      };
      if (std::apply([&](auto&... one) { return (take(one) || ...); }, x)) return y;
    }
    return Value<T, Out>(run.pool, shape, run.place());
  }

  using Call = LayerCall<Ctx, F>;
  Call call(Run<Ctx>& run, const Shape& first) const {
    require_numbered_samples<Op>(run, first, bound_.in);
    return {run, name_of<Op>, frame_of<F>(run, bound_, ordinal_)};
  }

  static std::array<Shape, arity> shapes_of(const Values& values) {
    return std::apply([](const auto&... one) { return std::array{one.global()...}; }, values);
  }
  static Nothing views_of(Nothing) { return {}; }
  static auto views_of(const Values& values) {
    return std::apply([](const auto&... one) { return std::tuple{one.view()...}; }, values);
  }

  /// Memory for the gradients that are needed, and views of all.
  template <std::size_t... Js>
  auto room_for(Run<Ctx>& run, TakenGradients& dx, std::index_sequence<Js...>) const {
    std::tuple<View<T, dual_t<typename Operands::taken>>...> views;
    const auto make = [&](auto& value, auto& view, const Shape& shape) {
      value = std::remove_reference_t<decltype(value)>(run.pool, shape, run.place());
      view = value.writable();
    };
    ((Operands::has_gradient ? make(std::get<Js>(dx), std::get<Js>(views), saved_of(run, Js).in)
                             : void()),
     ...);
    return views;
  }

  /// From the last to the first: the reverse of forward's order.
  template <std::size_t... Js>
  Gradients brought_back(Run<Ctx>& run, [[maybe_unused]] Axis first, TakenGradients& dx,
                         std::index_sequence<Js...>) const {
    Gradients gradients;
    const auto bring = [&]<std::size_t J>(std::integral_constant<std::size_t, J>) {
      using Wanted = std::tuple_element_t<J, Gradients>;
      if constexpr (!std::is_same_v<Wanted, Nothing>)
        std::get<J>(gradients) = converted<typename Wanted::layout>(
            run, over_context<J, true>(run, first, std::move(std::get<J>(dx))));
    };
    (bring(std::integral_constant<std::size_t, arity - 1 - Js>{}), ...);
    return gradients;
  }

  [[no_unique_address]] Op op_;
  BoundParameters<0> bound_{};         // its first operand
  std::array<Shape, arity> operands_;  // as it was bound to them
  std::uint64_t ordinal_;
  std::size_t saved_;  // the number of what it saves of its first operand, in each flight
};

}  // namespace shardwise::detail
