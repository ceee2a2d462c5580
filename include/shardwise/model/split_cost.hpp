#pragma once
// The time of a training step by a model of computation and messages, to compare splits.

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "shardwise/core/error.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/model/input_element.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/predict.hpp"

namespace shardwise {

/// What a rank computes and sends in a second. With L layers of P ranks along `tensor`, the seconds
/// of a step are the sum of
///
///   computation   2 operations for each parameter that a rank uses and each position (row or
///                 pixel) of its output, by `flops`; as much again for the gradients of the
///                 parameters, and again for that of the input. Of the rank with the largest part.
///                 Layers without parameters, and tables of rows, take no time.
///   messages      each collective of forward and backward, as `predict` says
///   gradients     the bytes of all-reduces of the gradients, by the bandwidth: buckets hold those
///                 of many layers, so they have no latency of one layer
///
/// These are sums over layers, so each layer has its price between two layouts.
struct SplitCost {
  StepCost links{};  ///< between the ranks
  double flops = 0;  ///< additions and multiplications that a rank computes in a second
};

namespace detail {

/// throws  argument_error unless all rates are above 0
constexpr void require_rates(const SplitCost& cost, const mesh& sizes) {
  if (!(cost.flops > 0))
    throw argument_error({"SplitCost: a rank computes ", cost.flops,
                          " operations a second; give a number above 0, such as "
                          "{.links = StepCost::on(link), .flops = 1e12}"});
  for (const MeshAxis axis : mesh_axes) {
    const Link& link = cost.links[axis];
    if (sizes[axis] > 1 && !(link.latency >= 0 && link.bandwidth > 0))
      throw argument_error({"SplitCost: along ", name(axis), " a message has a latency of ",
                            link.latency, " seconds and a bandwidth of ", link.bandwidth,
                            " bytes a second; the first is at least 0, the second above 0"});
  }
}

/// Adds up what SplitCost counts.
struct PriceVisitor : PlanVisitor {
  constexpr PriceVisitor(const Sending& sent, const mesh& of_ranks)
      : PlanVisitor(sent, true, of_ranks) {}

  double operations = 0;
  bool has_input_gradient = false;  ///< of the next layer

  template <class R, bool Returns, class X>
  constexpr void redistribution(const Shape& shape) {
    has_input_gradient = Returns;
    PlanVisitor::redistribution<R, Returns, X>(shape);
  }

  template <class L, Layout In, bool Returns>
  constexpr void layer(const L& layer, const Shape& in, const Shape& out) {
    PlanVisitor::layer<L, In, Returns>(layer, in, out);
    using Parameters = parameters_t<L, In>;
    if constexpr (std::tuple_size_v < Parameters >> 0 && !has_own_element<L>) {
      const auto specs = layer.parameter_specs(in);
      const double used = [&]<std::size_t... Is>(std::index_sequence<Is...>) {
        return (
            0.0 + ... +
            of_first_rank<typename std::tuple_element_t<Is, Parameters>::stored>(specs[Is].shape));
      }
      (std::make_index_sequence<std::tuple_size_v<Parameters>>{});
      const int products = !Returns ? 1 : has_input_gradient ? 3 : 2;
      operations += 2 * products * used * positions<typename L::template output_layout<In>>(out);
    }
  }

  constexpr double seconds(const SplitCost& cost) const {
    double sum = operations / cost.flops;
    for (const CollectiveList* part : {&forward, &returning})
      for (const Collective& entry : *part)
        sum += critical_path(entry, sizes, cost.links.compares_calls).on(cost.links[entry.axis]);
    const std::size_t owed = held[static_cast<std::size_t>(Holding::owing)][0];
    sum += of_gradients(owed, MeshAxis::tensor, cost.links);
    std::size_t here = 0;
    for (const auto& of_places : held) here += of_places[0];
    for (const MeshAxis axis : sample_axes) sum += of_gradients(here, axis, cost.links);
    return sum;
  }

 private:
  /// The elements of a tensor on the first rank, whose part is the largest.
  template <Layout L>
  constexpr double of_first_rank(const Shape& shape) const {
    return static_cast<double>(local_shape<L>(shape, Place{0, sizes.tensor}).elements());
  }

  /// Those of an output, but for features and channels.
  template <Layout L>
  constexpr double positions(const Shape& out) const {
    double count = 1;
    for (const Dim& dim : local_shape<L>(out, Place{0, sizes.tensor})) {
      if (dim.axis == Axis::feature || dim.axis == Axis::channel) continue;
      const int slices = dim.axis == Axis::batch      ? sizes.replica * sizes.data
                         : dim.axis == Axis::sequence ? sizes.context
                                                      : 1;
      count *= static_cast<double>(block_of(dim.extent(), {0, slices}).size);
    }
    return count;
  }

  constexpr double of_gradients(std::size_t elements, MeshAxis axis, const StepCost& links) const {
    if (sizes[axis] == 1 || elements == 0) return 0;
    const MpiPaths paths(sizes[axis], sending.gradients);
    const auto n = static_cast<double>(elements);
    return (paths.reduce_scatter(n).bytes + paths.all_gather(n).bytes) / links[axis].bandwidth;
  }
};

}  // namespace detail

/// The seconds of a training step of a model as it is split, by the model of `SplitCost`. `in` is
/// the global shape of its input. A constant expression.
/// throws   argument_error if a rate is not above 0
template <class L, EndLayout Offered = Invariant, EndLayout Wanted = Invariant,
          bool InputGradient = false>
constexpr double price_of(const SplitCost& cost, const mesh& sizes, const shapes_t<Offered>& in,
                          const Sending& sending = {}) {
  using Use = std::conditional_t<InputGradient, TrainWithInputGradient, Train>;
  detail::require_rates(cost, sizes);
  detail::PriceVisitor visitor(sending, sizes);
  detail::walk<Ends<Offered, Wanted>, Use>(detail::model_by_type<L>(), in, visitor);
  return visitor.seconds(cost);
}

}  // namespace shardwise
