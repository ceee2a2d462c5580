// What normalisations take, give, own and send, known to the compiler.

#include <concepts>
#include <tuple>

#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/head_norm.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/model/parameter_count.hpp"
#include "shardwise/model/plan.hpp"

using namespace shardwise;

namespace {

using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;
using Features = Sharded<Axis::feature>;

static_assert(Layer<LayerNorm<20>> && Layer<RmsNorm<20>>);
static_assert(Layer<LayerNorm<dynamic, Affine::none>> && Layer<RmsNorm<dynamic>>);

// A size is given where the type has none, and only there.
static_assert(std::constructible_from<LayerNorm<dynamic>, std::size_t>);
static_assert(std::constructible_from<LayerNorm<dynamic>, std::size_t, Epsilon>);
static_assert(std::constructible_from<RmsNorm<20>, Epsilon>);
// Another number of sizes is a sentence of its own, see tests/compile_fail.
static_assert(!detail::HasAllSizes<LayerNorm<dynamic>>);

// --- layouts -----------------------------------------------------------------------------------

template <class L>
constexpr bool keeps_all_but_partial = std::same_as<output_layout_t<L, Invariant>, Invariant>&&
    std::same_as<output_layout_t<L, Replicated>, Replicated>&& std::same_as<
        output_layout_t<L, Batch>, Batch>&& std::same_as<output_layout_t<L, Sequence>, Sequence>&&
        std::same_as<output_layout_t<L, Features>, Features>&&
            std::same_as<output_layout_t<L, Partial>, Invariant>&&
                std::same_as<output_layout_t<L, Partial, Features>, Features>;
static_assert(keeps_all_but_partial<LayerNorm<20>> && keeps_all_but_partial<RmsNorm<20>>);

// --- parameters --------------------------------------------------------------------------------

template <class In>
using Weight = std::tuple_element_t<0, detail::parameters_t<LayerNorm<20>, In>>;
template <class In>
using Bias = std::tuple_element_t<1, detail::parameters_t<LayerNorm<20>, In>>;

static_assert(std::same_as<Weight<Invariant>, ParameterUse<Invariant, Invariant>>);
static_assert(std::same_as<Weight<Replicated>, ParameterUse<Invariant, Replicated>>);
static_assert(std::same_as<Weight<Batch>, ParameterUse<Invariant, Replicated>>);
static_assert(std::same_as<Weight<Sequence>, ParameterUse<Invariant, Replicated>>);
static_assert(std::same_as<Weight<Features>, ParameterUse<Features, Features>>);
static_assert(std::same_as<Bias<Sequence>, Weight<Sequence>>);
static_assert(std::same_as<Bias<Features>, Weight<Features>>);
// Used on rows that are shared out, they owe a sum and not a mean.
static_assert(Weight<Sequence>::debt::movement == Movement::all_reduce);
static_assert(Weight<Invariant>::debt::movement == Movement::none);
static_assert(Weight<Features>::debt::movement == Movement::none);

template <class L>
constexpr std::size_t parameter_count = std::tuple_size_v<detail::parameters_t<L, Invariant>>;
static_assert(parameter_count<LayerNorm<20>> == 2 && parameter_count<RmsNorm<20>> == 1);
static_assert(parameter_count<LayerNorm<20, Affine::weight>> == 1);
static_assert(parameter_count<LayerNorm<20, Affine::none>> == 0);
static_assert(parameter_count<RmsNorm<20, Affine::weight_and_bias>> == 2);

constexpr Shape text{{Axis::batch, 2}, {Axis::sequence, 16}, {Axis::feature, 20}};
constexpr std::size_t rows = 2 * 16;
template <class L>
constexpr std::size_t held(int rank) {
  return parameters_of_rank<Ends<L, L>>(LayerNorm<20>{}, Place{rank, 3}, text);
}
static_assert(held<Invariant>(2) == 40 && held<Sequence>(2) == 40);
static_assert(held<Features>(0) == 2 * 7 && held<Features>(2) == 2 * 6);
// Whole grains, like the features that they belong to.
static_assert(parameters_of_rank<Ends<Features, Features>>(RmsNorm<20>{}, Place{0, 3},
                                                           Shape{{Axis::batch, 2},
                                                                 {Axis::feature, 4, 5}}) == 10);

// --- plans -------------------------------------------------------------------------------------

constexpr bool input_gradient = true;

constexpr bool is(const Plan& plan, const CollectiveList& forward, const CollectiveList& backward,
                  const CollectiveList& settle = {}) {
  return plan.forward == forward && plan.backward == backward && plan.settle == settle;
}

template <class L, class In>
constexpr Plan plan_on() {
  return plan<L, 4, In, In, input_gradient>(text);
}

// Whole rows on all ranks: nothing at all.
static_assert(is(plan_on<LayerNorm<20>, Invariant>(), {}, {}));
static_assert(is(plan_on<RmsNorm<20>, Invariant>(), {}, {}));
// A share of the rows: nothing either, until weight and bias settle.
static_assert(is(plan_on<LayerNorm<20>, Sequence>(), {}, {}, {all_reduce(40)}));
static_assert(is(plan_on<RmsNorm<20>, Batch>(), {}, {}, {all_reduce(20)}));
static_assert(is(plan_on<LayerNorm<20, Affine::none>, Sequence>(), {}, {}));
// Split features: a number a row for the mean and one for the variance; parameters owe nothing.
static_assert(is(plan_on<LayerNorm<20>, Features>(), {all_reduce(rows), all_reduce(rows)},
                 {all_reduce(rows), all_reduce(rows)}));
static_assert(is(plan_on<RmsNorm<20>, Features>(), {all_reduce(rows)}, {all_reduce(rows)}));
// Statistics are exchanged in the dtype in which they are summed.
static_assert(plan<RmsNorm<20>, 4, Features, Features>(text, Dtype::bfloat16).forward ==
              CollectiveList{all_reduce(rows, Dtype::float32)});
// Without parameters and without anybody who asks for a gradient, nothing goes backward.
static_assert(plan<RmsNorm<20, Affine::none>, 4, Features, Features>(text).backward.empty());

// A block of a transformer: one all-gather and one reduce-scatter each way; the norm's parameters
// and the row's bias settle together.
using Block = Residual<
    Sequential<LayerNorm<20>, ColumnParallelLinear<20, 80>, Gelu, RowParallelLinear<80, 20>>>;
static_assert(is(plan_on<Block, Sequence>(), {all_gather(rows * 20), reduce_scatter(rows * 20)},
                 {all_gather(rows * 20), reduce_scatter(rows * 20)}, {all_reduce(40)}));
// On a whole stream the same block costs an all-reduce each way and owes nothing.
static_assert(is(plan_on<Block, Invariant>(), {all_reduce(rows * 20)}, {all_reduce(rows * 20)}));

// Of an input of which nothing is known.
static_assert(is(plan_of<Ends<Invariant, Invariant>, Train>(HeadNorm<4>{}, 2, Shape{}), {}, {}));

// Sizes are checked where both are in types; `dynamic` leaves it to the shapes.
static_assert(Sequential<ColumnParallelLinear<4, 20>, RmsNorm<20>>{}.output_shape(
                  {{Axis::batch, 3}, {Axis::feature, 4}}) ==
              Shape{{Axis::batch, 3}, {Axis::feature, 20}});

}  // namespace
