// What attention takes, gives and sends, known to the compiler.

#include <concepts>

#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/head_linear.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/queries.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/model/sum.hpp"

using namespace shardwise;

namespace {

using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;
using Feature = Sharded<Axis::feature>;

static_assert(Merge<Attend<>, 3> && !Merge<Attend<>, 2>);

// The layouts of keys and values follow from those of queries.
constexpr AttentionForm grouped{.readers = 3}, windowed{.window = 4};
static_assert(std::same_as<detail::operand_t<Attend<>, 1, Feature>, Feature>);
static_assert(std::same_as<detail::operand_t<Attend<grouped>, 1, Feature>,
                           Haloed<Axis::feature, Window{.repeats = 3}>>);
static_assert(std::same_as<detail::operand_t<Attend<grouped>, 2, Sequence>, Replicated>);
static_assert(std::same_as<detail::operand_t<Attend<windowed>, 2, Sequence>,
                           Haloed<Axis::sequence, Window{.kernel = 4, .before = 3}>>);
static_assert(std::same_as<detail::operand_t<Attend<grouped>, 1, Batch>, Batch>);

// Each query head finds its key head on its rank, no rank holds a key head that it does not read,
// and fewer than one copy for each key head and rank is held, at every number of ranks.
consteval bool heads_meet(std::size_t groups, std::size_t readers, int ranks) {
  const Window window{.repeats = readers};
  std::size_t copies = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Place place{rank, ranks};
    const Interval queries = block_of(groups * readers, place);
    const Interval keys = window.held_by(place, groups);
    copies += keys.size;
    if (queries.size == 0 && keys.size > 0) return false;
    if (queries.size == 0) continue;
    if (keys.offset != queries.offset / readers) return false;
    if (keys.end() != (queries.end() - 1) / readers + 1) return false;
  }
  return copies < groups + static_cast<std::size_t>(ranks);
}

consteval bool all_heads_meet() {
  for (const std::size_t groups : {1U, 2U, 3U, 4U, 5U, 8U, 12U})
    for (const std::size_t readers : {1U, 2U, 3U, 4U, 7U, 8U})
      for (int ranks = 1; ranks <= 16; ++ranks)
        if (!heads_meet(groups, readers, ranks)) return false;
  return true;
}
static_assert(all_heads_meet());

// A block sends what two linear layers send: the ranks add the gradients of x for queries, keys and
// values once.
template <std::size_t E, std::size_t H, std::size_t G, std::size_t D, class S = split::output>
using Heads = Join<Attend<AttentionForm{.readers = H / G}>, HeadLinear<E, H, D, false, S>,
                   HeadLinear<E, G, D, false, S>, HeadLinear<E, G, D, false, S>>;

struct ByHead : Sequential<Heads<8, 6, 6, 4>, RowParallelLinear<24, 8, false>> {};
struct ByToken : Sequential<Heads<8, 6, 2, 4, split::none>, Linear<split::none, 24, 8, false>> {};

constexpr Shape rows{{Axis::batch, 2}, {Axis::sequence, 10}, {Axis::feature, 8}};
constexpr std::size_t stream = 2 * 10 * 8, key = 2 * 10 * 2 * 4;

template <class L, Layout Ends>
constexpr Plan plan_on() {
  return plan<L, 4, Ends, Ends, true>(rows);
}

static_assert(plan_on<ByHead, Invariant>().forward == CollectiveList{all_reduce(stream)});
static_assert(plan_on<ByHead, Invariant>().backward == CollectiveList{all_reduce(stream)});
static_assert(plan_on<ByHead, Sequence>().forward ==
              CollectiveList{all_gather(stream), reduce_scatter(stream)});
static_assert(plan_on<ByHead, Sequence>().backward ==
              CollectiveList{all_gather(stream), reduce_scatter(stream)});

// A block whose attention and perceptron read the same input and are added before the ranks sum
// them sends no more than its attention alone: half of what it sends if one follows the other.
// begin: parallel
struct UpAndDown : Sequential<ColumnParallelLinear<8, 20>, Gelu, RowParallelLinear<20, 8>> {};
struct Parallel : Residual<Sequential<LayerNorm<8>, Join<PartialSum, ByHead, UpAndDown>>> {};
// end: parallel
static_assert(plan_on<Parallel, Invariant>().forward == CollectiveList{all_reduce(stream)});
static_assert(plan_on<Parallel, Invariant>().backward == CollectiveList{all_reduce(stream)});
static_assert(plan_on<Parallel, Sequence>().forward ==
              CollectiveList{all_gather(stream), reduce_scatter(stream)});
static_assert(plan_on<Parallel, Sequence>().backward ==
              CollectiveList{all_gather(stream), reduce_scatter(stream)});

// With a norm for each of them, the outputs are still summed once.
struct TwoNorms
    : Residual<
          Join<PartialSum, Sequential<LayerNorm<8>, ByHead>, Sequential<LayerNorm<8>, UpAndDown>>> {
};
static_assert(plan_on<TwoNorms, Invariant>().forward == CollectiveList{all_reduce(stream)});
static_assert(plan_on<TwoNorms, Invariant>().backward ==
              CollectiveList{all_reduce(stream), all_reduce(stream)});

