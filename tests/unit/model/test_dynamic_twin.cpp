// What runs in the place of layers that differ in their sizes alone.

#include <doctest/doctest.h>

#include <concepts>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/class_token.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/head_norm.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/position_embedding.hpp"
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
static_assert(std::same_as<as_dynamic_t<LayerNorm<8>>, as_dynamic_t<LayerNorm<9>>>);
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
static_assert(std::same_as<as_dynamic_t<Doubled>, Doubled>);

/// Parameters, outputs of a training forward, and outputs of an evaluation behind it.
template <class A>
std::vector<float> everything(const A& architecture, const Shape& shape) {
  SingleRank alone;
  Model<A, Context<float, Reference, SingleRank>> model(architecture, alone, Seed{1}, shape);
  std::vector<float> x(shape.elements());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 7);
  const View<const float, Invariant> in(x, shape, place_of(alone));
  std::vector<float> all(model.values().begin(), model.values().end());
  const auto add = [&](const auto& y) { all.insert(all.end(), y.span().begin(), y.span().end()); };
  add(model.forward(in));
  add(model.evaluate(in));
  return all;
}

/// As a layer of a Sequential, where its twin runs, and as the whole model, where it does itself.
template <class L>
void check_twin(const L& layer, const Shape& shape) {
  CHECK(everything(Sequential<L>(layer), shape) == everything(layer, shape));
}

const Shape rows{{Axis::batch, 5}, {Axis::feature, 4}};
const Shape tokens{{Axis::batch, 2}, {Axis::sequence, 3}, {Axis::feature, 4}};
const Shape images{{Axis::batch, 2}, {Axis::channel, 4}, {Axis::height, 3}, {Axis::width, 3}};

}  // namespace

TEST_CASE("a twin keeps what its layer was given") {
  check_twin(Plain{}.initialized_by(init::xavier_uniform, init::ones), rows);
  check_twin(Conv2d<split::none, 4, 3, 2>{}.initialized_by(init::xavier_normal, init::ones),
             images);
  check_twin(LayerNorm<4>{Epsilon{0.5}}, rows);
  check_twin(BatchNorm<4>{Epsilon{0.5}, Momentum{0.75}}, images);
  check_twin(HeadNorm<2>{Epsilon{0.5}}, {{Axis::batch, 5}, {Axis::feature, 2, 2}});
  check_twin(PositionEmbedding<3, 4>{}.initialized_by(init::ones), tokens);
  check_twin(ClassToken<4>{}.initialized_by(init::ones), tokens);
  using Table = Embedding<5, 4>;
  SingleRank alone;
  Model<Sequential<Table>, Context<float, Reference, SingleRank>> table(
      Sequential<Table>(Table{}.initialized_by(init::ones)), alone, Seed{1}, {{Axis::batch, 2}});
  const auto weight = table.gather("0.weight");
  for (const float number : weight.view().span()) CHECK(number == 1);
}

TEST_CASE("a layer derived from one of the library's runs as itself") {
  const auto outputs = [](const auto& all) { return std::vector(all.end() - 15, all.end()); };
  std::vector<float> twice = outputs(everything(Sequential<Plain>(), rows));
  for (float& value : twice) value *= 2;
  CHECK(outputs(everything(Sequential<Doubled>(), rows)) == twice);
}
