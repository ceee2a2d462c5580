// What an embedding takes, gives and sends, known to the compiler.

#include "shardwise/layers/embedding.hpp"

#include <concepts>
#include <cstdint>

#include "shardwise/layers/linear.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/queries.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/model/tied.hpp"

using namespace shardwise;

namespace {

using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;
using Feature = Sharded<Axis::feature>;

using ByRow = Embedding<11, 6>;
using ByFeature = Embedding<11, 6, split::input>;
using Whole = Embedding<11, 6, split::none>;

constexpr Shape ids{{Axis::batch, 2}, {Axis::sequence, 8}};
constexpr std::size_t output = 2 * 8 * 6;

static_assert(Layer<ByRow> && Layer<ByFeature> && Layer<Embedding<dynamic, dynamic>>);
static_assert(std::same_as<detail::input_element_t<ByRow, float>, std::int32_t>);
static_assert(ByRow{}.output_shape(ids) ==
              Shape{{Axis::batch, 2}, {Axis::sequence, 8}, {Axis::feature, 6}});
static_assert(Embedding<dynamic, 6>(11).in() == 11);

template <class L, Layout In, Layout Out = Invariant>
constexpr Plan plan_on() {
  return plan<L, 4, In, Out>(ids);
}

// A summand of each rank; ids that are split are gathered, as integers.
static_assert(plan_on<ByRow, Invariant>().forward == CollectiveList{all_reduce(output)});
static_assert(plan_on<ByRow, Invariant, Sequence>().forward ==
              CollectiveList{reduce_scatter(output)});
static_assert(plan_on<ByRow, Batch>().forward ==
              CollectiveList{all_gather(2 * 8, Dtype::int32), all_reduce(output)});
static_assert(plan_on<ByRow, Invariant>().backward.empty() &&
              plan_on<ByRow, Invariant>().settle.empty());

static_assert(plan_on<ByFeature, Invariant, Feature>().forward.empty());
static_assert(plan_on<ByFeature, Invariant, Feature>().settle.empty());
static_assert(plan_on<Whole, Invariant>().forward.empty() &&
              plan_on<Whole, Invariant>().settle.empty());
static_assert(plan_on<Whole, Sequence, Sequence>().forward.empty());
static_assert(plan_on<Whole, Sequence, Sequence>().settle == CollectiveList{all_reduce(11 * 6)});

// The last layer may share the table: nothing is owed then either.
struct Words;
struct Tied : Sequential<Owns<Words, ByRow>, Borrows<Words, ColumnParallelLinear<6, 11, false>>> {};
static_assert(plan_on<Tied, Invariant, Feature>().forward == CollectiveList{all_reduce(output)});
static_assert(plan_on<Tied, Invariant, Feature>().backward == CollectiveList{all_reduce(output)});
static_assert(plan_on<Tied, Invariant, Feature>().settle.empty());

}  // namespace
