// Exchanges inside layers, as plans see them.

#include <array>
#include <tuple>

#include "shardwise/shardwise.hpp"

using namespace shardwise;

namespace {

/// Names a maximum, which has no adjoint, and a sum, which has.
struct MaximumAndSum : KeepsLayout {
  [[maybe_unused]] static constexpr Saves saves = Saves::nothing;
  template <Layout In>
  using exchanges = std::tuple<Exchange<Redistribute<Partial, Replicated>, Reduction::max>,
                               Exchange<Redistribute<Partial, Replicated>>>;
  constexpr std::array<Shape, 2> exchange_shapes(const Shape& in) const {
    return {in.without_back(), in};
  }
};

using Feature = Sharded<Axis::feature>;
constexpr Shape in{{Axis::batch, 4}, {Axis::feature, 6}};

static_assert(plan<MaximumAndSum, 2, Feature, Feature, true>(in).forward ==
              CollectiveList{all_reduce(4), all_reduce(24)});
static_assert(plan<MaximumAndSum, 2, Feature, Feature, true>(in).backward ==
              CollectiveList{all_reduce(24)});
static_assert(plan<MaximumAndSum, 2, Feature, Feature>(in).backward.empty());

}  // namespace
