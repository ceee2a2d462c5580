// What a mixture of experts takes, gives and sends, known to the compiler.

#include "shardwise/layers/experts.hpp"

#include <concepts>
#include <cstddef>

#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/head_linear.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/queries.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

namespace {

using Sequence = Sharded<Axis::sequence>;
using Expert = Sharded<Axis::expert>;

constexpr ExpertSizes sizes{.experts = 5, .chosen = 2, .features = 6, .hidden = 4};
using Split = Experts<split::expert, sizes>;
using Whole = Experts<split::none, sizes>;
using Balanced = decltype(Split{}.balanced_by(0.01));

static_assert(Layer<Split> && Layer<Whole> && Layer<Balanced> && Layer<Experts<>>);
static_assert(Experts<>(sizes).sizes() == sizes && Split{}.as_dynamic().sizes() == sizes);
static_assert(!std::same_as<Balanced, Split>);

constexpr Shape rows{{Axis::batch, 2}, {Axis::sequence, 8}, {Axis::feature, 6}};
constexpr std::size_t values = 2 * 8 * 6, router = 5 * 6, expert = 3 * 4 * 6;

template <class L, Layout In, Layout Out = In>
constexpr Plan plan_on() {
  return plan<L, 4, In, Out, true>(rows);
}

// A summand of each rank; the router owes one sum, and the experts nothing. A balancing loss sends
// nothing, unless ranks have different rows: then they add choices, probabilities and rows.
static_assert(plan_on<Split, Invariant>().forward == CollectiveList{all_reduce(values)});
static_assert(plan_on<Split, Invariant>().backward == CollectiveList{all_reduce(values)});
static_assert(plan_on<Split, Invariant>().settle == CollectiveList{all_reduce(router)});
static_assert(plan_on<Balanced, Invariant>().forward == plan_on<Split, Invariant>().forward);
static_assert(plan_on<Balanced, Invariant>().backward == plan_on<Split, Invariant>().backward);

using BalancedWhole = decltype(Whole{}.balanced_by(0.01));
static_assert(plan_on<BalancedWhole, Sequence>().forward ==
              CollectiveList{all_reduce(2 * 5 + 1, Dtype::float64)});
static_assert(plan_on<BalancedWhole, Sequence>().backward.empty());

// A split sequence is gathered, and the result scattered.
static_assert(plan_on<Split, Sequence>().forward ==
              CollectiveList{all_gather(values), reduce_scatter(values)});
static_assert(plan_on<Split, Sequence>().backward ==
              CollectiveList{all_gather(values), reduce_scatter(values)});

// Ranks with all experts send nothing but gradients.
static_assert(plan_on<Whole, Sequence>().forward.empty() &&
              plan_on<Whole, Sequence>().backward.empty());
static_assert(plan_on<Whole, Sequence>().settle == CollectiveList{all_reduce(router + 5 * expert)});
static_assert(plan_on<Whole, Invariant>().settle.empty());

// 5 experts over 4 ranks, and over 8.
static_assert(memory_of<Split, 4>(rows)[0].parameters == router + 2 * expert);
static_assert(memory_of<Split, 4>(rows)[3].parameters == router + expert);
static_assert(memory_of<Split, 8>(rows)[7].parameters == router);
static_assert(local_shape<Expert>({{Axis::expert, 5}, {Axis::output, 4}}, {1, 4}) ==
              Shape{{Axis::expert, 1}, {Axis::output, 4}});

// Slots are few more than rows, of few different numbers, and fit into the memory that is taken.
consteval bool slots_fit() {
  std::size_t numbers = 0, last = 0;
  for (std::size_t n = 0; n <= 4096; ++n) {
    const std::size_t slots = detail::slots_for(n);
    if (slots < n || slots > detail::most_slots(n, 1, 1)) return false;
    if (slots != last) ++numbers;
    last = slots;
  }
  return numbers <= 4 * 12;
}
static_assert(slots_fit());
static_assert(detail::slots_for(8) == 8 && detail::slots_for(9) == 10 &&
              detail::slots_for(100) == 112);

// A block of a Mixtral makes two all-reduces each way, one for attention and one for experts.
// begin: block
using Heads = HeadLinear<6, 4, 3, false>;
struct Block : Sequential<Residual<Sequential<RmsNorm<6>, Join<Attend<>, Heads, Heads, Heads>,
                                              RowParallelLinear<12, 6, false>>>,
                          Residual<Sequential<RmsNorm<6>, Split>>> {};
// end: block
static_assert(plan_on<Block, Invariant>().forward ==
              CollectiveList{all_reduce(values), all_reduce(values)});
static_assert(plan_on<Block, Invariant>().backward ==
              CollectiveList{all_reduce(values), all_reduce(values)});

}  // namespace
