// One template makes every convolution; what its types say of shapes, parameters and plans.

#include "shardwise/layers/convolution.hpp"

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/parameter_count.hpp"
#include "shardwise/model/plan.hpp"

using namespace shardwise;

namespace {

using Channels = Sharded<Axis::channel>;
using Batch = Sharded<Axis::batch>;
using Height = Sharded<Axis::height>;
using ByOutput = Sharded<Axis::output>;
using ByInput = Sharded<Axis::input>;

constexpr Shape images{{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 9}, {Axis::width, 6}};

// --- one template --------------------------------------------------------------------------------

static_assert(Layer<Conv1d<split::none, 3, 8, 3>> && Layer<Conv2d<split::output, 3, 8, 3>> &&
              Layer<Conv3d<split::group, 3, 9, kernel(3, {.groups = 3})>>);
// However a kernel is written, equal ones make equal types.
static_assert(std::same_as<Conv2d<split::output, 3, 8, 3>,
                           Conv2d<split::output, 3, 8, kernel({3, 3}, {.stride = {1, 1}})>>);
static_assert(std::same_as<Conv2d<split::none, 3, 8, kernel(3, {.padding = same})>,
                           Conv2d<split::none, 3, 8, kernel(3, {.padding = sides(1, {1, 1})})>>);
static_assert(!std::same_as<Conv2d<split::output, 3, 8, 3>, Conv1d<split::output, 3, 8, 3>>);
static_assert(!std::same_as<Conv2d<split::output, 3, 8, 3>, Conv2d<split::input, 3, 8, 3>>);
static_assert(!std::same_as<Conv2d<split::none, 3, 8, kernel({1, 2})>,
                            Conv2d<split::none, 3, 8, kernel({2, 1})>>);

static_assert(detail::ConvolutionSplit<split::none> && detail::ConvolutionSplit<split::output> &&
              detail::ConvolutionSplit<split::input> && detail::ConvolutionSplit<split::group>);
static_assert(!detail::ConvolutionSplit<int> && !detail::ConvolutionSplit<Axis> &&
              !Split<split::group>);

// --- windows -------------------------------------------------------------------------------------

template <Kernel K>
constexpr Window window_of(std::size_t axis) {
  return Conv2d<split::none, 1, 1, K>::form.windows[axis];
}
static_assert(window_of<5>(1) == Window{.kernel = 5});
static_assert(window_of<kernel({3, 5}, {.stride = {2, 1}, .dilation = {1, 3}})>(0) ==
              Window{.kernel = 3, .stride = 2});
static_assert(window_of<kernel({3, 5}, {.stride = {2, 1}, .dilation = {1, 3}})>(1) ==
              Window{.kernel = 5, .dilation = 3});
static_assert(window_of<kernel(3, {.padding = {1, 2}})>(1) ==
              Window{.kernel = 3, .before = 2, .after = 2});
static_assert(window_of<kernel(3, {.padding = sides({1, 2}, {0, 4})})>(1) ==
              Window{.kernel = 3, .before = 2, .after = 4});
// An even kernel has one zero more behind, as PyTorch's has.
static_assert(window_of<kernel(4, {.padding = same, .dilation = 3})>(0) ==
              Window{.kernel = 4, .dilation = 3, .before = 4, .after = 5});

// --- sizes ---------------------------------------------------------------------------------------

template <std::size_t In, std::size_t Out>
using C = Conv2d<split::output, In, Out, kernel({3, 2}, {.stride = 2, .padding = {1, 0}})>;

static_assert(detail::HasAllSizes<C<3, 4>>);
// Too many or too few numbers are a sentence of their own, see tests/compile_fail.
static_assert(!detail::HasAllSizes<C<dynamic, 4>>);
static_assert(std::is_constructible_v<C<dynamic, 4>, std::size_t>);
static_assert(!std::is_convertible_v<std::size_t, C<dynamic, 4>>);
static_assert(std::is_constructible_v<C<dynamic, dynamic>, std::size_t, std::size_t>);
static_assert(sizeof(C<3, 4>) < sizeof(C<dynamic, 4>));

constexpr Shape smaller{{Axis::batch, 2}, {Axis::channel, 4}, {Axis::height, 5}, {Axis::width, 3}};
static_assert(C<3, 4>{}.output_shape(images) == smaller);
static_assert(C<dynamic, 4>(3).output_shape(images) == smaller);
static_assert(C<3, dynamic>(4).output_shape(images) == smaller);
static_assert(C<dynamic, dynamic>(3, 4).output_shape(images) == smaller);
// A batch may be left open, and is passed on as it is.
static_assert(!C<3, 4>{}
                   .output_shape({{Axis::batch, dynamic},
                                  {Axis::channel, 3},
                                  {Axis::height, 9},
                                  {Axis::width, 6}})[0]
                   .known());

// What a convolution cannot take is no constant, and so an error where the compiler is asked.
template <class L>
constexpr L made{};
template <class L, const Shape& In>
concept Takes = requires {
  typename std::bool_constant<(made<L>.output_shape(In), true)>;
};
constexpr Shape four_channels{
    {Axis::batch, 2}, {Axis::channel, 4}, {Axis::height, 9}, {Axis::width, 6}};
constexpr Shape no_rows{{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 0}, {Axis::width, 6}};
template <Kernel K>
using ByRows = Conv2d<split::height, 3, 8, K>;
static_assert(Takes<ByRows<kernel({9, 3})>, images> &&
              Takes<ByRows<kernel(8, {.padding = 1})>, images>);
static_assert(!Takes<ByRows<kernel({10, 3})>, images>);                  // a row too many
static_assert(!Takes<ByRows<kernel(3, {.dilation = {1, 3}})>, images>);  // reaches over 7 of 6
static_assert(!Takes<ByRows<kernel(3)>, four_channels> && !Takes<ByRows<kernel(3)>, no_rows>);

// --- parameters ----------------------------------------------------------------------------------

constexpr auto specs = C<3, 4>{}.parameter_specs(images);
static_assert(specs.size() == 2 && specs[0].name == "weight" && specs[1].name == "bias");
static_assert(specs[0].shape ==
              Shape{{Axis::output, 4}, {Axis::input, 3}, {Axis::height, 3}, {Axis::width, 2}});
static_assert(specs[1].shape == Shape{{Axis::output, 4}});
// Fans of the whole layer: inputs of one output, and outputs of one input, as PyTorch counts them.
static_assert(specs[0].fans.in == 3 * 6 && specs[0].fans.out == 4 * 6);
static_assert(
    Conv2d<split::none, 3, 4, kernel(3, {.bias = false})>{}.parameter_specs(images).size() == 1);

// Split by group: outputs lie in units of as many groups as the inputs do, weights likewise.
using Grouped = Conv1d<split::group, 12, 24, kernel(3, {.groups = 6})>;
constexpr Shape pairs{{Axis::batch, 2}, {Axis::channel, 3, 4}, {Axis::width, 5}};
static_assert(Grouped{}.output_shape(pairs)[1] == Dim{Axis::channel, 3, 8});
static_assert(Grouped{}.parameter_specs(pairs)[0].shape ==
              Shape{{Axis::output, 3, 8}, {Axis::input, 2}, {Axis::width, 3}});
static_assert(Grouped{}.parameter_specs(pairs)[0].fans.in == 2 * 3);
static_assert(Grouped{}.parameter_specs(pairs)[0].fans.out == 24 * 3);
// Other splits give the units that the layer was told; inputs keep theirs in the weight.
using Kept = Conv1d<split::input, 12, 24, kernel(3, {.grain = 4})>;
static_assert(Kept{}.output_shape(pairs)[1] == Dim{Axis::channel, 6, 4});
static_assert(Kept{}.parameter_specs(pairs)[0].shape ==
              Shape{{Axis::output, 6, 4}, {Axis::input, 3, 4}, {Axis::width, 3}});

template <class S>
using Of = Conv2d<S, 3, 4, 3>;
template <class Layer, class In, std::size_t I, class Stored, class Used, Movement Debt>
constexpr bool parameter() {
  using P = std::tuple_element_t<I, detail::parameters_t<Layer, In>>;
  static_assert(std::same_as<P, ParameterUse<Stored, Used>>);
  static_assert(P::debt::movement == Debt);
  return true;
}
constexpr Movement none = Movement::none, summed = Movement::all_reduce;
static_assert(parameter<Of<split::output>, Replicated, 0, ByOutput, ByOutput, none>());
static_assert(parameter<Of<split::output>, Replicated, 1, ByOutput, ByOutput, none>());
static_assert(parameter<Of<split::input>, Channels, 0, ByInput, ByInput, none>());
static_assert(parameter<Of<split::input>, Channels, 1, Invariant, Partial, none>());
static_assert(parameter<Grouped, Channels, 0, ByOutput, ByOutput, none>());
static_assert(parameter<Grouped, Channels, 1, ByOutput, ByOutput, none>());
static_assert(parameter<Of<split::none>, Invariant, 0, Invariant, Invariant, none>());
static_assert(parameter<Of<split::none>, Batch, 0, Invariant, Replicated, summed>());
static_assert(parameter<Of<split::none>, Batch, 1, Invariant, Replicated, summed>());

// --- layouts -------------------------------------------------------------------------------------

template <class L, class Offered, class Takes, class Gives>
constexpr bool maps = std::same_as<detail::input_layout_at_t<L, Ends<Offered, Invariant>>, Takes>&&
    std::same_as<detail::output_layout_at_t<L, Ends<Offered, Invariant>>, Gives>;
static_assert(maps<Of<split::output>, Invariant, Replicated, Channels>);
static_assert(maps<Of<split::input>, Invariant, Channels, Partial>);
static_assert(maps<Grouped, Invariant, Channels, Channels>);
static_assert(maps<Of<split::none>, Invariant, Invariant, Invariant>);
static_assert(maps<Of<split::none>, Batch, Batch, Batch>);
static_assert(maps<Of<split::none>, Channels, Invariant, Invariant>);  // needs whole images
static_assert(maps<Of<split::none>, Height, Invariant, Invariant>);
static_assert(maps<Of<split::none>, Partial, Invariant, Invariant>);  // a bias counts once

// --- plans ---------------------------------------------------------------------------------------

constexpr bool is(const Plan& plan, const CollectiveList& forward, const CollectiveList& backward,
                  const CollectiveList& settle = {}) {
  return plan.forward == forward && plan.backward == backward && plan.settle == settle;
}
template <class L, class Offered, class Wanted>
constexpr Plan of(const Shape& in) {
  return plan<L, 4, Offered, Wanted, true>(in);
}

constexpr Kernel padded = kernel(3, {.padding = 1});

// Column, ReLU, row: one all-reduce each way, as for linear layers.
struct Pair : Sequential<Conv2d<split::output, 3, 8, padded>, Relu, Conv2d<split::input, 8, 5, 3>> {
};
static_assert(is(of<Pair, Invariant, Invariant>(images), {all_reduce(2 * 5 * 7 * 4)},
                 {all_reduce(2 * 3 * 9 * 6)}));
static_assert(is(plan<Pair, 4>(images), {all_reduce(2 * 5 * 7 * 4)}, {}));

// A grouped convolution between them sends nothing: it works on the channels that are there.
using Separable = Sequential<Conv2d<split::output, 3, 8, padded>, Relu,
                             Conv2d<split::group, 8, 16, kernel(3, {.padding = 1, .groups = 8})>,
                             Relu, Conv2d<split::input, 16, 5, 1>>;
static_assert(is(of<Separable, Invariant, Invariant>(images), {all_reduce(2 * 5 * 9 * 6)},
                 {all_reduce(2 * 3 * 9 * 6)}));

// A row-parallel linear layer finds whole planes of channels where they are.
using Classifier = Sequential<Conv2d<split::output, 3, 8, padded>, Relu, Flatten,
                              RowParallelLinear<8 * 9 * 6, 10>>;
static_assert(is(of<Classifier, Invariant, Invariant>(images), {all_reduce(2 * 10)},
                 {all_reduce(2 * 3 * 9 * 6)}));

// Row, ReLU, row: a reduce-scatter over channels.
using Summands =
    Sequential<Conv2d<split::input, 3, 8, padded>, Relu, Conv2d<split::input, 8, 5, 3>>;
static_assert(is(of<Summands, Channels, Invariant>(images),
                 {reduce_scatter(2 * 8 * 9 * 6), all_reduce(2 * 5 * 7 * 4)},
                 {all_gather(2 * 8 * 9 * 6)}));

// Over a split batch nothing moves, and all gradients are summed at once.
using Whole = Sequential<Conv2d<split::none, 3, 8, padded>, Relu, Conv2d<split::none, 8, 5, 3>>;
static_assert(is(of<Whole, Batch, Batch>(images), {}, {},
                 {all_reduce(8 * 3 * 9 + 8 + 5 * 8 * 9 + 5)}));
static_assert(is(of<Whole, Invariant, Invariant>(images), {}, {}));

// Split along space, a rank fetches the rows that its window reads beyond its own, the gradients of
// rows go back to where they came from, and all gradients of weights are summed at once.
using Rowwise =
    Sequential<Conv2d<split::height, 3, 8, padded>, Relu, Conv2d<split::height, 8, 5, 3>>;
using Rows = Sharded<Axis::height>;
constexpr detail::HaloOf of_padded{{.kernel = 3, .before = 1, .after = 1}, 9};
constexpr detail::HaloOf of_plain{{.kernel = 3}, 9};
constexpr Collective halo(Operation operation, std::size_t elements, detail::HaloOf of) {
  Collective entry{operation, elements};
  entry.halo = of;
  return entry;
}
static_assert(is(of<Rowwise, Rows, Rows>(images),
                 {halo(Operation::halo_exchange, 2 * 3 * 9 * 6, of_padded),
                  halo(Operation::halo_exchange, 2 * 8 * 9 * 6, of_plain)},
                 {halo(Operation::halo_sum, 2 * 8 * 9 * 6, of_plain),
                  halo(Operation::halo_sum, 2 * 3 * 9 * 6, of_padded)},
                 {all_reduce(8 * 3 * 9 + 8 + 5 * 8 * 9 + 5)}));
// A kernel of one tap reads what the rank has already.
using Pointwise = Conv2d<split::height, 3, 5, 1>;
static_assert(maps<Pointwise, Height, Height, Height>);
static_assert(is(of<Pointwise, Rows, Rows>(images), {}, {}, {all_reduce(5 * 3 + 5)}));
// Images that every rank has need no exchange at the front.
static_assert(is(plan<Rowwise, 4>(images),
                 {halo(Operation::halo_exchange, 2 * 8 * 9 * 6, of_plain),
                  all_gather(2 * 5 * 7 * 4)},
                 {halo(Operation::halo_sum, 2 * 8 * 9 * 6, of_plain)},
                 {all_reduce(8 * 3 * 9 + 8 + 5 * 8 * 9 + 5)}));

// 8 output channels over 3 ranks are 3, 3 and 2.
static_assert(parameters_of_rank<Ends<Invariant, Invariant>>(Conv2d<split::output, 3, 8, 3>{},
                                                             Place{2, 3}, images) == 2 * 27 + 2);

}  // namespace
