// Exchanges inside layers, as plans see them.

#include <array>
#include <concepts>
#include <tuple>
#include <type_traits>

#include "shardwise/shardwise.hpp"

using namespace shardwise;

namespace {

using Feature = Sharded<Axis::feature>;
constexpr Shape in{{Axis::batch, 4}, {Axis::feature, 6}};

/// Names a maximum, which has no adjoint, and a sum, which has.
struct MaximumAndSum : KeepsLayout {
  [[maybe_unused]] static constexpr Saves saves = Saves::nothing;
  template <Layout In>
  using exchanges = std::tuple<Exchange<Redistribute<Partial, Replicated>, Reduction::max>,
                               Exchange<Redistribute<Partial, Replicated>>>;
  constexpr std::array<Shape, 2> exchange_shapes(const Shape& x) const {
    return {x.without_back(), x};
  }
};

static_assert(plan<MaximumAndSum, 2, Feature, Feature, true>(in).forward ==
              CollectiveList{all_reduce(4), all_reduce(24)});
static_assert(plan<MaximumAndSum, 2, Feature, Feature, true>(in).backward ==
              CollectiveList{all_reduce(24)});
static_assert(plan<MaximumAndSum, 2, Feature, Feature>(in).backward.empty());

/// Names an exchange for split features only.
struct SumOfFeatures : KeepsLayout {
  [[maybe_unused]] static constexpr Saves saves = Saves::nothing;
  template <Layout In>
  using exchanges =
      std::conditional_t<std::same_as<In, Feature>,
                         std::tuple<Exchange<Redistribute<Partial, Replicated>>>, std::tuple<>>;
  constexpr std::array<Shape, 1> exchange_shapes(const Shape& x) const {
    return {x.without_back()};
  }
};

static_assert(plan<SumOfFeatures, 2, Feature, Feature, true>(in).forward ==
              CollectiveList{all_reduce(4)});

// Over several axes of a mesh forward and backward sum in the same order.
constexpr Plan on_mesh() {
  return plan_of<Ends<Invariant, Invariant>, TrainWithInputGradient>(
      BatchNorm<6>{}, mesh{.replica = 3, .data = 2}, in);
}
constexpr CollectiveList over_both() {
  const Collective sums = all_reduce(2 * 6, Dtype::float64);
  return {sums.over(MeshAxis::data), sums.over(MeshAxis::replica)};
}
static_assert(on_mesh().forward == over_both());
static_assert(on_mesh().backward == over_both());

}  // namespace
