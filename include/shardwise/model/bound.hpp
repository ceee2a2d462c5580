#pragma once
// A layer bound to a context, to layouts and to an input shape: the object that runs.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/check_level.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/binder.hpp"
#include "shardwise/model/decide.hpp"
#include "shardwise/model/exchange_checks.hpp"
#include "shardwise/model/extents.hpp"
#include "shardwise/model/finite.hpp"
#include "shardwise/model/frame.hpp"
#include "shardwise/model/goes_backward.hpp"
#include "shardwise/model/input_element.hpp"
#include "shardwise/model/layer_checks.hpp"
#include "shardwise/model/numbered_samples.hpp"
#include "shardwise/model/observer.hpp"
#include "shardwise/model/parameter.hpp"
#include "shardwise/model/rows_over_context.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/setting.hpp"
#include "shardwise/model/tied.hpp"

namespace shardwise::detail {

/// A layer between the ends E. Compositions have specialisations of their own.
///
///     forward(run, Value<X, offered>&&)        -> Value<T, gives>; X is T, or L's input_element
///     backward(run, Value<T, dual(gives)>&&)   -> Value<T, dual(offered)>, or Nothing
template <class L, class S, class E>
class Bound {
  using Ctx = typename S::context;
  using T = typename Ctx::dtype;
  using X = input_element_t<L, T>;
  using In = input_layout_at_t<L, E>;
  using Out = output_layout_at_t<L, E>;
  using Parameters = parameters_t<L, In>;
  using Exchanges =
      typename std::conditional_t<MeshCommunicator<typename Ctx::communicator>,
                                  exchanges_on_mesh<L, In>, exchanges_of<L, In>>::type;
  using F = Frame<In, S, Parameters, Exchanges>;
  static constexpr std::size_t parameter_count = F::parameter_count;
  static constexpr bool owns_parameters = parameter_count > 0 && !detail::borrows_parameters<L>;
  using Own = detail::OwnParameters<Ctx, Parameters>;

 public:
  /// The types of the parameters that the layer uses.
  using parameter_types = typename Own::types;

  /// Throws shape_error if the layer cannot take inputs of shape `in`, as far as that is known.
  /// Observers get this name of the layer.
  Bound(const L& layer, const Shape& in, Binder<Ctx>& binder, std::string (*name)() = name_of<L>)
      : layer_(layer),
        name_(name),
        ordinal_(owns_parameters || detail::draws_random<L> ? binder.next_ordinal++ : 0),
        parameters_(reserve(layer, in, binder, ordinal_)),
        state_(make_state(binder)),
        saved_(binder.saved.add(own_saved())) {
    if constexpr (can_leave_parameters) binder.saved.add();
    if constexpr (MeshCommunicator<typename Ctx::communicator> && parameter_count > 0)
      parameters_.number = binder.add_layer(parameters_.slots);
    const bool is_known = in.rank() > 0 || detail::StatesFeatures<L>;
    const Shape out = is_known ? layer.output_shape(in) : Shape{};
    binder.given = out;
    detail::require_runs_over_context<L, In>(binder.run, in, out);
    detail::require_exchanges_over_slices<L, In>(binder.run, layer, in);
    parameters_.over_context = detail::taken_over_context<L>(binder.run, in);
    parameters_.rows = detail::rows_begin<L>(binder.run, in, out);
  }
  /// It stays where it is: the run refers to the places of its parameters.
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  /// Converts the input from the offered layout to the layer's, and saves what backward needs.
  Value<T, Out> forward(Run<Ctx>& run, Value<X, typename E::offered>&& offered) {
    Value<X, In> x = taken(run, std::move(offered));
    if constexpr (is_sized && detail::checks_locally<typename Ctx::communicator>())
      detail::require_as_bound(detail::over_all_slices(run, x.global(), parameters_.in),
                               parameters_.in);
    const Shape out_shape = detail::output_shape_here(run, layer_, x.global(), parameters_.in);
    if constexpr (detail::passes_forward<L>) {
      const Shape in = x.global();
      Value<T, Out> y(std::move(x), out_shape);
      if (run.pass.saves()) save_output(run, in, y);
      if constexpr (gives_rows) detail::give_rows<L, false>(run, y, layer_, parameters_.in);
      return y;
    } else {
      const View<const X, In> in = x.view();
      if constexpr (goes_backward<L, S, E> && L::saves == Saves::input) {
        if (run.pass.saves()) saved_of(run).saved.save(x);
      }
      Value<T, Out> y = output_for(run, x, out_shape);
      {
        Call at = call(run, in.global());
        layer_.forward(at.frame, in, y.writable());
      }
      if (run.pass.saves()) save_output(run, in.global(), y);
      if (run.pass.finds_non_finite())
        detail::require_finite(run.backend, run.pool, run.all_ranks, y.view().span(), "the output");
      if constexpr (gives_rows) detail::give_rows<L, false>(run, y, layer_, parameters_.in);
      return y;
    }
  }

