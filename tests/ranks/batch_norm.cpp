// Batch normalisation wherever its input is split, and running statistics.

#include "shardwise/layers/batch_norm.hpp"

#include <cmath>
#include <string>

#include "ranks/layer_on_ranks.hpp"
#include "ranks/model_observe.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/group_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;
using testing::check_on_ranks;
using testing::Counted;
using testing::Data;
using testing::Observed;
using testing::up_to_rounding;
using testing::Whole;

namespace {

template <Layout L>
using Both = Ends<L, L>;
using Batch = Sharded<Axis::batch>;
using Channels = Sharded<Axis::channel>;
using Features = Sharded<Axis::feature>;
using Rows = Sharded<Axis::height>;

Shape pictures(std::size_t images, Dim channels, std::size_t height, std::size_t width) {
  return {{Axis::batch, images}, channels, {Axis::height, height}, {Axis::width, width}};
}

/// Even and uneven shards, fewer things than ranks, channels in grains, and no image at all.
template <Affine A, class L, class Use = TrainWithInputGradient>
void check_norm() {
  for (const Shape& shape :
       {pictures(8, {Axis::channel, 8}, 8, 3), pictures(3, {Axis::channel, 3, 2}, 5, 2),
        pictures(2, {Axis::channel, 1}, 1, 1), pictures(0, {Axis::channel, 2}, 3, 3)})
    check_on_ranks<L, L, Use>(BatchNorm<dynamic, A>(shape[1].extent(), Epsilon{1e-3}), shape,
                              up_to_rounding);
}

/// Three batches, of which each is normalised, and what runs after each: statistics, then y in
/// evaluation.
template <class T, class L>
Observed run_batches(int ranks, const Shape& shape) {
  testing::Recorder recorder(ranks);
  testing::run_on_ranks(ranks, [&](testing::Ranks& inner) {
    Counted c(inner);
    Model<BatchNorm<dynamic>, Context<T, Reference, Counted>, Both<L>> model(
        BatchNorm<dynamic>(shape[1].extent(), Epsilon{1e-3}, Momentum{0.25}), c, Seed{1}, shape);
    for (int batch = 0; batch < 3; ++batch) {
      const Whole whole =
          testing::elements(Data::integers, testing::number_of_input(batch), shape.elements());
      const auto x = testing::part_of<T, L>(whole, shape, place_of(c));
      const std::string number = " " + std::to_string(batch);
      recorder.put("y" + number, model.forward(x.view()));
      model.visit_buffers([&](auto& b) { recorder.put(b.name + number, b.value); });
      c.clear();
      recorder.put("evaluated" + number, model.evaluate(x.view()));
      recorder.put_calls("evaluate", c);
      model.discard_step();
    }
  });
  return recorder.take();
}

}  // namespace

TEST_CASE("groups of channels") {
  const auto check = [](auto layer, const Shape& shape) {
    check_on_ranks<Batch>(layer, shape, up_to_rounding);
    check_on_ranks<Rows>(layer, shape, up_to_rounding);
    check_on_ranks<Channels>(layer, shape, up_to_rounding);
  };
  using Grouped = GroupNorm<2, dynamic>;
  SUBCASE("in pairs") {
    check(Grouped(4, Epsilon{1e-3}), pictures(3, {Axis::channel, 2, 2}, 5, 2));
  }
  SUBCASE("several groups a unit, and no image") {
    check(GroupNorm<6, dynamic, Affine::none>(6), pictures(2, {Axis::channel, 3, 2}, 2, 3));
    check(Grouped(2), pictures(0, {Axis::channel, 2}, 3, 3));
  }
  SUBCASE("one a group") {
    check(InstanceNorm<dynamic, Affine::weight_and_bias>(5), pictures(2, {Axis::channel, 5}, 9, 3));
  }
}

TEST_CASE("images") {
  constexpr Affine both = Affine::weight_and_bias;
  SUBCASE("that every rank has") { check_norm<both, Invariant>(); }
  SUBCASE("by batch") { check_norm<both, Batch>(); }
  SUBCASE("by height, without weights") { check_norm<Affine::none, Rows>(); }
  SUBCASE("by height, without a bias") { check_norm<Affine::weight, Rows>(); }
  SUBCASE("by channel") { check_norm<both, Channels>(); }
  SUBCASE("by batch, without the gradient of the input") { check_norm<both, Batch, Train>(); }
}

