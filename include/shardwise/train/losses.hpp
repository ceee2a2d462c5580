#pragma once
// The loss of a model: one for its output, or a std::tuple of one for each of several outputs.

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/comm/given_options.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/model/values.hpp"
#include "shardwise/train/class_weights.hpp"
#include "shardwise/train/clip.hpp"
#include "shardwise/train/loss.hpp"
#include "shardwise/train/mesh_loss.hpp"

namespace shardwise {

/// `loss` times `weight`, which is the same on all ranks: the weight of one output among several.
///
///     std::tuple losses{CrossEntropy{}, Weighted{MeanSquaredError{}, 0.5}};
///
/// layout, sends, throws    as the loss
template <Loss Inner>
struct Weighted {
  Inner loss;     ///< the loss without the weight
  double weight;  ///< any finite number

  /// Calls f(name, value) for the weight, and for each option of the loss.
  template <class F>
  constexpr void visit_options(F&& f) const {
    f("weight", weight);
    if constexpr (requires { loss.visit_options(f); }) loss.visit_options(f);
  }

  ///@{
  /// As `Loss` says.
  template <Layout L>
  using exchanges = typename Inner::template exchanges<L>;

  template <Layout L>
  constexpr auto exchange_shapes(const Shape& prediction) const {
    return detail::exchange_shapes_of<L>(loss, prediction);
  }

  void require_target(const Shape& prediction, const Shape& target) const requires requires {
    loss.require_target(prediction, target);
  }
  { loss.require_target(prediction, target); }

  template <class Frame, Real T, Layout L, class Target>
  auto operator()(Frame& frame, View<const T, L> prediction, const Target& target,
                  View<accumulate_t<T>, dual_t<L>> gradient) const {
    using A = accumulate_t<T>;
    const auto value = loss(frame, prediction, target, gradient);
    frame.backend().for_each(gradient.size(), detail::Scale<A, A>{gradient.data(), gradient.data(),
                                                                  static_cast<A>(weight)});
    return value / (1 / weight);  // a sum of the frame supports only division
  }
  ///@}
};
/// Deduces the type of the loss in `Weighted{loss, weight}`.
template <class Inner>
Weighted(Inner, double) -> Weighted<Inner>;

namespace detail {

/// The gradients of a model's outputs, in the dtype that losses write.
template <class M>
using loss_gradient_t =
    values_t<accumulate_t<typename M::dtype>, duals_t<typename M::output_layout>>;

template <class L>
inline constexpr std::size_t losses_in = 1;
template <class... Ls>
inline constexpr std::size_t losses_in<std::tuple<Ls...>> = sizeof...(Ls);
template <class L>
inline constexpr bool are_losses = Loss<L>;
template <class... Ls>
inline constexpr bool are_losses<std::tuple<Ls...>> = (Loss<Ls> && ...);

/// The error for a type that is not a loss, or is not a loss for each output.
template <class Chosen, std::size_t Outputs>
consteval bool must_be_loss() {
  static_assert(are_losses<Chosen>,
                "Chosen is no loss: give an object like CrossEntropy{} or MeanSquaredError{}, or "
                "one with `exchanges` as train/loss.hpp says.");
  static_assert(!are_losses<Chosen> || losses_in<Chosen> == Outputs,
                "a model with several outputs takes a loss and a target for each: "
                "std::tuple{CrossEntropy{}, Weighted{MeanSquaredError{}, 0.5}}, and a std::tuple "
                "of the targets.");
  return true;
}

/// Calls `loss.require_target` if there is one, or that of each loss.
/// throws   argument_error for a target without memory
template <class Target, Loss Chosen>
void require_target(const Chosen& loss, const Shape& prediction, const Target& target) {
  if constexpr (requires { loss.require_target(prediction, target.global()); })
    loss.require_target(prediction, target.global());
  if constexpr (requires { target.local(); })
    if (is_nowhere(target)) refuse_nowhere("the target");
}
template <class... Targets, class... Ls>
void require_target(const std::tuple<Ls...>& losses,
                    const std::array<Shape, sizeof...(Ls)>& predictions,
                    const std::tuple<Targets...>& targets) {
  if constexpr (sizeof...(Targets) == sizeof...(Ls)) {
    [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
      (require_target(std::get<Ks>(losses), predictions[Ks], std::get<Ks>(targets)), ...);
    }
    (std::index_sequence_for<Ls...>{});
  }
}

/// Adds a loss, or each of several, with its options to what ranks compare.
template <class Context, Loss Chosen>
void add_loss(GivenOptions& to, Run<Context>& run, const Chosen& loss) {
  to.add("loss", raw_type_name<Chosen>());
  const auto add = [&](std::string_view name, const auto& value) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(value)>, ClassWeights>)
      add_weights(to, run.backend, run.pool, name, value);
    else
      to.add(name, value);
  };
  if constexpr (requires { loss.visit_options(add); }) loss.visit_options(add);
}
template <class Context, class... Ls>
void add_loss(GivenOptions& to, Run<Context>& run, const std::tuple<Ls...>& losses) {
  [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
    ((to.set_loss(Ks), add_loss(to, run, std::get<Ks>(losses))), ...);
  }
  (std::index_sequence_for<Ls...>{});
  to.set_loss(GivenOptions::no_loss);
}