  /// Writes the gradients of parameters, and converts the gradient of the input back.
  input_gradient_t<T, E, S> backward(Run<Ctx>& run, Value<T, dual_t<Out>>&& given) {
    Value<T, dual_t<Out>> dy = std::move(given);  // to release its memory with this call
    if constexpr (gives_rows) detail::give_rows<L, true>(run, dy, layer_, parameters_.in);
    [[maybe_unused]] SavedByPart& mine = saved_of(run);
    if constexpr (detail::only_reshapes<L>) {
      return sent_back(run, Value<T, dual_t<In>>(std::move(dy), mine.in));
    } else {
      if constexpr (can_leave_parameters) {
        if ((run.pass.leaves_parameters || leaves_until_sum) &&
            !run.parameters.stores_share_of_gradients())
          return backward_input(run, mine, std::move(dy));
      }
      if constexpr (detail::sums_meanwhile<L, S, E>()) {
        return backward_in_parts(run, mine, dy.view());
      } else {
        const Saved saved = taken(mine);
        const View<const T, dual_t<Out>> in = dy.view();
        Value<T, dual_t<In>> dx = gradient_for(run, dy, mine.in);
        {
          Call at = call(run, mine.in);
          at.whole.begin_gradients();
          if constexpr (L::saves == Saves::nothing) {
            layer_.backward(at.frame, saved, in, dx.writable());
          } else {
            layer_.backward(at.frame, saved.view(), in, dx.writable());
          }
          at.end_gradients();
        }
        if constexpr (S::input_gradient) {
          return sent_back(run, std::move(dx));
        } else {
          return {};
        }
      }
    }
  }

  /// Calls f(NamedBuffer) for each tensor that the layer keeps from step to step; `path` ends in
  /// ".".
  template <class Visitor>
  void visit_buffers([[maybe_unused]] const std::string& path, [[maybe_unused]] Visitor&& f) {
    if constexpr (has_buffers) {
      state_.visit_buffers([&]<class V, Layout B>(std::string_view name, View<V, B> value) {
        f(NamedBuffer<V, B>{path + std::string(name), value});
      });
    }
  }

 private:
  /// Whether the gradients of its parameters can be left for later: those of tied parameters are
  /// written in the order of the model.
  static constexpr bool has_two_parts = detail::goes_backward_in_parts<L> && !detail::is_tied<L>;
  /// Whether they are left until the ranks sum that of its input, which others do.
  static constexpr bool leaves_until_sum =
      has_two_parts && CollectivesGoOn<typename Ctx::communicator> && S::input_gradient &&
      std::same_as<In, Replicated> && std::same_as<In, typename E::offered>;
  static constexpr bool can_leave_parameters =
      leaves_until_sum || (has_two_parts && MeshCommunicator<typename Ctx::communicator>);
  static constexpr bool has_state = requires(const L& layer, F& frame) { layer.make_state(frame); };
  static constexpr bool saves_output = L::saves == Saves::output;

  static constexpr bool has_saved = requires { typename L::template saved<F>; };