TEST_CASE("one and three axes of space are two: only who has which channel matters") {
  using Columns = Sharded<Axis::width>;
  using Depth = Sharded<Axis::depth>;
  const Dim three{Axis::channel, 3};
  const Shape lines{{Axis::batch, 2}, three, {Axis::width, 7}};
  const Shape volumes{
      {Axis::batch, 2}, three, {Axis::depth, 5}, {Axis::height, 2}, {Axis::width, 3}};
  check_on_ranks<Columns>(BatchNorm<3>{}, lines, up_to_rounding);
  check_on_ranks<Depth>(BatchNorm<3>{}, volumes, up_to_rounding);
  const auto alone = [](const Shape& shape) {
    return testing::observe<BatchNorm<3>, double, SingleRank, Both<Invariant>,
                            TrainWithInputGradient>(BatchNorm<3>{}, 1, {shape, Data::reals, 2});
  };
  CHECK(alone(volumes).tensors == alone(pictures(2, three, 10, 3)).tensors);
  CHECK(alone(lines).tensors == alone(pictures(2, three, 7, 1)).tensors);
}

TEST_CASE("features, between layers that split them and behind planes that are kept whole") {
  using Head = Sequential<Flatten, BatchNorm<dynamic>, Relu, RowParallelLinear<30, 7, false>,
                          BatchNorm<7>, Relu, Linear<split::none, 7, 3>>;
  const Head head(Flatten{}, BatchNorm<dynamic>(30), Relu{}, RowParallelLinear<30, 7, false>{},
                  BatchNorm<7>{}, Relu{}, Linear<split::none, 7, 3>{});
  LayerChecks checks = up_to_rounding;
  checks.bound = 1e-11;
  check_on_ranks<Channels, Invariant>(head, pictures(4, {Axis::channel, 5}, 2, 3), checks);
}

TEST_CASE("a value that every rank uses for a share of its own: the gradient is summed once") {
  check_on_ranks<Invariant, Features>(
      Sequential<To<Replicated>, BatchNorm<6>, ColumnParallelLinear<6, 5>>{},
      {{Axis::batch, 4}, {Axis::feature, 6}}, up_to_rounding);
}

// Sums of small integers are exact, so statistics and all that follows from them have equal bits.
TEST_CASE("running statistics are those of the whole batch, at any number of ranks") {
  const Shape shape = pictures(3, {Axis::channel, 3}, 5, 2);
  const Observed one = run_batches<float, Invariant>(1, shape);
  const auto check = [&](const Observed& many) {
    REQUIRE(many.tensors.size() == one.tensors.size());
    for (const auto& tensor : one.tensors) {
      CAPTURE(tensor.first);
      CHECK(many[tensor.first] == tensor.second);
    }
    CHECK(many.copies_are_equal);
    for (const auto& calls : many.calls.at("evaluate")) CHECK(calls.empty());
  };
  for (const int ranks : testing::rank_counts({1, 2, 3, 8})) {
    CAPTURE(ranks);
    check(run_batches<float, Invariant>(ranks, shape));
    check(run_batches<float, Batch>(ranks, shape));
    check(run_batches<float, Rows>(ranks, shape));
    check(run_batches<float, Channels>(ranks, shape));
  }
}

TEST_CASE("by their definition") {
  const Shape shape{{Axis::batch, 4}, {Axis::feature, 1}};
  testing::run_on_ranks(testing::any_ranks(3), [&](testing::Ranks& c) {
    Model<BatchNorm<1>, Context<double, Reference, testing::Ranks>, Both<Batch>> model(
        BatchNorm<1>(Epsilon{0}, Momentum{0.5}), c, Seed{1}, shape);
    const auto x = testing::part_of<double, Batch>({1, 3, 5, 7}, shape, place_of(c));
    const auto check_running = [&] {
      model.visit_buffers([](auto& b) {
        // mean 4; squares 9 + 1 + 1 + 9 over 3; both half way from 0 and 1
        CHECK(std::abs(b.value[0] - (b.name == "running_mean" ? 2 : 0.5 + 0.5 * 20 / 3)) < 1e-15);
      });
    };
    model.forward(x.view());
    check_running();
    model.find_non_finite(x.view());  // the same batch again
    check_running();
    const auto bad = testing::part_of<double, Batch>({1, INFINITY, 5, 7}, shape, place_of(c));
    const auto y = model.forward(bad.view());
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(!std::isfinite(y[i]));
    model.visit_buffers([](auto& b) { CHECK(std::isfinite(b.value[0])); });
  });
}

