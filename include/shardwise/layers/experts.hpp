#pragma once
// A mixture of experts: each row goes through the experts that a router chooses for it.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/detail/expert_balance.hpp"
#include "shardwise/layers/detail/expert_loops.hpp"
#include "shardwise/layers/detail/expert_state.hpp"
#include "shardwise/layers/detail/routing.hpp"
#include "shardwise/layers/expert_split.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layers/split.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

/// y = Σ w_e expert_e(x) over the `chosen` experts e of each row x with the largest logits x Rᵀ, w
/// the softmax of these logits alone, and expert_e(x) = (silu(x G_eᵀ) · (x U_eᵀ)) D_eᵀ. Of equal
/// logits the expert with the lowest number is chosen.
///
///                   split::expert               split::none
/// x per rank        [..., N]                    [..., N]
/// router R          [E, N]                      [E, N]
/// gate G and up U   [E/P, F, N]                 [E, F, N]
/// down D            [E/P, N, F]                 [E, N, F]
/// y per rank        [..., N], a summand         [..., N]
/// layout            Replicated -> Partial       L -> L for Invariant, Sharded<batch>, <sequence>
/// gradient owes     all-reduce of R             all-reduce of all unless Invariant
///
///     Experts<split::expert, ExpertSizes{.experts = 8, .chosen = 2, .features = 64, .hidden = 96}>
///     Experts<>({.experts = 8, .chosen = 2, .features = 64, .hidden = 96})    at run time
///
/// Each rank computes the logits of all its rows, and then its experts for the rows that chose
/// them; a rank without an expert gives zeros. The gradient of the router is linear in those of the
/// weights, so the ranks' parts of it add up. Memory between forward and backward depends on the
/// rows that choose the rank's experts; as much is taken as they can need, so that a step allocates
/// nothing: for rows · min(chosen, E/P) · 5/4 hidden rows. In the host's memory alone: on a device
/// it does not compile.
///
/// `balanced_by(c)` adds to the gradients in training those of the balancing loss c E Σ_e f_e P_e:
/// f_e is how often the rows chose expert e, by the number of rows, so Σ f_e = `chosen`, and P_e
/// the mean of the softmax of all logits. It is of each layer and batch; the batches of a step
/// weigh as their samples, and the loss scale applies. Rows of padding (see `Segment`) do not
/// count. The loss that a step returns is without it; `Model::layer_losses` tells it. (transformers
/// takes f and P as means over all layers; for one layer the two are equal.) `Balanced` is whether
/// the type has it. f and P are those of all rows of a batch: where ranks have different rows, they
/// add 2 E + 1 doubles in forward.
///
/// Ranks choose by logits of equal bits: run them on processors of one kind.
///
/// saves    x, and what the experts made of it
/// sends    with a balancing loss, 2 E + 1 doubles in training, see above; else nothing
/// throws   shape_error if x has another innermost axis or extent than N features
/// source   Jiang et al. 2024 (Mixtral of experts), section 2.1; Fedus et al. 2022 (Switch
///          transformers), section 2.2, for the balancing loss
template <class S = split::expert, ExpertSizes Sizes = ExpertSizes{}, bool Balanced = false>
class Experts : public detail::ExpertLayouts<S> {
  static_assert(detail::expert_sizes_must_fit<Sizes>());
  static constexpr bool is_static = !(Sizes == ExpertSizes{});

 public:
  /// If the sizes are in the type.
  constexpr Experts() requires(is_static) = default;
  /// If they are not.
  /// throws   argument_error if a row chooses no expert, or more than there are
  constexpr explicit Experts(const ExpertSizes& sizes) requires(!is_static) : sizes_(sizes) {
    detail::require_experts(sizes);
  }

  /// The same layer with a balancing loss, times `coefficient`.
  /// throws   argument_error for a coefficient that is below 0 or not finite
  constexpr auto balanced_by(double coefficient) const {
    if (!(coefficient >= 0 && coefficient <= std::numeric_limits<double>::max())) {
      throw argument_error({"balanced_by: the coefficient is ", coefficient,
                            "; it must be a finite number, at least 0"});
    }
    return with<Sizes, true>(coefficient);
  }

  /// The same layer with other initial values.
  constexpr Experts initialized_by(init::Rule rule) const {
    Experts other = *this;
    other.rule_ = rule;
    return other;
  }

  /// The same layer with its sizes in the object.
  constexpr auto as_dynamic() const { return with<ExpertSizes{}, Balanced>(coefficient_); }

