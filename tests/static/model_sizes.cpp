// Models of dynamic sizes are given their layers; models of static sizes are given nothing.

#include <cstddef>
#include <type_traits>

#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/prelu.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

namespace {

struct Static : Sequential<ColumnParallelLinear<20, 15>, Relu, RowParallelLinear<15, 10>> {};

using AnyColumn = ColumnParallelLinear<dynamic, dynamic>;
using AnyRow = RowParallelLinear<dynamic, 10>;
struct Dynamic : Sequential<AnyColumn, Relu, AnyRow> {
  using Sequential::Sequential;
};

static_assert(std::is_default_constructible_v<Static>);
static_assert(!std::is_constructible_v<Static, std::size_t>);
static_assert(!std::is_default_constructible_v<Dynamic>);
static_assert(std::is_constructible_v<Dynamic, AnyColumn, Relu, AnyRow>);
static_assert(!std::is_constructible_v<Dynamic, AnyColumn, AnyRow>);        // one is missing
static_assert(!std::is_constructible_v<Dynamic, AnyRow, Relu, AnyColumn>);  // another order
static_assert(!std::is_constructible_v<Dynamic, std::size_t, std::size_t>);
static_assert(!std::is_default_constructible_v<Residual<Dynamic>>);
static_assert(std::is_constructible_v<Residual<Dynamic>, Dynamic>);
static_assert(!std::is_default_constructible_v<Repeat<2, Dynamic>>);
static_assert(std::is_constructible_v<Repeat<2, Dynamic>, Dynamic>);
static_assert(!std::is_constructible_v<Repeat<2, Dynamic>, std::size_t>);
static_assert(std::is_empty_v<Relu> && std::is_empty_v<Sequential<Relu, Tanh>>);

// Both say the same of shapes and of the features that they take.
constexpr Dynamic made(AnyColumn(20, 15), Relu{}, AnyRow(15));
constexpr Shape x{{Axis::batch, 64}, {Axis::feature, 20}};
constexpr Shape y{{Axis::batch, 64}, {Axis::feature, 10}};
static_assert(Static{}.output_shape(x) == y && made.output_shape(x) == y);
static_assert(Static{}.in() == 20 && made.in() == 20);
static_assert(made.layer<0>().out() == 15 && made.layer<2>().in() == 15);
static_assert(made.layer<1>().output_shape(made.layer<0>().output_shape(x)) ==
              Shape{{Axis::batch, 64}, {Axis::feature, 15}});

// A block in front says how many features it takes; element-wise layers leave it to the next.
static_assert(Sequential<Relu, Static>{}.in() == 20);
static_assert(Sequential<Residual<Sequential<ColumnParallelLinear<6, 6>>>>{}.in() == 6);
static_assert(Repeat<2, Residual<RowParallelLinear<6, 6>>>{}.in() == 6);
static_assert(Sequential<Relu, Tanh>{}.in() == dynamic);
// So does a gather policy: a stream laid out where the model begins is still of a known size.
static_assert(Sequential<To<Sharded<Axis::batch>>, Static>{}.in() == 20);

// One slope for all elements takes any number of features and of channels.
static_assert(Sequential<Linear<split::none, 5, 7>, PRelu<>, Linear<split::none, 7, 3>>{}.in() ==
              5);
static_assert(Sequential<PRelu<>, Linear<split::none, 7, 3>>{}.in() == 7);
static_assert(Sequential<PRelu<7>>{}.in() == 7 && Sequential<PRelu<>>{}.in() == dynamic);
using Filters = Sequential<Conv2d<split::none, 3, 8, 3>, PRelu<>, Conv2d<split::none, 8, 4, 3>>;
static_assert(Filters{}.output_shape(
                  {{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 5}, {Axis::width, 6}}) ==
              Shape{{Axis::batch, 2}, {Axis::channel, 4}, {Axis::height, 1}, {Axis::width, 2}});

}  // namespace
