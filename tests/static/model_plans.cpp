// What models will send, pinned for stated endpoints. All of it is known to the compiler.

#include <array>
#include <cstddef>

#include "shardwise/layers/concat.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/identity.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/parameter_count.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/predict.hpp"
#include "shardwise/model/rank_memory.hpp"

using namespace shardwise;

namespace {

using Features = Sharded<Axis::feature>;
using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;

using Column = ColumnParallelLinear<20, 15>;
using Row = RowParallelLinear<15, 10>;

constexpr bool input_gradient = true;

/// Whether a plan is exactly this.
constexpr bool is(const Plan& plan, const CollectiveList& forward, const CollectiveList& backward,
                  const CollectiveList& settle = {}) {
  return plan.forward == forward && plan.backward == backward && plan.settle == settle &&
         plan.loss.empty();
}

// --- one layer ---------------------------------------------------------------------------------

// Column, Invariant -> Sharded: nothing forward, one all-reduce backward, and none without anybody
// who asks for the gradient of the input.
static_assert(is(plan<Column, 4, Invariant, Features, input_gradient>(batch{64}), {},
                 {all_reduce(64 * 20)}));
static_assert(is(plan<Column, 4, Invariant, Features>(batch{64}), {}, {}));

// Row, Sharded -> Invariant: one all-reduce forward, nothing backward.
static_assert(is(plan<Row, 4, Features, Invariant, input_gradient>(batch{64}),
                 {all_reduce(64 * 10)}, {}));
// Offered what it takes, it needs nothing in front of it; given as it is, nothing behind it.
static_assert(is(plan<Row, 4, Features, Partial, input_gradient>(batch{64}), {}, {}));
// A whole input is cut at no cost; its gradient is gathered.
static_assert(is(plan<Row, 4, Invariant, Partial, input_gradient>(batch{64}), {},
                 {all_gather(64 * 15)}));

// Not split: nothing moves, and where rows are split all parameters owe a sum, in one collective.
using Whole = Linear<split::none, 20, 15>;
static_assert(is(plan<Whole, 4, Invariant, Invariant, input_gradient>(batch{64}), {}, {}));
static_assert(is(plan<Whole, 4, Batch, Batch, input_gradient>(batch{64}), {}, {},
                 {all_reduce(20 * 15 + 15)}));
static_assert(is(plan<Linear<split::none, 20, 15, false>, 4, Batch, Batch>(batch{64}), {}, {},
                 {all_reduce(20 * 15)}));
static_assert(is(plan<Sequential<Whole, Relu, Linear<split::none, 15, 10>>, 4, Batch, Batch>(batch{
                     64}),
                 {}, {}, {all_reduce(20 * 15 + 15 + 15 * 10 + 10)}));

// --- column, GELU, row -------------------------------------------------------------------------

struct Mlp : Sequential<Column, Gelu, Row> {};

static_assert(is(plan<Mlp, 4, Invariant, Invariant, input_gradient>(batch{64}),
                 {all_reduce(64 * 10)}, {all_reduce(64 * 20)}));
static_assert(is(plan<Mlp, 4>(batch{64}), {all_reduce(64 * 10)}, {}));
// The plan does not depend on the number of ranks, and a row's bias owes nothing at any.
static_assert(is(plan<Mlp, 1>(batch{64}), {all_reduce(64 * 10)}, {}));
static_assert(is(plan<Mlp, 8>(batch{64}), {all_reduce(64 * 10)}, {}));

// The same on a stream that is split by sequence: one all-gather and one reduce-scatter each way.
constexpr Shape text{{Axis::batch, 2}, {Axis::sequence, 16}, {Axis::feature, 20}};
static_assert(is(plan<Mlp, 4, Sequence, Sequence, input_gradient>(text),
                 {all_gather(2 * 16 * 20), reduce_scatter(2 * 16 * 10)},
                 {all_gather(2 * 16 * 10), reduce_scatter(2 * 16 * 20)}));
static_assert(is(plan<Mlp, 4, Sequence, Sequence>(text),
                 {all_gather(2 * 16 * 20), reduce_scatter(2 * 16 * 10)},
                 {all_gather(2 * 16 * 10)}));

// Row, ReLU, row: a reduce-scatter, and not an all-reduce.
using Rows = Sequential<RowParallelLinear<20, 15>, Relu, Row>;
static_assert(is(plan<Rows, 4, Features, Invariant, input_gradient>(batch{64}),
                 {reduce_scatter(64 * 15), all_reduce(64 * 10)}, {all_gather(64 * 15)}));
static_assert(is(plan<Rows, 4, Invariant, Invariant, input_gradient>(batch{64}),
                 {reduce_scatter(64 * 15), all_reduce(64 * 10)},
                 {all_gather(64 * 15), all_gather(64 * 20)}));

// Two column-parallel layers: what the first gives is gathered, its gradient reduce-scattered.
using Columns = Sequential<Column, Relu, ColumnParallelLinear<15, 10>>;
static_assert(is(plan<Columns, 4, Invariant, Features>(batch{64}), {all_gather(64 * 15)},
                 {reduce_scatter(64 * 15)}));

// --- gather policies -----------------------------------------------------------------------------

static_assert(is(plan<Sequential<Column, To<Invariant>>, 4, Invariant, Invariant>(batch{64}),
                 {all_gather(64 * 15)}, {}));
static_assert(is(plan<Sequential<Row, To<Invariant>>, 4, Features, Invariant>(batch{64}),
                 {all_reduce(64 * 10)}, {}));
static_assert(is(plan<Sequential<Row, To<Batch>>, 4, Features, Batch>(batch{64}),
                 {reduce_scatter(64 * 10)}, {all_gather(64 * 10)}));
constexpr Shape hidden{{Axis::batch, 2}, {Axis::sequence, 16}, {Axis::feature, 15}};
static_assert(is(plan<Sequential<Row, To<Sequence>>, 4, Features, Sequence>(hidden),
                 {reduce_scatter(2 * 16 * 10)}, {all_gather(2 * 16 * 10)}));
static_assert(is(plan<Sequential<Column, To<Batch>>, 4, Invariant, Batch>(batch{64}),
                 {all_to_all(64 * 15)}, {all_to_all(64 * 15)}));
// To what it already is, nothing.
static_assert(is(plan<Sequential<Column, To<Features>, Row>, 4>(batch{64}), {all_reduce(64 * 10)},
                 {}));

// --- blocks --------------------------------------------------------------------------------------

using Block = Sequential<ColumnParallelLinear<20, 30>, Gelu, RowParallelLinear<30, 20>>;
static_assert(is(plan<Residual<Block>, 4, Invariant, Invariant, input_gradient>(batch{64}),
                 {all_reduce(64 * 20)}, {all_reduce(64 * 20)}));
static_assert(is(plan<Residual<Block>, 4>(batch{64}), {all_reduce(64 * 20)}, {}));
static_assert(is(plan<Residual<Block>, 4, Sequence, Sequence, input_gradient>(text),
                 {all_gather(2 * 16 * 20), reduce_scatter(2 * 16 * 20)},
                 {all_gather(2 * 16 * 20), reduce_scatter(2 * 16 * 20)}));
// A layer behind the block's sum gets it where the stream is: by a reduce-scatter, too.
static_assert(
    is(plan<Residual<Sequential<Block, Relu>>, 4, Sequence, Sequence, input_gradient>(text),
       {all_gather(2 * 16 * 20), reduce_scatter(2 * 16 * 20)},
       {all_gather(2 * 16 * 20), reduce_scatter(2 * 16 * 20)}));
static_assert(is(plan<Repeat<2, Sequential<RowParallelLinear<20, 20>, Relu>>, 4, Features, Features,
                      input_gradient>(batch{64}),
                 {reduce_scatter(1280), reduce_scatter(1280)},
                 {all_gather(1280), all_gather(1280)}));
// Branches that take the same layout share what brings x there: one sum of gradients for both.
using Wide = ColumnParallelLinear<20, 30>;
static_assert(is(plan<Join<Sum, Wide, Wide>, 4, Invariant, Features, input_gradient>(batch{64}), {},
                 {all_reduce(64 * 20)}));
static_assert(is(plan<Join<Sum, Wide, Wide>, 4, Sequence, Features, input_gradient>(text),
                 {all_gather(2 * 16 * 20)}, {reduce_scatter(2 * 16 * 20)}));
// Branches that do not each convert it, and a Partial is made whole before it is read twice.
static_assert(is(plan<Sequential<RowParallelLinear<20, 20>, Join<Sum, Identity, Block>>, 4,
                      Features, Invariant>(batch{64}),
                 {all_reduce(64 * 20), all_reduce(64 * 20)}, {all_reduce(64 * 20)}));
// Three blocks: each sends forward; backward the first one's input gradient is wanted by nobody.
static_assert(is(plan<Repeat<3, Residual<Block>>, 4>(batch{64}),
                 {all_reduce(1280), all_reduce(1280), all_reduce(1280)},
                 {all_reduce(1280), all_reduce(1280)}));
static_assert(is(plan<Repeat<2, Block>, 4, Invariant, Invariant, input_gradient>(batch{64}),
                 {all_reduce(1280), all_reduce(1280)}, {all_reduce(1280), all_reduce(1280)}));
// What stands behind layers with parameters has an input gradient, whether anybody asked or not.
static_assert(is(plan<Sequential<Block, Block>, 4>(batch{64}), {all_reduce(1280), all_reduce(1280)},
                 {all_reduce(1280)}));
// What stands in front of all parameters has none, and sends nothing backward.
static_assert(
    is(plan<Sequential<To<Batch>, Relu, To<Invariant>, Column>, 4, Invariant, Features>(batch{64}),
       {all_gather(64 * 20)}, {}));

// Behind Flatten a row-parallel layer finds its planes in place.
constexpr Shape images{{Axis::batch, 2}, {Axis::channel, 5}, {Axis::height, 2}, {Axis::width, 2}};
static_assert(is(plan<Sequential<Relu, Flatten, RowParallelLinear<20, 10>>, 4,
                      Sharded<Axis::channel>, Invariant, input_gradient>(images),
                 {all_reduce(20)}, {}));

// --- forward only --------------------------------------------------------------------------------

static_assert(is(plan_of<Ends<Invariant, Invariant>, ForwardOnly>(
                     Mlp{}, 4, Shape{{Axis::batch, 64}, {Axis::feature, 20}}),
                 {all_reduce(640)}, {}));
static_assert(is(plan_of<Ends<Batch, Batch>, ForwardOnly>(
                     Whole{}, 4, Shape{{Axis::batch, 64}, {Axis::feature, 20}}),
                 {}, {}));

// --- dtypes and sizes ----------------------------------------------------------------------------

static_assert(plan<Mlp, 4>(batch{64}, Dtype::bfloat16).forward ==
              CollectiveList{all_reduce(640, Dtype::bfloat16)});
static_assert(plan<Mlp, 4>(batch{0}).forward == CollectiveList{all_reduce(0)});  // still called
// Sizes given at construction give the same plan.
constexpr Shape in{{Axis::batch, 64}, {Axis::feature, 20}};
constexpr ColumnParallelLinear<dynamic, dynamic> given(20, 15);
static_assert(is(plan_of<Ends<Invariant, Features>, TrainWithInputGradient>(given, 4, in), {},
                 {all_reduce(64 * 20)}));

// A collective's own arithmetic, on 4 ranks.
static_assert(all_reduce(640).elements_passed_in(4) == 4 * 640);
static_assert(reduce_scatter(640).elements_passed_in(4) == 4 * 640);
static_assert(all_gather(640).elements_passed_in(4) == 640);
static_assert(all_to_all(640).elements_passed_in(4) == 640);
static_assert(all_reduce(640).bytes_sent(4) == 2 * 3 * 640 * 4);
static_assert(all_gather(640, Dtype::float64).bytes_sent(4) == 3 * 640 * 8);
static_assert(reduce_scatter(640, Dtype::bfloat16).bytes_sent(4) == 3 * 640 * 2);
static_assert(all_to_all(640).bytes_sent(4) == 640 * 4 * 3 / 4);
static_assert(all_reduce(640).bytes_sent(1) == 0 && all_to_all(640).bytes_sent(1) == 0);
static_assert(plan<Mlp, 4, Invariant, Invariant, input_gradient>(batch{64}).bytes_sent() ==
              all_reduce(640).bytes_sent(4) + all_reduce(1280).bytes_sent(4));
static_assert(plan<Whole, 4, Batch, Batch>(batch{64}).bytes_sent() ==
              all_reduce(315).bytes_sent(4));

// --- parameters of a rank
// --------------------------------------------------------------------------

template <class M>
constexpr std::size_t held(int rank, int ranks) {
  return parameters_of_rank<Ends<Invariant, Invariant>>(M{}, Place{rank, ranks}, in);
}
// Column: 15 outputs over 4 ranks are 4, 4, 4, 3; row: 15 inputs likewise, and a bias on all.
static_assert(held<Mlp>(0, 1) == 20 * 15 + 15 + 15 * 10 + 10);
static_assert(held<Mlp>(0, 4) == 20 * 4 + 4 + 4 * 10 + 10);
static_assert(held<Mlp>(3, 4) == 20 * 3 + 3 + 3 * 10 + 10);
static_assert(held<Column>(0, 8) == 42 && held<Column>(7, 8) == 21);
static_assert(held<Column>(15, 16) == 0);          // more ranks than features
static_assert(held<Whole>(3, 4) == 20 * 15 + 15);  // whole on every rank
static_assert(held<Repeat<3, Residual<Block>>>(1, 2) == 3 * (20 * 15 + 15 + 15 * 20 + 20));

// --- several inputs and outputs ----------------------------------------------------------------

// A whole input beside one whose rows are split, and two heads: classes from split features, and a
// number for each row.
struct TwoAndTwo : Graph<2, At<ColumnParallelLinear<20, 30>, 0>, At<Linear<split::none, 3, 10>, 1>,
                         At<Concat<Axis::feature>, 2, 3>, Output<RowParallelLinear<40, 15>, 4>,
                         Output<Linear<split::none, 40, 1>, 4>> {};
using TwoEnds = Ends<Layouts<Invariant, Batch>, Layouts<Features, Batch>>;
constexpr std::array two_inputs{Shape{{Axis::batch, 64}, {Axis::feature, 20}},
                                Shape{{Axis::batch, 64}, {Axis::feature, 3}}};

template <class Use>
constexpr bool two_and_two(const CollectiveList& backward) {
  return is(plan_of<TwoEnds, Use>(TwoAndTwo{}, 4, two_inputs),
            {all_gather(64 * 30), all_gather(64 * 10), reduce_scatter(64 * 15)}, backward,
            {all_reduce(10 * 3 + 10)});
}

// Gradients of outputs are brought back from the last to the first, and so are those of inputs.
static_assert(two_and_two<TrainWithInputGradient>({all_gather(64), all_gather(64 * 15),
                                                   all_gather(64 * 40), all_reduce(64 * 20)}));
static_assert(two_and_two<TrainWithGradientOf<1>>({all_gather(64), all_gather(64 * 15),
                                                   all_gather(64 * 40)}));

// A Graph inside another is as its parts in the list of the other.
struct Added : Graph<2, At<ColumnParallelLinear<20, 15>, 0>, At<ColumnParallelLinear<20, 15>, 1>,
                     At<Sum, 2, 3>, At<RowParallelLinear<15, 20>, 4>> {};
struct Nested : Graph<2, At<RowParallelLinear<20, 20>, 0>, At<Added, 2, 1>, At<Added, 3, 1>,
                      At<Added, 1, 4>> {};
struct Flat
    : Graph<2, At<RowParallelLinear<20, 20>, 0>, At<ColumnParallelLinear<20, 15>, 2>,
            At<ColumnParallelLinear<20, 15>, 1>, At<Sum, 3, 4>, At<RowParallelLinear<15, 20>, 5>,
            At<ColumnParallelLinear<20, 15>, 6>, At<ColumnParallelLinear<20, 15>, 1>, At<Sum, 7, 8>,
            At<RowParallelLinear<15, 20>, 9>, At<ColumnParallelLinear<20, 15>, 1>,
            At<ColumnParallelLinear<20, 15>, 10>, At<Sum, 11, 12>,
            At<RowParallelLinear<15, 20>, 13>> {};
using AddedEnds = Ends<Layouts<Batch, Invariant>, Batch>;
constexpr std::array two_alike{in, in};

constexpr bool nested_is_as_flat() {
  const Plan flat = plan_of<AddedEnds, TrainWithInputGradient>(Flat{}, 4, two_alike);
  return is(plan_of<AddedEnds, TrainWithInputGradient>(Nested{}, 4, two_alike), flat.forward,
            flat.backward, flat.settle);
}
static_assert(nested_is_as_flat());
static_assert(memory_of_rank<AddedEnds>(Nested{}, Place{0, 4}, two_alike) ==
              memory_of_rank<AddedEnds>(Flat{}, Place{0, 4}, two_alike));

// --- what collectives wait for, and how long a step takes on known links
// ---------------------------

constexpr bool is_near(double a, double b) { return a - b < 1e-9 * b && b - a < 1e-9 * b; }

constexpr bool is_path(const CriticalPath& path, double latencies, double bytes) {
  return path.latencies == latencies && is_near(path.bytes, bytes);
}

constexpr mesh along_data(int ranks) { return {.data = ranks}; }
constexpr Collective gather_of_data = all_gather(4800).over(MeshAxis::data);
constexpr Collective sum_of_data = all_reduce(4800).over(MeshAxis::data);
constexpr Collective scatter_of_data = reduce_scatter(4800, Dtype::bfloat16).over(MeshAxis::data);

// Up to 16 ranks at one latency, and the headers at another; small sums are sent whole.
static_assert(is_path(critical_path(gather_of_data, along_data(4), false), 1, 4 * 3600));
static_assert(is_path(critical_path(gather_of_data, along_data(4)), 2, 4 * 3600 + 3 * 48));
static_assert(is_path(critical_path(sum_of_data, along_data(16), false), 2, 2 * 4 * 4500));
static_assert(is_path(critical_path(all_reduce(1024), {.tensor = 16}, false), 1, 15 * 4096));
static_assert(is_path(critical_path(all_to_all(1600), {.tensor = 4}, false), 1, 4 * 300));
// With checks ranks also tell each other their counts, and then all of them what they found.
static_assert(is_path(critical_path(all_to_all(1600), {.tensor = 4}), 4,
                      4 * 300 + 144 + 3 * 8 + 3 * 40));
static_assert(is_path(critical_path(gather_of_data, along_data(1)), 0, 0.0) ||
              critical_path(gather_of_data, along_data(1)).bytes == 0);

// Above, in log2 P rounds; with 24 ranks, 8 of 16 places are shared, and sums travel as floats.
static_assert(is_path(critical_path(gather_of_data, along_data(64)), 12, 4 * 4725 + 6 * 48));
static_assert(is_path(critical_path(sum_of_data, along_data(32), false), 10, 2 * 4 * 4650));
static_assert(is_path(critical_path(gather_of_data, along_data(24), false), 5, 4 * 4600));
static_assert(is_path(critical_path(scatter_of_data, along_data(24), false), 6,
                      4 * (4500 + 4800 + 200)));

// A tensor that other axes split is smaller in each group.
static_assert(is_path(critical_path(sum_of_data.split_over(MeshAxis::tensor),
                                    {.data = 16, .tensor = 2}, false),
                      2, 4 * 4500));

// A step of a perceptron of 8192 and 32768 features, 8 ranks along `tensor`, from 512 to 100,000.
struct FeedForward
    : Sequential<ColumnParallelLinear<8192, 32768>, Relu, RowParallelLinear<32768, 8192>> {};
template <int Data>
constexpr double seconds_of_step(double latency = 5e-6) {
  StepCost cost = StepCost::on({.latency = latency, .bandwidth = 25e9});
  cost[MeshAxis::tensor] = {.latency = 1e-6, .bandwidth = 400e9};
  return predict(plan<FeedForward, mesh{.data = Data, .tensor = 8}>(batch{8 * Data}), cost);
}
static_assert(seconds_of_step<64>() > 0);
static_assert(seconds_of_step<64>() < seconds_of_step<512>());
static_assert(seconds_of_step<512>() < seconds_of_step<12500>());
// The 268 MB of weights of a rank cross a link of 25 GB/s twice, at every number of ranks.
static_assert(seconds_of_step<64>() > 2 * 268e6 / 25e9 * 63 / 64);
static_assert(seconds_of_step<8192>() < 2.2 * 268e6 / 25e9);
// Latency: three times ceil(log2 P) for each bucket, where a ring has 2 (P - 1).
constexpr double latency_at_100000 = seconds_of_step<12500>() - seconds_of_step<12500>(0);
constexpr auto settled =
    plan<FeedForward, mesh{.data = 12500, .tensor = 8}>(batch{100000}).settle.size();
static_assert(is_near(latency_at_100000, settled*(3 * 14 + 1) * 5e-6));

// Sums in shares, over 1562 machines with 8 ranks each: 0.053 s. Only a rank's share crosses
// between machines, where 0.28 s of all gradients do along two axes, and 0.27 s along one of 12,496
// ranks.
constexpr Sending in_shares(bool yes = true) {
  Sending sending;
  sending.sums_in_shares = yes;
  return sending;
}
template <class L>
constexpr Plan plan_on(const mesh& sizes, const Sending& sending = in_shares()) {
  const Shape in{{Axis::batch, 64}, {Axis::feature, L::in_features}};
  return plan_of<Ends<Invariant, Invariant>, Train>(L{}, sizes, in, sending);
}
constexpr double seconds_between_machines(const mesh& sizes, bool shares) {
  StepCost cost = StepCost::on({.latency = 1e-6, .bandwidth = 400e9});
  cost[MeshAxis::replica] = {.latency = 5e-6, .bandwidth = 25e9};
  return predict(plan_on<FeedForward>(sizes, in_shares(shares)), cost);
}
constexpr mesh machines{.replica = 1562, .data = 8};
constexpr double seconds_in_shares = seconds_between_machines(machines, true);
static_assert(seconds_in_shares < 0.2 * seconds_between_machines(machines, false));
static_assert(seconds_in_shares < 0.2 * seconds_between_machines({.replica = 12496}, true));
// All ranks send as many bytes as along one axis with all of them.
static_assert(plan_on<Column>({.replica = 3, .data = 2, .tensor = 5}).settle ==
              CollectiveList{reduce_scatter(315).over(MeshAxis::data).split_over(MeshAxis::tensor),
                             all_reduce(315)
                                 .over(MeshAxis::replica)
                                 .split_over(MeshAxis::tensor)
                                 .split_over(MeshAxis::data),
                             all_gather(315).over(MeshAxis::data).split_over(MeshAxis::tensor)});
static_assert(
    plan_on<Column>({.replica = 3, .data = 2}).settle.bytes_sent({.replica = 3, .data = 2}) ==
    plan_on<Column>({.data = 6}).settle.bytes_sent({.data = 6}));
static_assert(plan_on<Column>({.data = 6}).settle == plan_on<Column>({.data = 6}, {}).settle);

}  // namespace