  template <class Framed, bool Has>
  struct state_of {
    using type = Nothing;
  };
  template <class Framed>
  struct state_of<Framed, true> {
    using type = decltype(std::declval<const L&>().make_state(std::declval<Framed&>()));
  };
  template <class Framed, bool Has>
  struct saved_by {
    using type = Nothing;
  };
  template <class Framed>
  struct saved_by<Framed, true> {
    using type = typename L::template saved<Framed>;
  };
  using State = typename state_of<F, has_state>::type;
  using OfLayer = typename saved_by<F, has_saved>::type;
  static constexpr bool has_buffers = requires(State & state) {
    state.visit_buffers([](std::string_view, auto) {});
  };
  static constexpr bool is_sized = parameter_count > 0 || has_buffers;  // by its input, when bound
  using Saved = std::conditional_t<L::saves == Saves::nothing, Nothing,
                                   std::conditional_t<saves_output, Value<T, Out>, Value<X, In>>>;
  using Framed = std::conditional_t<has_state || has_saved, StatefulFrame<F, State, OfLayer>, F>;
  static_assert(detail::must_run<L, Framed, X, T, In, Out, goes_backward<L, S, E>>());

  /// Memory for the output: the input's, if the layer may work in place and no other value shares
  /// it.
  static Value<T, Out> output_for(Run<Ctx>& run, [[maybe_unused]] Value<X, In>& x,
                                  const Shape& shape) {
    if constexpr (detail::works_in_place<L>) {
      if (x.may_write()) return Value<T, Out>(std::move(x), shape);
    }
    return Value<T, Out>(run.pool, shape, run.place());
  }
  /// The same for the gradient of the input; none, if that has no gradient.
  static Value<T, dual_t<In>> gradient_for([[maybe_unused]] Run<Ctx>& run,
                                           [[maybe_unused]] Value<T, dual_t<Out>>& dy,
                                           [[maybe_unused]] const Shape& shape) {
    if constexpr (!S::input_gradient) return {};
    if constexpr (detail::works_in_place<L>)
      if (dy.may_write()) return Value<T, dual_t<In>>(std::move(dy), shape);
    return Value<T, dual_t<In>>(run.pool, shape, run.place());
  }

  static constexpr bool gives_rows =
      MeshCommunicator<typename Ctx::communicator> && detail::GivesRows<L>;

  /// The input in the layer's layout, and over `context` with the rows that the layer reads.
  Value<X, In> taken(Run<Ctx>& run, Value<X, typename E::offered>&& offered) const {
    Value<X, In> x = converted<In>(run, std::move(offered));
    detail::take_rows<L, false>(run, x, parameters_.in);
    return x;
  }

  /// The gradient of the input as it was offered.
  auto sent_back(Run<Ctx>& run, Value<T, dual_t<In>>&& dx) const {
    detail::take_rows<L, true>(run, dx, parameters_.in);
    return converted<dual_t<typename E::offered>>(run, std::move(dx));
  }

  static std::unique_ptr<SavedByLayer> own_saved() {
    if constexpr (has_saved) {
      return std::make_unique<SavedAs<OfLayer>>();
    } else {
      return nullptr;
    }
  }

  SavedByPart& saved_of(Run<Ctx>& run) const noexcept { return run.pass.flight->parts[saved_]; }
  /// The gradient of the output while the gradients of parameters are left for later.
  SavedByPart& left(Run<Ctx>& run) const requires(can_leave_parameters) {
    return run.pass.flight->parts[saved_ + 1];
  }

  static Saved taken([[maybe_unused]] SavedByPart& mine) {
    if constexpr (std::same_as<Saved, Nothing>) {
      return {};
    } else {
      return mine.saved.template take<Saved>();
    }
  }
  static OfLayer& own([[maybe_unused]] SavedByPart& mine) {
    if constexpr (has_saved) {
      return mine.template own_as<OfLayer>();
    } else {
      static Nothing none;
      return none;
    }
  }

  input_gradient_t<T, E, S> backward_in_parts(Run<Ctx>& run, SavedByPart& mine,
                                              const View<const T, dual_t<Out>>& dy) {
    const Saved x = taken(mine);
    Value<T, dual_t<In>> dx(run.pool, mine.in, run.place());
    Call at = call(run, mine.in);
    layer_.backward_input(at.frame, dy, dx.writable());
    at.whole.begin_gradients();
    auto write = [&] { layer_.backward_parameters(at.frame, x.view(), dy); };
    detail::LeftGradients::One here{
        &write, [](void* it, void*) { (*static_cast<decltype(write)*>(it))(); }, name_};
    run.pass.left_until_sum.add(here);
    auto sum = sent_back(run, std::move(dx));
    at.end_gradients();
    return sum;
  }

