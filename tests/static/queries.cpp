// One model, sharded in four ways, compared before anything runs: what it sends, what each rank
// holds, how evenly. All numbers are written out by hand.

#include "shardwise/model/queries.hpp"

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"

using namespace shardwise;

namespace {

using Features = Sharded<Axis::feature>;
using Batch = Sharded<Axis::batch>;

template <class First, class Second>
struct Mlp : Sequential<Linear<First, 784, 512>, Relu, Linear<Second, 512, 10>> {};

using Columns = Mlp<split::output, split::output>;
using Rows = Mlp<split::input, split::input>;
using Alternating = Mlp<split::output, split::input>;
using Data = Mlp<split::none, split::none>;

constexpr std::size_t rows = 512;
constexpr batch samples{rows};

// --- bytes as people write them ------------------------------------------------------------------

static_assert(1_KiB == 1024 && 4_MiB == 4 * 1024 * 1024 && 2_GiB == std::size_t{2} << 30);
static_assert(18014398509481983_KiB == ~std::size_t{1023});
template <unsigned long long N>
concept can_be_counted = requires {
  typename std::integral_constant<std::size_t, detail::bytes_of(N, 1024)>;
};
static_assert(can_be_counted<18014398509481983> && !can_be_counted<18014398509481984>);
static_assert(0_GiB == 0 && std::same_as<decltype(1_KiB), std::size_t>);

// --- layouts and local shapes --------------------------------------------------------------------

static_assert(std::same_as<layer_input_layout_t<Columns, 0>, Replicated>);
static_assert(std::same_as<layer_output_layout_t<Columns, 1>, Features>);
static_assert(
    std::same_as<layer_input_layout_t<Columns, 2>, Replicated>);  // gathered in front of it
static_assert(std::same_as<layer_input_layout_t<Rows, 0>, Features>);
static_assert(std::same_as<layer_output_layout_t<Rows, 0>, Partial>);
static_assert(
    std::same_as<layer_input_layout_t<Rows, 1>, Features>);  // summed and scattered before ReLU
static_assert(std::same_as<layer_input_layout_t<Alternating, 2>, Features>);
static_assert(std::same_as<layer_output_layout_t<Data, 2, Batch, Batch>, Batch>);
static_assert(std::same_as<output_layout_t<Columns>, Features>);
static_assert(std::same_as<output_layout_t<Rows>, Partial>);

constexpr Shape in = input_shape<Rows>(samples);
static_assert(in == Shape{{Axis::batch, rows}, {Axis::feature, 784}});
constexpr Shape out = Rows{}.output_shape(in);
static_assert(out == Shape{{Axis::batch, rows}, {Axis::feature, 10}});
static_assert(local_shape<Features>(in, {7, 8}) == Shape{{Axis::batch, rows}, {Axis::feature, 98}});
static_assert(local_shape<Features>(out, {1, 8}) == Shape{{Axis::batch, rows}, {Axis::feature, 2}});
static_assert(local_shape<Features>(out, {2, 8}) == Shape{{Axis::batch, rows}, {Axis::feature, 1}});
static_assert(local_shape<Partial>(out, {2, 8}) == out);

// --- communication -------------------------------------------------------------------------------

// The hidden layer travels if both layers are split alike, whichever way; else the logits alone do,
// and with all weights whole the gradients.
constexpr std::size_t hidden = rows * 512, logits = rows * 10, weights = 785 * 512 + 513 * 10;
static_assert(plan<Columns, 8>(samples).forward ==
              CollectiveList{all_gather(hidden), all_gather(logits)});
static_assert(plan<Columns, 8>(samples).backward == CollectiveList{reduce_scatter(hidden)});
static_assert(plan<Rows, 8>(samples).forward ==
              CollectiveList{reduce_scatter(hidden), all_reduce(logits)});
static_assert(plan<Rows, 8>(samples).backward == CollectiveList{all_gather(hidden)});
static_assert(plan<Alternating, 8>(samples).forward == CollectiveList{all_reduce(logits)});
static_assert(plan<Alternating, 8>(samples).backward.empty());
static_assert(plan<Data, 8, Batch, Batch>(samples).settle == CollectiveList{all_reduce(weights)});

// A ring sends n (P - 1) for a gather or scatter of n, and twice that for an all-reduce.
static_assert(plan<Columns, 8>(samples).bytes_sent() == 7 * 4 * (2 * hidden + logits));
static_assert(plan<Rows, 8>(samples).bytes_sent() == 7 * 4 * (2 * hidden + 2 * logits));
static_assert(plan<Alternating, 8>(samples).bytes_sent() == 7 * 4 * 2 * logits);
static_assert(plan<Data, 8, Batch, Batch>(samples).bytes_sent() == 7 * 4 * 2 * weights);
// Of an all-to-all each rank keeps one block of P.
static_assert(all_to_all(24).bytes_sent(8) == 4 * 24 * 7 / 8);
static_assert(plan<Columns, 8>(samples).bytes_sent() < plan<Rows, 8>(samples).bytes_sent());
static_assert(50 * plan<Alternating, 8>(samples).bytes_sent() <
              plan<Rows, 8>(samples).bytes_sent());

// A budget, and half of it in bf16.
static_assert(plan<Alternating, 8>(samples).bytes_sent() < 4_MiB);
static_assert(plan<Columns, 8>(samples).bytes_sent() > 4_MiB);
static_assert(plan<Alternating, 8>(samples).bytes_sent() == 280_KiB);
static_assert(plan<Alternating, 8>(samples, Dtype::bfloat16).bytes_sent() == 140_KiB);

// --- memory --------------------------------------------------------------------------------------

template <class M, int Ranks = 8, class End = Invariant>
constexpr auto memory = memory_of<M, Ranks, End, End>(samples);

// Column by column: a part of the weights and of the bias, and the whole input of the second layer.
static_assert(memory<Columns>[0] == RankMemory{64 * 785 + 2 * 513, rows*(64 + 512)});
static_assert(memory<Columns>[7] == RankMemory{64 * 785 + 1 * 513, rows*(64 + 512)});
// Row by row: biases whole on every rank, and a part of each input; the first is a copy.
static_assert(memory<Rows>[0] == RankMemory{512 * 98 + 512 + 10 * 64 + 10, rows*(98 + 64)});
static_assert(memory<Rows>[7] == memory<Rows>[0]);
// In turn: what ReLU gives is what the second layer saves.
static_assert(memory<Alternating>[3] == RankMemory{64 * 785 + 10 * 64 + 10, rows * 64});
static_assert(memory<Data, 8, Batch>[3] == RankMemory{weights, rows / 8 * 512});

static_assert(memory<Alternating>.largest().bytes() < memory<Rows>.largest().bytes());
static_assert(memory<Rows>.largest().bytes() < memory<Columns>.largest().bytes());
static_assert(memory<Alternating>.largest().bytes() < 1_MiB);
static_assert(memory<Alternating>[0].bytes(Dtype::float64) == 2 * memory<Alternating>[0].bytes());
static_assert(memory<Data, 8, Batch>.largest().bytes() > 3_MiB);
// One rank takes the general path too, and gathers what it has.
static_assert(memory<Columns, 1>[0] == RankMemory{weights, rows*(512 + 512)});

// Weights shrink with the ranks, activations that are whole on each rank do not.
static_assert(8 * memory<Alternating>[0].saved == memory<Alternating, 1>[0].saved);
static_assert(2 * memory<Columns>[0].saved > memory<Columns, 1>[0].saved);

// --- balance -------------------------------------------------------------------------------------

static_assert(memory<Alternating>.imbalance() == 1);
static_assert(memory<Columns>.imbalance() > 1 && memory<Columns>.imbalance() < 1.002);
// 512 features over 6 ranks are 86 and 85; over 580 ranks, 68 of them hold none.
static_assert(memory<Alternating, 6>.imbalance() < 1.01);
static_assert(memory<Alternating, 580>.imbalance() > 1.1);
static_assert(memory<Alternating, 580>.smallest() == RankMemory{10, 0});
static_assert(memory<Alternating, 580>.largest() == RankMemory{785 + 20, rows});
static_assert(memory<Alternating, 3>.bytes() == memory<Alternating, 3>[0].bytes() +
                                                    memory<Alternating, 3>[1].bytes() +
                                                    memory<Alternating, 3>[2].bytes());

// --- what is saved -------------------------------------------------------------------------------

template <class M, int Ranks = 2>
constexpr std::size_t saved = memory_of<M, Ranks>(batch{4})[0].saved;

// A model's input lies in the caller's memory; what nobody needs again is not kept.
static_assert(saved<Linear<split::none, 6, 6>> == 0);
static_assert(saved<Sequential<Linear<split::none, 6, 6>, Tanh>> == 4 * 6);
static_assert(saved<Sequential<Tanh, Linear<split::none, 6, 6>>> == 4 * 6);
// Nothing runs backward in front of the parameters.
static_assert(saved<Sequential<Gelu, Tanh, Linear<split::none, 6, 6>>> == 4 * 6);
// GELU needs its own input, and the layer behind it another.
using Block = Sequential<ColumnParallelLinear<20, 30>, Gelu, RowParallelLinear<30, 20>>;
static_assert(saved<Block> == 4 * (15 + 15));
static_assert(saved<Repeat<2, Residual<Block>>> == 4 * (15 + 15) + 4 * (20 + 15 + 15));
// A residual's sum is a new tensor, though ReLU's output in front of it is kept too.
using Whole = Residual<Sequential<Linear<split::none, 6, 6>, Relu>>;
static_assert(saved<Sequential<Whole, Whole>> == 4 * (6 + 6 + 6));
// What two branches save as their input counts once.
using Square = Linear<split::none, 6, 6>;
static_assert(saved<Sequential<Square, Join<Sum, Square, Square>>> == 4 * 6);

// Images: flattened in place, and split by whole planes.
struct Small
    : Sequential<Conv2d<split::output, 1, 3, kernel(1)>, Relu, Flatten, RowParallelLinear<12, 2>> {
};
constexpr Shape images{{Axis::batch, 4}, {Axis::channel, 1}, {Axis::height, 2}, {Axis::width, 2}};
static_assert(memory_of<Small, 2>(images)[0] == RankMemory{2 * 2 + 2 * 8 + 2, 4 * 8});
static_assert(memory_of<Small, 2>(images)[1] == RankMemory{1 * 2 + 2 * 4 + 2, 4 * 4});

// The same of an object, whose sizes may be given at run time.
constexpr Sequential<Linear<split::output, dynamic, dynamic>, Relu, RowParallelLinear<dynamic, 10>>
    given(Linear<split::output, dynamic, dynamic>(784, 512), Relu{},
          RowParallelLinear<dynamic, 10>(512));
static_assert(memory_of_rank<Ends<Invariant, Invariant>>(given, {3, 8}, in) ==
              memory<Alternating>[3]);

}  // namespace
