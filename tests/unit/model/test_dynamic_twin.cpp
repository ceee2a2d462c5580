// What runs in the place of layers that differ in their sizes alone.

#include <doctest/doctest.h>

#include <concepts>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;
using detail::as_dynamic_t;

namespace {

static_assert(std::same_as<as_dynamic_t<ColumnParallelLinear<7, 11>>,
                           ColumnParallelLinear<dynamic, dynamic>>);
static_assert(std::same_as<as_dynamic_t<Conv2d<split::input, 4, 6, 3>>,
                           Conv2d<split::input, dynamic, dynamic, 3>>);
static_assert(
    std::same_as<as_dynamic_t<BatchNorm<8, Affine::none>>, BatchNorm<dynamic, Affine::none>>);
static_assert(std::same_as<as_dynamic_t<Relu>, Relu>);

using Plain = Linear<split::none, 4, 3>;

/// A user's layer that does something else than the one it is derived from.
struct Doubled : Plain {
  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    Plain::forward(frame, x, y);
    for (float& value : y.span()) value *= 2;
  }
};

template <class L>
std::vector<float> outputs() {
  SingleRank alone;
  Model<Sequential<L>, Context<float, Reference, SingleRank>> model(alone, Seed{1});
  const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8};
  const auto y = model.evaluate(
      View<const float, Invariant>(x, {{Axis::batch, 2}, {Axis::feature, 4}}, place_of(alone)));
  return {y.span().begin(), y.span().end()};
}

}  // namespace

TEST_CASE("a layer derived from one of the library's runs as itself") {
  std::vector<float> twice = outputs<Plain>();
  for (float& value : twice) value *= 2;
  CHECK(outputs<Doubled>() == twice);
}
