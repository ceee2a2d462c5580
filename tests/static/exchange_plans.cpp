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

}  // namespace