  /// Leaves the gradients of parameters for later.
  input_gradient_t<T, E, S> backward_input(Run<Ctx>& run, [[maybe_unused]] SavedByPart& mine,
                                           Value<T, dual_t<Out>>&& dy) {
    SavedByPart& of_dy = left(run);
    of_dy.saved.save(dy);
    of_dy.left = {this,
                  [](void* here, void* of) {
                    static_cast<Bound*>(here)->write_left(*static_cast<Run<Ctx>*>(of));
                  },
                  name_};
    (run.pass.leaves_parameters ? run.pass.flight->left : run.pass.left_until_sum).add(of_dy.left);
    if constexpr (S::input_gradient) {
      Value<T, dual_t<In>> dx(run.pool, mine.in, run.place());
      {
        Call at = call(run, mine.in);
        layer_.backward_input(at.frame, dy.view(), dx.writable());
      }
      return sent_back(run, std::move(dx));
    } else {
      return {};
    }
  }

  void write_left(Run<Ctx>& run) requires(can_leave_parameters) {
    SavedByPart& mine = saved_of(run);
    const Saved x = taken(mine);
    const auto dy = left(run).saved.template take<Value<T, dual_t<Out>>>();
    Call at = call(run, mine.in);
    layer_.backward_parameters(at.frame, x.view(), dy.view());
    at.end_gradients();
  }

  static BoundParameters<parameter_count> reserve(const L& layer, const Shape& in,
                                                  Binder<Ctx>& binder, std::uint64_t ordinal) {
    BoundParameters<parameter_count> parameters;
    parameters.in = in;
    if constexpr (is_sized) detail::require_known(in);
    if constexpr (parameter_count > 0) parameters.specs = layer.parameter_specs(in);
    if constexpr (detail::borrows_parameters<L>) {
      if (const TiedOverStages* owner = binder.owned_elsewhere(tag())) {
        Own::list(binder, *owner);
        binder.run.tied.own(tag(), owner->slots, owner->specs);
      }
      parameters.tied = binder.run.tied.borrow(tag(), parameters.slots, parameters.specs);
    } else if constexpr (detail::is_tied<L>) {
      if (const TiedOverStages* tied = binder.owned_for_stages(tag())) {
        Own::list(binder, *tied);
        std::copy(tied->slots.begin(), tied->slots.end(), parameters.slots.begin());
      } else {
        Own::reserve(binder, parameters, ordinal);
      }
      parameters.tied = binder.run.tied.own(tag(), parameters.slots, parameters.specs);
    } else if constexpr (owns_parameters) {
      Own::reserve(binder, parameters, ordinal);
    }
    return parameters;
  }

  static const void* tag() { return &detail::identity_of<typename L::tied_tag>; }

  /// Constructed in place, since it need not be movable.
  State make_state([[maybe_unused]] Binder<Ctx>& binder) {
    if constexpr (has_state) {
      auto frame = frame_of<F>(binder.run, parameters_, ordinal_);
      return layer_.make_state(frame);
    } else {
      return {};
    }
  }

  using Call = detail::LayerCall<Ctx, Framed>;
  Call call(Run<Ctx>& run, const Shape& in) {
    typename F::Shapes exchange_shapes{};
    if constexpr (F::count > 0) exchange_shapes = layer_.exchange_shapes(in);
    require_numbered_samples<L>(run, in, parameters_.in);
    const auto frame = frame_of<F>(run, parameters_, ordinal_, exchange_shapes);
    if constexpr (has_state || has_saved) {
      return {run, name_, frame, state_, own(saved_of(run))};
    } else {
      return {run, name_, frame};
    }
  }

  void save_output([[maybe_unused]] Run<Ctx>& run, [[maybe_unused]] const Shape& in,
                   [[maybe_unused]] const Value<T, Out>& y) {
    if constexpr (goes_backward<L, S, E>) {
      SavedByPart& mine = saved_of(run);
      mine.in = in;
      if constexpr (saves_output) mine.saved.save(y);
    }
  }

  [[no_unique_address]] L layer_;
  std::string (*name_)();
  std::uint64_t ordinal_;
  BoundParameters<parameter_count> parameters_;
  State state_;
  std::size_t saved_;  // the number of what it saves, in each flight
};

}  // namespace shardwise::detail
