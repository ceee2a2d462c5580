#pragma once
// The sizes and layouts of a mixture of experts.

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/split.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/redistribute/redistribute.hpp"

namespace shardwise {

/// The sizes of a mixture of experts. A value that can be a template argument.
struct ExpertSizes {
  std::size_t experts = dynamic;   ///< over all ranks
  std::size_t chosen = dynamic;    ///< experts of each row
  std::size_t features = dynamic;  ///< of a row
  std::size_t hidden = dynamic;    ///< features inside an expert

  friend constexpr bool operator==(const ExpertSizes&, const ExpertSizes&) = default;
};

namespace detail {

/// The layouts of a mixture of experts, by split.
template <class S>
struct ExpertLayouts : ProductLayouts<split::none, Axis::feature> {
  static_assert(std::same_as<S, split::none>,
                "A mixture of experts is split by split::expert, or not: split::none.");
  template <Layout In>
  using router = ProductLayouts<split::none, Axis::feature>::weight<In>;
  template <Layout In>
  using expert = router<In>;
};
template <>
struct ExpertLayouts<split::expert> : TakesAndGives<Replicated, Partial> {
  using along_other_axes = ExpertLayouts<split::none>;
  template <Layout In>
  using router = ParameterUse<Invariant, Replicated>;
  template <Layout In>
  using expert = ParameterUse<Sharded<Axis::expert>, Sharded<Axis::expert>>;
};

/// The sums over all rows that a balancing loss needs, see BalanceSums.
template <class In>
using BalanceExchange = Exchange<
    std::conditional_t<ShardedLayout<In>, Redistribute<Partial, Invariant>, Redistribute<In, In>>,
    Reduction::sum, double>;

template <class S, class In>
using ExpertParameters = std::tuple<
    typename ExpertLayouts<S>::template router<In>, typename ExpertLayouts<S>::template expert<In>,
    typename ExpertLayouts<S>::template expert<In>, typename ExpertLayouts<S>::template expert<In>>;

template <ExpertSizes Sizes>
consteval bool expert_sizes_must_fit() {
  constexpr int given = (Sizes.experts != dynamic) + (Sizes.chosen != dynamic) +
                        (Sizes.features != dynamic) + (Sizes.hidden != dynamic);
  static_assert(given == 0 || given == 4,
                "Experts have all sizes in their type, or all in the object: "
                "ExpertSizes{.experts = 8, .chosen = 2, .features = 64, .hidden = 128}.");
  static_assert(given == 0 || (Sizes.chosen > 0 && Sizes.chosen <= Sizes.experts),
                "Each row of Experts chooses at least one expert, and no more than there are.");
  return true;
}

constexpr void require_experts(const ExpertSizes& sizes) {
  if (sizes.chosen > 0 && sizes.chosen <= sizes.experts) return;
  throw argument_error({"Experts: each row is to choose ", sizes.chosen, " of ", sizes.experts,
                        " experts; it must be at least one, and no more than there are"});
}

}  // namespace detail

}  // namespace shardwise