/// Throws as the loss for a target whose shape is not that of the model's output for x. Returns if
/// x itself does not fit: forward then says at which layer.
template <class M, class Target, class Chosen>
void require_fitting_target(M& model, const typename M::input_view& x, const Target& target,
                            const Chosen& loss) {
  std::optional<shapes_t<typename M::output_layout>> output;
  try {
    output = with_tensors(
        x, [&](const auto&... each) { return model.layers().output_shape({each.global()...}); });
  } catch (const shape_error&) {
    return;
  }
  require_target(loss, *output, target);
}

/// The share of this rank's slice of a prediction, which must be that of a mesh, in its step.
template <class Context, class T, Layout L>
BatchInStep slice_in_step(const Run<Context>& run, const View<const T, L>& prediction,
                          BatchInStep in_step) {
  const auto here = slice_of(prediction);
  BatchInStep mine{samples_of(here), in_step.of_step, sample_ranks(run.all_ranks.sizes()) > 1};
  if (const Axis cut = axis_over_context(prediction.global()); cut != Axis::batch) {
    mine.tokens = extent_of(here.global(), cut);
    mine.of_tokens = extent_of(prediction.global(), cut);
  }
  return mine;
}

/// The part of the rank's run that `loss` has, for a prediction of this shape in the layout L.
template <Layout L, class Context, Loss Chosen>
auto loss_frame(Run<Context>& run, const Chosen& loss, const Shape& prediction, BatchInStep in_step,
                bool is_recorded) {
  return LossFrame<Context, typename Chosen::template exchanges<L>>(
      run, exchange_shapes_of<L>(loss, prediction), in_step, is_recorded);
}

/// The result of `loss` for a prediction, on a mesh for this rank's slice of it, which has this
/// share of the step; writes the gradient. A loss that `is_recorded` reads nothing from a device.
template <class Context, class T, Layout L, class Target, Loss Chosen>
auto loss_of_slice(Run<Context>& run, const View<const T, L>& prediction, const Target& target,
                   const Chosen& loss, BatchInStep in_step,
                   Value<accumulate_t<T>, dual_t<L>>& gradient, bool is_recorded) {
  gradient = {run.pool, prediction.global(), prediction.place()};
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    return with_slice_of_target(run, prediction.global(), target, [&](const auto& of_slice) {
      const auto here = slice_of(prediction);
      auto frame =
          loss_frame<along_t<L, MeshAxis::tensor>>(run, loss, here.global(), in_step, is_recorded);
      return loss(frame, here, of_slice, slice_of(gradient.writable()));
    });
  } else {
    auto frame = loss_frame<L>(run, loss, prediction.global(), in_step, is_recorded);
    return loss(frame, prediction, target, gradient.writable());
  }
}

/// The result of `loss` for a prediction; writes the gradient.
template <class Context, class T, Layout L, class Target, Loss Chosen>
auto loss_of(Run<Context>& run, const View<const T, L>& prediction, const Target& target,
             const Chosen& loss, BatchInStep in_step, Value<accumulate_t<T>, dual_t<L>>& gradient) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    const BatchInStep mine = slice_in_step(run, prediction, in_step);
    const double sum = sum_of_slices(run, prediction.global(), [&] {
      return static_cast<double>(
          loss_of_slice(run, prediction, target, loss, mine, gradient, false));
    });
    if (samples_of(prediction) * mine.of_tokens == 0) throw_for_no_samples();
    return sum;
  } else {
    return loss_of_slice(run, prediction, target, loss, in_step, gradient, false);
  }
}

/// The sum of the losses' results, each for its prediction and target.
template <class Context, class... Predictions, class... Targets, class... Ls, class... Gradients>
double loss_of(Run<Context>& run, const std::tuple<Predictions...>& predictions,
               const std::tuple<Targets...>& targets, const std::tuple<Ls...>& losses,
               BatchInStep in_step, std::tuple<Gradients...>& gradients) {
  static_assert(sizeof...(Targets) == sizeof...(Ls),
                "a model with several outputs takes a target for each: std::tuple{labels.view(), "
                "boxes.view()}.");
  return [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
    double sum = 0;
    ((sum += static_cast<double>(loss_of(run, std::get<Ks>(predictions), std::get<Ks>(targets),
                                         std::get<Ks>(losses), in_step, std::get<Ks>(gradients)))),
     ...);
    return sum;
  }
  (std::index_sequence_for<Ls...>{});
}

}  // namespace detail

/// The collectives of the losses of several outputs of these global shapes.
template <EndLayout Outputs, class... Ls>
constexpr CollectiveList plan_loss(const std::tuple<Ls...>& losses,
                                   const std::array<Shape, sizeof...(Ls)>& predictions,
                                   Dtype dtype = Dtype::float32, const mesh& sizes = {}) {
  CollectiveList list;
  [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
    const auto add = [&](const CollectiveList& one) {
      for (const Collective& entry : one) list.add(entry);
    };
    (add(plan_loss<detail::nth_layout_t<Outputs, Ks>>(std::get<Ks>(losses), predictions[Ks], dtype,
                                                      sizes)),
     ...);
  }
  (std::index_sequence_for<Ls...>{});
  return list;
}

}  // namespace shardwise
