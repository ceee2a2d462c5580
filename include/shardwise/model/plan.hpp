#pragma once
// What a model will send, known before anything runs.

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/model/bound_repeat.hpp"
#include "shardwise/model/bound_residual.hpp"
#include "shardwise/model/bound_sequential.hpp"
#include "shardwise/model/collectives.hpp"

namespace shardwise {

/// The batch of a plan whose other extents are in the model's types.
struct batch {
  std::size_t size;
};

/// The collectives of one training step on `ranks` ranks. Lists do not depend on the number of
/// ranks; a model on `SingleRank` calls none of them.
struct Plan {
  int ranks = 1;
  collectives forward;
  collectives backward;
  collectives settle;  ///< of gradients, once for each step
  collectives loss;

  /// Bytes that all ranks together send in one step, see `Collective::bytes_sent`.
  constexpr std::size_t bytes_sent() const {
    return forward.bytes_sent(ranks) + backward.bytes_sent(ranks) + settle.bytes_sent(ranks) +
           loss.bytes_sent(ranks);
  }
};

namespace detail {

/// The dtypes of a model's values and of the exchanges inside its layers.
struct PlanDtypes {
  Dtype values = Dtype::float32;

  constexpr Dtype exchanges() const {
    return values == Dtype::bfloat16 || values == Dtype::float16 ? Dtype::float32 : values;
  }
};

template <class R>
constexpr void add_redistribution(collectives& list, const Shape& shape, Dtype dtype) {
  if constexpr (R::operation().has_value()) {
    list.add({*R::operation(), shape.elements(), dtype});
  }
}

template <class Exchanges, std::size_t N, std::size_t... Is>
constexpr void add_exchanges(collectives& list, const std::array<Shape, N>& shapes, Dtype dtype,
                             std::index_sequence<Is...>) {
  (add_redistribution<typename std::tuple_element_t<Is, Exchanges>::redistribution>(
       list, shapes[Is], dtype),
   ...);
}

template <class Exchanges, std::size_t N, std::size_t... Is>
constexpr void add_adjoint_exchanges(collectives& list, const std::array<Shape, N>& shapes,
                                     Dtype dtype, std::index_sequence<Is...>) {
  (add_redistribution<
       adjoint_t<typename std::tuple_element_t<N - 1 - Is, Exchanges>::redistribution>>(
       list, shapes[N - 1 - Is], dtype),
   ...);
}

/// Walks a model as `Bound` does, and lists what it would call. S is a `Setting` without context.
template <class L, class S, class E>
struct Planner {
  using In = takes_t<L, E>;
  using Exchanges = exchanges_t<L, In>;
  using Parameters = parameters_t<L, In>;
  static constexpr std::size_t exchange_count = std::tuple_size_v<Exchanges>;
  static constexpr std::size_t parameter_count = std::tuple_size_v<Parameters>;
  static constexpr bool goes_backward = S::trains && (S::input_gradient || parameter_count > 0);

  static constexpr Shape forward(const L& layer, const Shape& in, PlanDtypes dtypes,
                                 collectives& list) {
    add_redistribution<Redistribute<typename E::offered, In>>(list, in, dtypes.values);
    if constexpr (exchange_count > 0) {
      add_exchanges<Exchanges>(list, layer.exchange_shapes(in), dtypes.exchanges(),
                               std::make_index_sequence<exchange_count>{});
    }
    return layer.output_shape(in);
  }

  static constexpr void backward(const L& layer, const Shape& in, PlanDtypes dtypes,
                                 collectives& list) {
    if constexpr (exchange_count > 0) {
      add_adjoint_exchanges<Exchanges>(list, layer.exchange_shapes(in), dtypes.exchanges(),
                                       std::make_index_sequence<exchange_count>{});
    }
    if constexpr (S::input_gradient) {
      using R = Redistribute<typename E::offered, In>;
      add_redistribution<adjoint_t<R>>(list, in, dtypes.values);
    }
  }

  /// Calls f(spec, type of use) for every parameter.
  template <class F>
  static constexpr void parameters(const L& layer, const Shape& in, F&& f) {
    if constexpr (parameter_count > 0) {
      each_parameter(layer.parameter_specs(in), f, std::make_index_sequence<parameter_count>{});
    }
  }