TEST_CASE("a mean of 10000 leaves the variance of a float whole") {
  const Shape shape{{Axis::batch, 1024}, {Axis::feature, 1}};
  Whole x(1024);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 10000 + (i % 2 == 0 ? 1 : -1);
  testing::run_on_ranks(testing::any_ranks(3), [&](testing::Ranks& c) {
    Model<BatchNorm<1>, Context<float, Reference, testing::Ranks>, Both<Batch>> model(c, Seed{1});
    const auto part = testing::part_of<float, Batch>(x, shape, place_of(c));
    const auto y = model.forward(part.view());
    for (std::size_t i = 0; i < y.size(); ++i)  // variance 1, and an epsilon of 1e-5
      CHECK(std::abs(std::abs(y[i]) - 1) < 6e-6F);
  });
}

TEST_CASE("rounding takes no variance below 0, and one of 0 is divided by as it is") {
  const Shape shape{{Axis::batch, 6}, {Axis::feature, 1}};
  const auto run = [&](const Epsilon& epsilon, double value, auto check) {
    testing::run_on_ranks(testing::any_ranks(3), [&](testing::Ranks& c) {
      Model<BatchNorm<1>, Context<double, Reference, testing::Ranks>, Both<Batch>> model(
          BatchNorm<1>(epsilon, Momentum{1}), c, Seed{1}, shape);
      const auto x = testing::part_of<double, Batch>(Whole(6, value), shape, place_of(c));
      const auto y = model.forward(x.view());
      for (std::size_t i = 0; i < y.size(); ++i) check(y[i]);
      model.visit_buffers([](auto& b) {  // what 1e16 - 1e16 leaves
        if (b.name == "running_var") CHECK((b.value[0] >= 0 && b.value[0] <= 100));
      });
    });
  };
  for (int i = 0; i < 20; ++i) {  // Σ x² / N - mean² of some of these is below 0, of others above
    const double value = 1e8 + 0.1 * i;
    CAPTURE(value);
    run(Epsilon{}, value, [](double y) { CHECK(std::abs(y) < 1e-4); });
  }
  run(Epsilon{0}, 1, [](double y) { CHECK(!std::isfinite(y)); });  // 0 / 0
}

TEST_CASE("a single value of each channel has no variance to train with, but can be evaluated") {
  SingleRank alone;
  Model<BatchNorm<2>, Context<float, Reference, SingleRank>> model(alone, Seed{1});
  const Tensor<float, Invariant> x(Shape{{Axis::batch, 1}, {Axis::feature, 2}});
  CHECK_THROWS_WITH_AS(
      model.forward(x.view()),
      "BatchNorm<2>: the input is a tensor [batch 1, feature 2], a single value for "
      "each channel, which has no variance to train with: take a larger batch, or "
      "evaluate",
      shape_error);
  CHECK(model.evaluate(x.view())[1] == 0);
}

TEST_CASE("what cannot be normalised is refused") {
  CHECK_THROWS_AS(BatchNorm<4>(Epsilon{-1}), argument_error);
  CHECK_THROWS_AS(BatchNorm<4>(Epsilon{}, Momentum{1.5}), argument_error);
  CHECK_THROWS_AS(BatchNorm<4>{}.output_shape({{Axis::batch, 4}}), shape_error);
  CHECK_THROWS_AS(BatchNorm<4>{}.output_shape({{Axis::channel, 4}, {Axis::feature, 4}}),
                  shape_error);
  CHECK_THROWS_WITH_AS(BatchNorm<dynamic>(4).output_shape({{Axis::batch, 2}, {Axis::feature, 5}}),
                       "the input is a tensor [batch 2, feature 5], but the layer normalises 4 "
                       "channels or features: there must be one such axis, with that extent",
                       shape_error);
  CHECK(detail::name_of<BatchNorm<64>>() == "BatchNorm<64>");
  CHECK(detail::name_of<BatchNorm<dynamic, Affine::none>>() == "BatchNorm<dynamic, no weight>");
}