// Key heads are exchanged only if a rank needs those of another.
struct Grouped : Sequential<Heads<8, 6, 2, 4>, RowParallelLinear<24, 8, false>> {};
static_assert(plan<Grouped, 2>(rows).forward == CollectiveList{all_reduce(stream)});
static_assert(plan<Grouped, 2>(rows).backward.empty());
static_assert(plan<Grouped, 4>(rows).forward.size() == 3 &&
              plan<Grouped, 4>(rows).forward[0].operation == Operation::halo_exchange &&
              plan<Grouped, 4>(rows).forward[0].elements == key);

// Ranks that have their own tokens gather keys and values alone.
static_assert(plan_on<ByToken, Sequence>().forward ==
              CollectiveList{all_gather(key), all_gather(key)});
static_assert(plan_on<ByToken, Sequence>().backward ==
              CollectiveList{reduce_scatter(key), reduce_scatter(key)});

// With a window they fetch those that their tokens see and that lie on other ranks.
struct ByWindow
    : Sequential<
          Join<Attend<AttentionForm{.readers = 3, .window = 4}>,
               HeadLinear<8, 6, 4, false, split::none>, HeadLinear<8, 2, 4, false, split::none>,
               HeadLinear<8, 2, 4, false, split::none>>,
          Linear<split::none, 24, 8, false>> {};
constexpr bool are_two(const CollectiveList& sent, Operation operation, std::size_t elements) {
  return sent.size() == 2 && sent[0] == sent[1] && sent[0].operation == operation &&
         sent[0].elements == elements;
}
static_assert(are_two(plan_on<ByWindow, Sequence>().forward, Operation::halo_exchange, key));
static_assert(are_two(plan_on<ByWindow, Sequence>().backward, Operation::halo_sum, key));

// Or they exchange tokens for heads, and heads for tokens behind the attention.
using HeadsOfTokens = Sequential<HeadLinear<8, 6, 4, false, split::none>, To<Feature>>;
struct ByExchange : Sequential<Join<Attend<>, HeadsOfTokens, HeadsOfTokens, HeadsOfTokens>,
                               To<Sequence>, Linear<split::none, 24, 8, false>> {};
constexpr Collective of_heads = all_to_all(2 * 10 * 6 * 4);
static_assert(plan_on<ByExchange, Sequence>().forward ==
              CollectiveList{of_heads, of_heads, of_heads, of_heads});
static_assert(plan_on<ByExchange, Sequence>().backward ==
              CollectiveList{of_heads, of_heads, of_heads, of_heads});

static_assert(HeadLinear<8, 6, 4>{}.output_shape(rows).back() == Dim{Axis::feature, 6, 4});

// Readers that are known at run time stand in the axis of keys, and a rank holds and sends what it
// does if they are in the type.
constexpr AttentionForm open_form{.readers = dynamic};
using AnyKeys = detail::operand_t<Attend<open_form>, 1, Feature>;
static_assert(std::same_as<AnyKeys, Haloed<Axis::feature, Window{.repeats = dynamic}>>);
static_assert(std::same_as<detail::operand_t<Attend<open_form>, 1, Sequence>, Replicated>);

using Open = Linear<split::output, dynamic, dynamic, false>;
static_assert(Open(8, 8).in_units_of(4, 3).output_shape(rows).back() ==
              Dim{Axis::feature, 2, 4, 3});
static_assert(Open(8, 8).in_units_of(4, 3).as_dynamic().output_shape(rows).back().readers == 3);
static_assert(local_shape<AnyKeys>({{Axis::feature, 2, 4, 3}}, {1, 4}) ==
              Shape{{Axis::feature, 2, 4, 3}});

template <std::size_t H, std::size_t G, int Ranks>
consteval bool sends_as_typed() {
  const auto keys = Open(8, G * 4).in_units_of(4, H / G);
  const Sequential net(Join(Attend<open_form>{}, Open(8, H * 4).in_units_of(4), keys, keys),
                       RowParallelLinear<dynamic, dynamic, false>(H * 4, 8));
  struct Typed : Sequential<Heads<8, H, G, 4>, RowParallelLinear<H * 4, 8, false>> {};
  using Between = Ends<Invariant, Invariant>;
  const Plan open = plan_of<Between, TrainWithInputGradient>(net, Ranks, rows);
  const Plan typed = plan_of<Between, TrainWithInputGradient>(Typed{}, Ranks, rows);
  return open.forward == typed.forward && open.backward == typed.backward &&
         open.settle == typed.settle && open.bytes_sent() == typed.bytes_sent();
}

template <int... Ranks>
consteval bool all_send_as_typed() {
  return ((sends_as_typed<6, 2, Ranks>() && sends_as_typed<6, 3, Ranks>() &&
           sends_as_typed<6, 1, Ranks>() && sends_as_typed<6, 6, Ranks>()) &&
          ...);
}
static_assert(all_send_as_typed<1, 2, 3, 4, 5, 8>());

// Heads of one feature, in a type: ranks send as much as for heads of two.
struct EightHeads : Attend<> {
  constexpr EightHeads() : Attend(Attend{}.with_heads(8)) {}
};
template <class Op, std::size_t H>
struct OfHeads
    : Sequential<
          Join<Op, HeadLinear<8, H, 8 / H>, HeadLinear<8, H, 8 / H>, HeadLinear<8, H, 8 / H>>,
          RowParallelLinear<8, 8>> {};
static_assert(plan<OfHeads<EightHeads, 8>, 4>(rows).bytes_sent() ==
              plan<OfHeads<Attend<>, 4>, 4>(rows).bytes_sent());

}  // namespace