 private:
  template <class Specs, class F, std::size_t... Is>
  static constexpr void each_parameter(const Specs& specs, F&& f, std::index_sequence<Is...>) {
    (f(specs[Is], std::type_identity<std::tuple_element_t<Is, Parameters>>{}), ...);
  }
};

template <class L, class S, class E>
requires requires { typename L::composition; }
struct Planner<L, S, E> {
  static constexpr bool goes_backward =
      S::trains && (S::input_gradient || OwnsParameters<L, E>::value);

  static constexpr Shape forward(const L& layers, const Shape& in, PlanDtypes dtypes,
                                 collectives& list) {
    return forward(layers, in, dtypes, list, std::make_index_sequence<L::size>{});
  }
  static constexpr void backward(const L& layers, const Shape& in, PlanDtypes dtypes,
                                 collectives& list) {
    backward(layers, in, dtypes, list, std::make_index_sequence<L::size>{});
  }
  template <class F>
  static constexpr void parameters(const L& layers, const Shape& in, F&& f) {
    parameters(layers, in, f, std::make_index_sequence<L::size>{});
  }

 private:
  template <std::size_t I>
  using At = SettingAt<L, S, E, I>;
  template <std::size_t I>
  using Part = Planner<typename L::template layer_type<I>,
                       Setting<typename S::context, typename At<I>::Use>, typename At<I>::Here>;

  template <std::size_t... Is>
  static constexpr Shape forward(const L& layers, Shape shape, PlanDtypes dtypes, collectives& list,
                                 std::index_sequence<Is...>) {
    ((shape = Part<Is>::forward(layers.template layer<Is>(), shape, dtypes, list)), ...);
    return shape;
  }

  template <std::size_t... Is>
  static constexpr void backward(const L& layers, const Shape& in, PlanDtypes dtypes,
                                 collectives& list, std::index_sequence<Is...>) {
    (backward_at<L::size - 1 - Is>(layers, in, dtypes, list), ...);
  }

  template <std::size_t I>
  static constexpr void backward_at(const L& layers, const Shape& in, PlanDtypes dtypes,
                                    collectives& list) {
    if constexpr (Part<I>::goes_backward) {
      Part<I>::backward(layers.template layer<I>(), layers.template shape_before<I>(in), dtypes,
                        list);
    }
  }

  template <class F, std::size_t... Is>
  static constexpr void parameters(const L& layers, const Shape& in, F&& f,
                                   std::index_sequence<Is...>) {
    (Part<Is>::parameters(layers.template layer<Is>(), layers.template shape_before<Is>(in), f),
     ...);
  }
};

template <class L, class S, class E>
requires requires { typename L::residual_block; }
struct Planner<L, S, E> {
  using Stream = takes_t<L, E>;
  using Block = typename L::residual_block;
  using BlockEnds = Ends<Stream, Stream>;
  using Part = Planner<Block, S, BlockEnds>;
  using Enter = Redistribute<typename E::offered, Stream>;
  using Leave = Redistribute<gives_t<Block, BlockEnds>, Stream>;
  static constexpr bool goes_backward = Part::goes_backward;

  static constexpr Shape forward(const L& residual, const Shape& in, PlanDtypes dtypes,
                                 collectives& list) {
    add_redistribution<Enter>(list, in, dtypes.values);
    const Shape out = Part::forward(residual.block(), in, dtypes, list);
    add_redistribution<Leave>(list, out, dtypes.values);
    return out;
  }
  static constexpr void backward(const L& residual, const Shape& in, PlanDtypes dtypes,
                                 collectives& list) {
    add_redistribution<adjoint_t<Leave>>(list, in, dtypes.values);
    Part::backward(residual.block(), in, dtypes, list);
    if constexpr (S::input_gradient) add_redistribution<adjoint_t<Enter>>(list, in, dtypes.values);
  }
  template <class F>
  static constexpr void parameters(const L& residual, const Shape& in, F&& f) {
    Part::parameters(residual.block(), in, f);
  }
};

template <class L, class S, class E>
requires requires { typename L::repeated_block; }
struct Planner<L, S, E> {
  using Stream = takes_t<L, E>;
  using Block = typename L::repeated_block;
  using BlockEnds = typename L::template block_ends<Stream>;
  using Enter = Redistribute<typename E::offered, Stream>;
  using Leave = Redistribute<gives_t<Block, BlockEnds>, Stream>;
  struct LaterUse {
    static constexpr bool trains = S::trains;
    static constexpr bool input_gradient =
        S::trains && (S::input_gradient || OwnsParameters<L, E>::value);
  };
  using First = Planner<Block, S, BlockEnds>;
  using Later = Planner<Block, Setting<typename S::context, LaterUse>, BlockEnds>;
  static constexpr bool goes_backward = First::goes_backward;