  /// Its sizes.
  constexpr const ExpertSizes& sizes() const { return sizes_; }

  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::input;
  static constexpr bool keeps_shape = true;
  static constexpr std::size_t in_features = Sizes.features;
  static constexpr std::size_t out_features = Sizes.features;

  template <Layout In>
  using parameters = detail::ExpertParameters<S, In>;

  static constexpr bool exchanges_in_evaluation = false;
  template <Layout In>
  using exchanges =
      std::conditional_t<Balanced, std::tuple<detail::BalanceExchange<In>>, std::tuple<>>;
  constexpr std::array<Shape, Balanced ? 1 : 0> exchange_shapes(const Shape&) const {
    if constexpr (Balanced) {
      return {Shape{{Axis::expert, detail::BalanceSums(sizes_.experts).count()}}};
    } else {
      return {};
    }
  }

  constexpr Shape output_shape(const Shape& x) const {
    return detail::rows_of_features(x, sizes_.features, "the experts take");
  }

  constexpr auto parameter_specs(const Shape&) const {
    const auto [experts, chosen, features, hidden] = sizes_;
    const Dim each{Axis::expert, experts}, wide{Axis::input, features};
    const Shape first{each, {Axis::output, hidden}, wide};
    return std::array{ParameterSpec{"router", {each, wide}, rule_, {features, experts}},
                      ParameterSpec{"gate", first, rule_, {features, hidden}},
                      ParameterSpec{"up", first, rule_, {features, hidden}},
                      ParameterSpec{"down",
                                    {each, {Axis::output, features}, {Axis::input, hidden}},
                                    rule_,
                                    {hidden, features}}};
  }

  template <class Frame>
  auto make_state(Frame& frame) const {
    using B = typename Frame::backend_type;
    static_assert(!DeviceBackend<B>,
                  "Experts run on the host: which rows an expert computes is known only in the "
                  "memory of the tensors, which the host cannot read on this backend. Name a "
                  "backend of the host in the model's Context.");
    return detail::ExpertState<B, typename Frame::dtype>(
        frame.backend(), sizes_.features, sizes_.hidden, sizes_.experts, held(frame).size);
  }

