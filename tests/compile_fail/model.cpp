// Models that cannot be: no redistribution to what a layer takes, features that do not meet, and
// blocks that do not give what they take.

#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

namespace {

using In = Linear<split::none, 6, 8>;
using Keep = Linear<split::none, 8, 8>;
using Out = Linear<split::none, 8, 4>;

#if CASE == 1  // expect: takes a layout \(Taken\) to which there is no redistribution
struct Net : Sequential<In, To<Replicated>, To<Partial>, To<Invariant>, Out> {};
#else
struct Net : Sequential<In, To<Replicated>, To<Invariant>, To<Partial>, To<Invariant>, Out> {};
#endif

#if CASE == \
    2  // expect: Consumer takes Expected features, but Producer in front of it gives Produced
struct Chain : Sequential<In, Relu, Linear<split::none, 9, 4>> {};
#elif CASE == 3  // expect: Consumer takes Expected features, but Producer in front of it gives
struct Chain : Sequential<Sequential<In, Relu>, Sequential<Relu, Linear<split::none, 9, 4>>> {};
#else
struct Chain : Sequential<Sequential<In, Relu>, Sequential<Relu, Out>> {};
#endif

#if CASE == 4  // expect: Block takes Taken features and gives Given, but a Residual adds
struct Added : Sequential<In, Residual<Out>> {};
#elif CASE == 5  // expect: Block takes Taken features and gives Given, but a Residual adds
struct Added : Sequential<In, Residual<Sequential<Keep, Relu, Out>>> {};
#else
struct Added : Sequential<In, Residual<Sequential<Keep, Relu, Keep>>> {};
#endif

#if CASE == \
    6  // expect: Block takes Taken features and gives Given.* a Repeat passes it to the next
struct Stack : Sequential<In, Repeat<2, Sequential<Keep, Out>>> {};
#else
struct Stack : Sequential<In, Repeat<2, Residual<Keep>>, Repeat<1, Out>> {};
#endif

#if CASE == 7  // expect: reads windows along the axis of its layout Taken.*To<Sharded<Axis::width>>
struct Images : Sequential<Conv2d<split::height, 3, 8, 3>, Conv2d<split::width, 8, 4, 3>> {};
#else
struct Images : Sequential<Conv2d<split::height, 3, 8, 3>, To<Sharded<Axis::width>>,
                           Conv2d<split::width, 8, 4, 3>> {};
#endif

static_assert(std::same_as<output_layout_t<Net>, Invariant>);
static_assert(std::same_as<output_layout_t<Images>, Sharded<Axis::width>>);

}  // namespace

constexpr Chain chain;
constexpr Added added;
constexpr Stack stack;
