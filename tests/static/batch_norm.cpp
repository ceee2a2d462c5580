// What batch normalisation takes, gives, owns and sends, known to the compiler.

#include "shardwise/layers/batch_norm.hpp"

#include <concepts>
#include <tuple>

#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/plan.hpp"

using namespace shardwise;

namespace {

using Batch = Sharded<Axis::batch>;
using Channels = Sharded<Axis::channel>;
using Features = Sharded<Axis::feature>;
using Rows = Sharded<Axis::height>;
using Norm = BatchNorm<6>;

static_assert(Layer<Norm> && Layer<BatchNorm<dynamic, Affine::none>>);
static_assert(std::constructible_from<BatchNorm<dynamic>, std::size_t, Epsilon, Momentum>);
static_assert(!detail::HasAllSizes<BatchNorm<dynamic>>);

template <class In>
constexpr bool keeps = std::same_as<output_layout_t<Norm, In>, In>;
static_assert(keeps<Invariant> && keeps<Batch> && keeps<Channels> && keeps<Features> &&
              keeps<Rows>);
static_assert(std::same_as<output_layout_t<Norm, Partial>, Invariant>);
static_assert(std::same_as<output_layout_t<Norm, Partial, Features>, Features>);

// Weights of a rank's own channels are its own; on a share of a batch they owe a sum.
template <class In>
using Weight = std::tuple_element_t<0, detail::parameters_t<Norm, In>>;
static_assert(std::same_as<Weight<Invariant>, ParameterUse<Invariant, Invariant>>);
static_assert(std::same_as<Weight<Channels>, ParameterUse<Channels, Channels>>);
static_assert(std::same_as<Weight<Features>, ParameterUse<Features, Features>>);
static_assert(std::same_as<Weight<Batch>, ParameterUse<Invariant, Replicated>>);
static_assert(std::same_as<Weight<Rows>, ParameterUse<Invariant, Replicated>>);
static_assert(Weight<Rows>::debt::movement == Movement::all_reduce);

// One exchange, and its adjoint is the one of backward.
template <class In>
using Sums = typename std::tuple_element_t<0, detail::exchanges_t<Norm, In>>::redistribution;
static_assert(std::same_as<Sums<Batch>, Redistribute<Partial, Replicated>>);
static_assert(std::same_as<adjoint_t<Sums<Batch>>, Redistribute<Partial, Replicated>>);
static_assert(Sums<Channels>::movement == Movement::none);

constexpr Shape images{{Axis::batch, 4}, {Axis::channel, 6}, {Axis::height, 16}, {Axis::width, 16}};
constexpr Shape rows{{Axis::batch, 4}, {Axis::feature, 6}};
constexpr bool input_gradient = true;

constexpr bool is(const Plan& plan, const CollectiveList& forward, const CollectiveList& backward,
                  const CollectiveList& settle = {}) {
  return plan.forward == forward && plan.backward == backward && plan.settle == settle;
}
template <class In>
constexpr Plan plan_on(const Shape& shape) {
  return plan<Norm, 4, In, In, input_gradient>(shape);
}

// Two numbers for each channel each way, in double, and weight and bias to settle.
constexpr Collective sums = all_reduce(2 * 6, Dtype::float64);
static_assert(is(plan_on<Invariant>(images), {}, {}));
static_assert(is(plan_on<Channels>(images), {}, {}));
static_assert(is(plan_on<Features>(rows), {}, {}));
static_assert(is(plan_on<Batch>(images), {sums}, {sums}, {all_reduce(12)}));
static_assert(is(plan_on<Rows>(images), {sums}, {sums}, {all_reduce(12)}));
static_assert(is(plan_on<Batch>(rows), {sums}, {sums}, {all_reduce(12)}));
// In evaluation running statistics serve, and nothing is sent.
static_assert(plan_of<Ends<Batch, Batch>, ForwardOnly>(Norm{}, 4, images).forward.empty());

// Between a column- and a row-parallel layer, and between convolutions split likewise: nothing.
using Mlp = Sequential<ColumnParallelLinear<6, 20>, BatchNorm<20>, Relu, RowParallelLinear<20, 6>>;
static_assert(plan<Mlp, 4>(rows).forward == CollectiveList{all_reduce(4 * 6)});
using Convolutions =
    Sequential<Conv2d<split::output, 6, 8, 1>, BatchNorm<8>, Relu, Conv2d<split::input, 8, 6, 1>>;
static_assert(plan<Convolutions, 4>(images).forward == CollectiveList{all_reduce(4 * 6 * 16 * 16)});

}  // namespace
