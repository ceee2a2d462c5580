// What pooling and the layers around it take, give and send, known to the compiler.

#include <concepts>

#include "shardwise/layers/average_pool.hpp"
#include "shardwise/layers/concat.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/identity.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/layers/upsample.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/plan.hpp"

using namespace shardwise;

namespace {

using Batch = Sharded<Axis::batch>;
using Channels = Sharded<Axis::channel>;
using Rows = Sharded<Axis::height>;
using Columns = Sharded<Axis::width>;

using Max = MaxPool2d<pool({3, 5}, {.stride = 2, .padding = {1, 2}})>;
using Average = AveragePool2d<2>;

constexpr Window along_height{.kernel = 3, .stride = 2, .before = 1, .after = 1};
constexpr Window along_width{.kernel = 5, .stride = 2, .before = 2, .after = 2};

static_assert(Layer<Max> && Layer<Average> && Layer<GlobalAveragePool>);
static_assert(Layer<MaxPool1d<2>> && Layer<AveragePool3d<pool(3, {.counts_padding = false})>>);

// A stride that is not given is the size, and one number stands for all axes.
static_assert(std::same_as<MaxPool2d<2>, MaxPool2d<pool({2, 2}, {.stride = {2, 2}})>>);
static_assert(!std::same_as<MaxPool2d<2>, MaxPool2d<pool(2, {.stride = 1})>>);

// --- layouts -----------------------------------------------------------------------------------

template <class L, Layout Offered, Layout Wanted = Invariant>
using input_layout = detail::input_layout_at_t<L, Ends<Offered, Wanted>>;

template <class L, class In>
constexpr bool keeps =
    std::same_as<input_layout<L, In>, In>&& std::same_as<output_layout_t<L, In>, In>;
template <class L>
constexpr bool keeps_planes =
    keeps<L, Invariant>&& keeps<L, Replicated>&& keeps<L, Batch>&& keeps<L, Channels>;
static_assert(keeps_planes<Max> && keeps_planes<Average> && keeps_planes<GlobalAveragePool>);

// Along an axis of space, what the windows of that axis read, and the canonical block of outputs.
static_assert(std::same_as<input_layout<Max, Rows>, Haloed<Axis::height, along_height>>);
static_assert(std::same_as<input_layout<Max, Columns>, Haloed<Axis::width, along_width>>);
static_assert(std::same_as<output_layout_t<Max, Rows>, Rows>);
static_assert(std::same_as<detail::desired_input_layout_t<Max, Rows>, Rows>);
static_assert(std::same_as<input_layout<MaxPool1d<2>, Columns>,  //
                           Haloed<Axis::width, Window{.kernel = 2, .stride = 2}>>);
static_assert(std::same_as<output_layout_t<GlobalAveragePool, Rows>, Partial>);

// The largest of sums is no sum of largest; a mean of sums is the sum of means.
static_assert(std::same_as<input_layout<Max, Partial>, Invariant>);
static_assert(std::same_as<input_layout<Max, Partial, Channels>, Channels>);
static_assert(keeps<Average, Partial> && keeps<GlobalAveragePool, Partial>);

// --- shapes ------------------------------------------------------------------------------------

constexpr Shape images{{Axis::batch, 4}, {Axis::channel, 6}, {Axis::height, 16}, {Axis::width, 16}};
static_assert(Max{}.output_shape(images) ==
              Shape{{Axis::batch, 4}, {Axis::channel, 6}, {Axis::height, 8}, {Axis::width, 8}});
static_assert(GlobalAveragePool{}.output_shape(images) ==
              Shape{{Axis::batch, 4}, {Axis::channel, 6}, {Axis::height, 1}, {Axis::width, 1}});

// So a model sees through pooling whether shards could end within a group of a convolution behind
// it.
static_assert(Max::keeps_features && Average::keeps_features && GlobalAveragePool::keeps_features);

// Windows that leave nothing are no constant, and so an error where the compiler is asked.
template <class L, const Shape& In>
concept Takes = requires {
  typename std::bool_constant<(L{}.output_shape(In), true)>;
};
static_assert(Takes<MaxPool2d<16>, images> && !Takes<MaxPool2d<17>, images>);
static_assert(Takes<AveragePool2d<pool(18, {.padding = 1})>, images>);
static_assert(!Takes<AveragePool2d<pool({1, 3}, {.dilation = 8})>, images>);  // 17 of 16

// --- plans -------------------------------------------------------------------------------------

constexpr bool input_gradient = true;
constexpr std::size_t whole = 4 * 6 * 16 * 16;
constexpr std::size_t pooled = 4 * 6 * 8 * 8;

template <class L, Layout In, Layout Wanted = In>
constexpr Plan plan_on() {
  return plan<L, 4, In, Wanted, input_gradient>(images);
}
constexpr bool is(const Plan& plan, const CollectiveList& forward, const CollectiveList& backward) {
  return plan.forward == forward && plan.backward == backward && plan.settle.empty();
}

static_assert(is(plan_on<Max, Invariant>(), {}, {}));
static_assert(is(plan_on<Max, Channels>(), {}, {}));
static_assert(is(plan_on<Max, Batch>(), {}, {}));

// Windows that straddle shards: one exchange of halos each way, of the rows that are missing alone.
constexpr bool is_one(const CollectiveList& list, Operation operation, std::size_t bytes) {
  return list.size() == 1 && list[0].operation == operation && list.bytes_sent(4) == bytes;
}
constexpr std::size_t missing = 3 * 4 * 6 * 16 * sizeof(float);
static_assert(is_one(plan_on<Max, Rows>().forward, Operation::halo_exchange, missing));
static_assert(is_one(plan_on<Max, Rows>().backward, Operation::halo_sum, missing));
// Windows that fall on shards need no row of a neighbour.
static_assert(plan_on<MaxPool2d<2>, Rows>().forward.bytes_sent(4) == 0);

// A convolution over a share of the input channels gives summands. Behind average pooling they are
// summed where they are four times fewer, behind max pooling they cannot be.
template <class... Behind>
using Summands = Sequential<Conv2d<split::input, 6, 6, kernel(3, {.padding = 1})>, Behind...>;
static_assert(plan<Summands<Average>, 4, Channels>(images).forward ==
              CollectiveList{all_reduce(pooled)});
static_assert(plan<Summands<Max>, 4, Channels>(images).forward ==
              CollectiveList{all_reduce(whole)});
static_assert(plan<Summands<Average, Relu>, 4, Channels, Channels>(images).forward ==
              CollectiveList{reduce_scatter(pooled)});
static_assert(plan<Summands<GlobalAveragePool, Flatten, ColumnParallelLinear<6, 3>>, 4, Channels,
                   Sharded<Axis::feature>>(images)
                  .forward == CollectiveList{all_reduce(4 * 6)});

// Upsampling would make four times more of them, so they are summed in front of it, also on the way
// back.
constexpr std::size_t large = 4 * 6 * 32 * 32;
using Larger = Summands<Upsample2d<2>>;
static_assert(plan<Larger, 4, Channels, Replicated, input_gradient>(images).forward ==
              CollectiveList{all_reduce(whole)});
static_assert(plan<Larger, 4, Channels, Replicated, input_gradient>(images).backward ==
              CollectiveList{all_reduce(whole)});
static_assert(plan<Larger, 4, Channels>(images).forward == CollectiveList{all_reduce(whole)});
static_assert(plan<Larger, 4, Channels, Channels>(images).forward ==
              CollectiveList{reduce_scatter(whole)});
static_assert(plan_on<Upsample2d<2>, Channels, Invariant>().forward ==
              CollectiveList{all_gather(large)});

// A U-Net whose channels are split gathers the skip behind the fork, and beside it what pooling has
// made of it. One gather in front of the fork sends more: on the way back the whole gradient of the
// Concat is summed for every rank.
template <class... InFront>
using UNet = Sequential<
    Conv2d<split::output, 6, 8, kernel(3, {.padding = 1})>, Relu, InFront...,
    Join<Concat<Axis::channel>, Identity,
         Sequential<MaxPool2d<2>, Conv2d<split::output, 8, 8, kernel(3, {.padding = 1})>, Relu,
                    Conv2d<split::input, 8, 8, kernel(3, {.padding = 1})>, Upsample2d<2>>>,
    Conv2d<split::output, 16, 8, kernel(3, {.padding = 1})>>;
constexpr std::size_t skip = 4 * 8 * 16 * 16, deep = 4 * 8 * 8 * 8;
static_assert(is(plan<UNet<>, 4, Invariant, Channels>(images),
                 {all_gather(deep), all_reduce(deep), all_gather(skip)},
                 {reduce_scatter(skip), all_reduce(deep), reduce_scatter(deep)}));
static_assert(is(plan<UNet<To<Invariant>>, 4, Invariant, Channels>(images),
                 {all_gather(skip), all_reduce(deep)}, {all_reduce(2 * skip), all_reduce(deep)}));

// The mean of planes that ranks have rows of: one number a plane.
static_assert(is(plan_on<GlobalAveragePool, Rows, Invariant>(), {all_reduce(4 * 6)}, {}));

// Flatten turns rows into whole planes, and a row-parallel layer behind it finds its features.
using Head = Sequential<MaxPool2d<2>, Flatten, RowParallelLinear<384, 10>>;
static_assert(plan<Head, 4, Rows>(images).forward ==
              CollectiveList{all_to_all(pooled), all_reduce(4 * 10)});
// On 3 ranks windows straddle shards.
static_assert(plan<Head, 3, Rows>(images).forward.size() == 3 &&
              plan<Head, 3, Rows>(images).forward[0].operation == Operation::halo_exchange);
// Where a layer behind wants whole images, it is one gather and no detour.
static_assert(plan<Sequential<Flatten, ColumnParallelLinear<1536, 10>>, 4, Rows,
                   Sharded<Axis::feature>>(images)
                  .forward == CollectiveList{all_gather(whole)});
static_assert(plan<Sequential<Flatten, Linear<split::none, 1536, 10>>, 4, Rows, Batch>(images)
                  .forward == CollectiveList{all_to_all(whole)});

}  // namespace