  static constexpr Shape forward(const L& repeat, const Shape& in, PlanDtypes dtypes,
                                 collectives& list) {
    add_redistribution<Enter>(list, in, dtypes.values);
    Shape shape = in;
    for (std::size_t i = 0; i < L::times; ++i) {
      shape = First::forward(repeat.block(), shape, dtypes, list);
      add_redistribution<Leave>(list, shape, dtypes.values);
    }
    return shape;
  }
  static constexpr void backward(const L& repeat, const Shape& in, PlanDtypes dtypes,
                                 collectives& list) {
    const Shape out = repeat.output_shape(in);
    for (std::size_t i = L::times; i-- > 1;) {
      add_redistribution<adjoint_t<Leave>>(list, out, dtypes.values);
      Later::backward(repeat.block(), in, dtypes, list);
    }
    add_redistribution<adjoint_t<Leave>>(list, out, dtypes.values);
    First::backward(repeat.block(), in, dtypes, list);
    if constexpr (S::input_gradient) add_redistribution<adjoint_t<Enter>>(list, in, dtypes.values);
  }
  template <class F>
  static constexpr void parameters(const L& repeat, const Shape& in, F&& f) {
    for (std::size_t i = 0; i < L::times; ++i) First::parameters(repeat.block(), in, f);
  }
};

}  // namespace detail

/// The plan of `model` between the ends E on inputs of shape `in`.
template <class E, class Use, class L>
constexpr Plan plan_of(const L& model, int ranks, const Shape& in, Dtype dtype = Dtype::float32) {
  using S = Setting<void, Use>;
  using Walk = detail::Planner<L, S, E>;
  using Leave = Redistribute<gives_t<L, E>, typename E::wanted>;
  const detail::PlanDtypes dtypes{dtype};
  Plan plan;
  plan.ranks = ranks;
  const Shape out = Walk::forward(model, in, dtypes, plan.forward);
  detail::add_redistribution<Leave>(plan.forward, out, dtype);
  if constexpr (Walk::goes_backward) {
    detail::add_redistribution<adjoint_t<Leave>>(plan.backward, out, dtype);
    Walk::backward(model, in, dtypes, plan.backward);
    std::size_t owed = 0;
    Walk::parameters(model, in, [&](const ParameterSpec& spec, auto use) {
      if (owes_reduction<typename decltype(use)::type>) owed += spec.shape.elements();
    });
    if (owed > 0) plan.settle.add(all_reduce(owed, dtype));
  }
  return plan;
}

/// The plan of a model whose sizes are all in its type. `in` is the global shape of its input.
template <class L, int Ranks, Layout Offered = Invariant, Layout Wanted = Invariant,
          bool InputGradient = false>
constexpr Plan plan(const Shape& in, Dtype dtype = Dtype::float32) {
  using Use = std::conditional_t<InputGradient, TrainWithInputGradient, Train>;
  return plan_of<Ends<Offered, Wanted>, Use>(L{}, Ranks, in, dtype);
}

/// The same for an input [batch, features], with the features that the model's first layer takes.
template <class L, int Ranks, Layout Offered = Invariant, Layout Wanted = Invariant,
          bool InputGradient = false>
constexpr Plan plan(batch samples, Dtype dtype = Dtype::float32) {
  const Shape in = detail::complete_input(L{}, Shape{{Axis::batch, samples.size}});
  return plan<L, Ranks, Offered, Wanted, InputGradient>(in, dtype);
}

/// Elements of parameters that the rank at `place` holds; a sharded one counts with its block.
template <class E, class L>
constexpr std::size_t parameters_of_rank(const L& model, Place place, const Shape& in) {
  std::size_t sum = 0;
  detail::Planner<L, Setting<void, Train>, E>::parameters(
      model, in, [&](const ParameterSpec& spec, auto use) {
        using Stored = typename decltype(use)::type::stored;
        sum += local_shape<Stored>(spec.shape, place).elements();
      });
  return sum;
}

}  // namespace shardwise