  template <class Frame>
  using saved = detail::SavedByExperts<typename Frame::dtype>;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    auto& state = frame.state();
    const std::size_t rows = x.rows(), most = slots_of(frame, rows);
    auto logits = detail::take_array<T>(frame, rows * sizes_.experts);
    state.router.forward(rows, x.data(), weight<of_router>(frame), nullptr, Activation::none,
                         logits.data());
    auto routing = detail::routed<accumulate_t<T>>(frame, logits.data(), rows, sizes_.experts,
                                                   sizes_.chosen, held(frame));
    auto gate = detail::take_array<T>(frame, most * sizes_.hidden);
    auto up = detail::take_array<T>(frame, most * sizes_.hidden);
    const auto hidden = detail::take_array<T>(frame, most * sizes_.hidden);
    const auto wide = detail::take_array<T>(frame, most * sizes_.features);  // x, and then y
    put_in_slots(frame, routing, x.data(), wide.data());
    const detail::ExpertHidden<T> of = hidden_of<T>(routing, gate, up);
    routing.for_each_expert([&](std::size_t e, std::size_t first, std::size_t slots) {
      auto& products = state.products[e];
      const std::size_t at = first * sizes_.hidden;
      T* const rows_here = wide.data() + first * sizes_.features;
      products.gate.forward(slots, rows_here, weight<of_gate>(frame, e), nullptr, Activation::none,
                            of.gate + at);
      products.up.forward(slots, rows_here, weight<of_up>(frame, e), nullptr, Activation::none,
                          of.up + at);
      detail::for_each_slot(frame.backend(), of.hidden, first, slots,
                            detail::WeighedHidden<T>{of, hidden.data()});
      products.down.forward(slots, hidden.data() + at, weight<of_down>(frame, e), nullptr,
                            Activation::none, rows_here);
    });
    put_in_rows<T>(frame, routing, wide.data(), nullptr, y.data());
    if (!frame.training()) return;
    auto sums = balance_sums(frame, x, routing, logits.data());
    frame.saved() = {std::move(routing), std::move(logits), std::move(gate), std::move(up),
                     std::move(sums)};
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    const auto batch = std::exchange(frame.saved(), {});
    const auto& routing = batch.routing;
    const std::size_t rows = x.rows(), most = slots_of(frame, rows);
    const auto slopes = detail::take_array<A>(frame, rows * sizes_.chosen);  // of weights
    const auto first = detail::take_array<T>(frame, most * sizes_.features);
    const auto second = detail::take_array<T>(frame, most * sizes_.features);
    put_in_slots(frame, routing, dy.data(), first.data());
    put_in_slots(frame, routing, x.data(), second.data());
    experts_back(frame, routing, hidden_of<T>(routing, batch.gate, batch.up), slopes.data(),
                 first.data(), second.data());
    const auto dlogits = detail::take_array<T>(frame, rows * sizes_.experts);
    put_logit_slopes(frame, x, batch, slopes.data(), dlogits.data());
    auto& routed = frame.state().router;
    routed.backward_weight(rows, x.data(), dlogits.data(), frame.write(),
                           frame.template gradient_data<of_router>(), nullptr);
    if constexpr (Frame::input_gradient) {
      routed.backward_input(rows, dlogits.data(), weight<of_router>(frame), dx.data());
      put_in_rows<T>(frame, routing, first.data(), second.data(), dx.data());
    }
  }
  ///@}

 private:
  template <class, ExpertSizes, bool>
  friend class Experts;

  static constexpr std::size_t of_router = 0, of_gate = 1, of_up = 2, of_down = 3;  // parameters

  template <ExpertSizes Others, bool WithBalance>
  constexpr auto with(double coefficient) const {
    const auto other = [&] {
      if constexpr (Others == ExpertSizes{}) {
        return Experts<S, Others, WithBalance>(sizes_);
      } else {
        return Experts<S, Others, WithBalance>();
      }
    };
    auto made = other().initialized_by(rule_);
    made.coefficient_ = coefficient;
    return made;
  }

  template <class Frame>
  Interval held(Frame& frame) const {
    if constexpr (std::same_as<S, split::expert>) {
      return block_of(sizes_.experts, frame.place());
    } else {
      return {0, sizes_.experts};
    }
  }
  template <class Frame>
  std::size_t slots_of(Frame& frame, std::size_t rows) const {
    return detail::most_slots(rows, sizes_.chosen, held(frame).size);
  }

  /// Parameter `Which`, or that of the rank's expert e.
  template <std::size_t Which, class Frame>
  Weight<typename Frame::dtype> weight(Frame& frame, std::size_t e = 0) const {
    return frame.weight(frame.template parameter_data<Which>() +
                        e * sizes_.hidden * sizes_.features);
  }
  template <std::size_t Which, class Frame>
  typename Frame::dtype* gradient(Frame& frame, std::size_t e) const {
    return frame.template gradient_data<Which>() + e * sizes_.hidden * sizes_.features;
  }

  template <class T, class A>
  detail::ExpertHidden<T> hidden_of(const detail::Routing<A>& routing,
                                    const detail::PooledArray<T>& gate,
                                    const detail::PooledArray<T>& up) const {
    return {routing.choices.data(), routing.weights.data(), sizes_.hidden, gate.data(), up.data()};
  }

  template <class Frame, class A, class T>
  void put_in_slots(Frame& frame, const detail::Routing<A>& routing, const T* from, T* to) const {
    detail::for_each_in_rows(
        frame.backend(), routing.slot_count(), sizes_.features,
        detail::RowsInSlots<T>{routing.choices.data(), sizes_.chosen, sizes_.features, from, to});
  }
  template <class T, class Frame, class A>
  void put_in_rows(Frame& frame, const detail::Routing<A>& routing, const T* first, const T* second,
                   T* to) const {
    detail::for_each_in_rows(frame.backend(), routing.rows, sizes_.features,
                             detail::SlotsInRows<T>{routing.slots.data(), sizes_.chosen,
                                                    sizes_.features, first, second, to});
  }

  /// Writes the gradients of the experts' parameters, and those of the weights of the choices to
  /// `slopes`. `first` has dy in slots and `second` x; they become the gradients of x by gate and
  /// by up.
  template <class Frame, class A, class T>
  void experts_back(Frame& frame, const detail::Routing<A>& routing,
                    const detail::ExpertHidden<T>& of, A* slopes, T* first, T* second) const {
    const auto memory = detail::take_array<T>(frame, slots_of(frame, routing.rows) * of.hidden);
    T* const hidden = memory.data();
    std::fill_n(slopes, routing.rows * routing.chosen, A(0));
    routing.for_each_expert([&](std::size_t e, std::size_t begin, std::size_t slots) {
      auto& products = frame.state().products[e];
      const std::size_t at = begin * of.hidden;
      T* const dy = first + begin * sizes_.features;
      T* const x = second + begin * sizes_.features;
      products.down.backward_input(slots, dy, weight<of_down>(frame, e), hidden + at);
      for (std::size_t slot = begin; slot < begin + slots; ++slot)
        if (of.choices[slot] != detail::nowhere)
          slopes[of.choices[slot]] = detail::weight_slope(of, hidden, slot);
      detail::for_each_slot(frame.backend(), of.hidden, begin, slots,
                            detail::HiddenBack<T>{of, hidden});
      const Write write = frame.write();
      products.down.backward_weight(slots, hidden + at, dy, write, gradient<of_down>(frame, e),
                                    nullptr);
      products.gate.backward_weight(slots, x, of.gate + at, write, gradient<of_gate>(frame, e),
                                    nullptr);
      products.up.backward_weight(slots, x, of.up + at, write, gradient<of_up>(frame, e), nullptr);
      if constexpr (Frame::input_gradient) {
        products.gate.backward_input(slots, of.gate + at, weight<of_gate>(frame, e), dy);
        products.up.backward_input(slots, of.up + at, weight<of_up>(frame, e), x);
      }
    });
  }

  /// What a balancing loss needs of all rows of the batch.
  template <class Frame, class X, class A, class T>
  detail::PooledArray<double> balance_sums(Frame& frame, const X& x,
                                           const detail::Routing<A>& routing,
                                           const T* logits) const {
    if constexpr (Balanced) {
      const detail::BalanceSums of(sizes_.experts);
      auto mine = frame.template exchange_input<0>();
      detail::put_balance_sums(frame, x, routing, logits, of, mine.writable().data());
      const auto all = frame.template exchange<0>(std::move(mine));
      auto sums = detail::take_array<double>(frame, of.count());
      std::copy_n(all.view().data(), of.count(), sums.data());
      return sums;
    } else {
      return {};
    }
  }

  /// The rank's part of the gradient of the logits, from those of the weights of its experts.
  template <class Frame, class X, class Saved, class A, class T>
  void put_logit_slopes(Frame& frame, const X& x, const Saved& batch, const A* slopes,
                        T* dlogits) const {
    const auto& routing = batch.routing;
    const auto row = detail::take_array<A>(frame, sizes_.experts);
    const auto balance = [&] {
      if constexpr (Balanced) {
        const detail::BalanceSums of(sizes_.experts);
        frame.add_loss(coefficient_ * of.loss(batch.balance.data()));
        return detail::balance_of<T>(frame, x, routing, batch.logits.data(), of,
                                     batch.balance.data(),
                                     coefficient_ * frame.batch_loss_factor());
      } else {
        return detail::NoBalance{};
      }
    }();
    for (std::size_t r = 0; r < routing.rows; ++r) {
      std::fill_n(row.data(), sizes_.experts, A(0));
      const std::size_t begin = r * sizes_.chosen, end = begin + sizes_.chosen;
      A mean = 0;
      for (std::size_t c = begin; c < end; ++c) mean += routing.weights[c] * slopes[c];
      for (std::size_t c = begin; c < end; ++c)
        row[routing.experts[c]] = routing.weights[c] * (slopes[c] - mean);
      balance.add(r, row.data());
      for (std::size_t e = 0; e < sizes_.experts; ++e)
        dlogits[r * sizes_.experts + e] = static_cast<T>(row[e]);
    }
  }

  ExpertSizes sizes_ = Sizes;
  init::Rule rule_ = init::torch_linear;
  double coefficient_ = 0;  // of the balancing loss
};

/// "Experts<2 of 8, 64, 128>", "Experts<dynamic of dynamic, dynamic, dynamic, balanced>".
template <class S, ExpertSizes Sizes, bool Balanced>
struct NameOf<Experts<S, Sizes, Balanced>> {
  static std::string name() {
    return detail::sentence(
        {"Experts<", detail::size_name(Sizes.chosen), " of ", detail::size_name(Sizes.experts),
         ", ", detail::size_name(Sizes.features), ", ", detail::size_name(Sizes.hidden),
         Balanced ? ", balanced" : "", std::same_as<S, split::none> ? ", split::none>" : ">"});
  }
};

}  // namespace shardwise
