// Flatten: shards stay whole planes, so the layer behind finds its inputs in place.

#include "ranks/layer_on_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/linear.hpp"

using namespace shardwise;

namespace {

// 5 channels of 2 x 3: planes of 6 features.
const Shape images{{Axis::batch, 4}, {Axis::channel, 5}, {Axis::height, 2}, {Axis::width, 3}};

using Rows = Sequential<Relu, Flatten, RowParallelLinear<30, 3>>;
using Wide = Sequential<Flatten, Linear<split::none, 30, 3>>;

template <class Architecture, Layout Offered>
void check() {
  testing::check_on_ranks<Offered, Invariant>(Architecture{}, images, testing::bit_by_bit);
}

}  // namespace

TEST_CASE("shape and grain") {
  CHECK(Flatten{}.output_shape(images) == Shape{{Axis::batch, 4}, {Axis::feature, 5, 6}});
  CHECK(Flatten{}.output_shape({{Axis::batch, 4}, {Axis::channel, 5, 2}, {Axis::height, 3}}) ==
        Shape{{Axis::batch, 4}, {Axis::feature, 5, 6}});
  CHECK(Flatten{}.output_shape({{Axis::batch, 4}, {Axis::channel, 5}}) ==
        Shape{{Axis::batch, 4}, {Axis::feature, 5}});
  CHECK_THROWS_AS(Flatten{}.output_shape({{Axis::batch, 4}}), shape_error);
  CHECK_THROWS_AS(Flatten{}.output_shape({{Axis::channel, 4}, {Axis::batch, 2}}), shape_error);
  CHECK_THROWS_WITH_AS(Flatten{}.output_shape({{Axis::batch, 4}, {Axis::feature, 7}}),
                       "the input is a tensor [batch 4, feature 7], but Flatten takes [batch, "
                       "channel, ...]",
                       shape_error);
}

TEST_CASE("shape and grain from another axis") {
  CHECK(FlattenFrom<Axis::height>{}.output_shape(images) ==
        Shape{{Axis::batch, 4}, {Axis::channel, 5}, {Axis::feature, 2, 3}});
  CHECK(FlattenFrom<Axis::sequence>{}.output_shape(
            {{Axis::batch, 4}, {Axis::sequence, 6}, {Axis::feature, 2, 3}}) ==
        Shape{{Axis::batch, 4}, {Axis::feature, 6, 6}});
  CHECK(FlattenFrom<Axis::width>{}.output_shape(
            {{Axis::batch, 4}, {Axis::channel, 5}, {Axis::width, dynamic}}) ==
        Shape{{Axis::batch, 4}, {Axis::channel, 5}, {Axis::feature, dynamic}});
  CHECK_THROWS_WITH_AS(FlattenFrom<Axis::depth>{}.output_shape(images),
                       "the input is a tensor [batch 4, channel 5, height 2, width 3], but "
                       "FlattenFrom<depth> takes [batch, ..., depth, ...]",
                       shape_error);
  CHECK_THROWS_AS(Flatten{}.output_shape({{Axis::batch, 4}, {Axis::height, 2}, {Axis::channel, 5}}),
                  shape_error);
  CHECK(detail::name_of<FlattenFrom<Axis::height>>() == "FlattenFrom<height>");
  CHECK(detail::name_of<Flatten>() == "Flatten");
}

TEST_CASE("a row-parallel layer behind it has the weights of whole planes") {
  testing::run_on_ranks(3, [&](testing::Ranks& c) {
    Model<Rows, Context<float, Reference, testing::Ranks>, Ends<Sharded<Axis::channel>, Invariant>>
        model(Rows{}, c, Seed{1}, images);
    model.visit_parameters([&](auto& p) {
      if (p.name != "2.weight") return;
      const std::size_t channels = c.rank() == 2 ? 1 : 2;  // 5 channels over 3 ranks
      CHECK(p.value.local() == Shape{{Axis::output, 3}, {Axis::input, channels, 6}});
    });
  });
}

TEST_CASE("the same numbers however the images are split") {
  SUBCASE("by channel") { check<Rows, Sharded<Axis::channel>>(); }
  SUBCASE("by height, which becomes channel") { check<Rows, Sharded<Axis::height>>(); }
  SUBCASE("by width, which becomes channel") { check<Rows, Sharded<Axis::width>>(); }
  SUBCASE("by batch, which becomes feature") { check<Rows, Sharded<Axis::batch>>(); }
  SUBCASE("not at all") { check<Rows, Invariant>(); }
  SUBCASE("from rows, which are split") {
    using FromRows = Sequential<FlattenFrom<Axis::height>, RowParallelLinear<6, 3>>;
    check<FromRows, Sharded<Axis::height>>();
    check<FromRows, Sharded<Axis::width>>();  // becomes height
  }
  SUBCASE("from rows, of a share of the channels") {
    testing::check_on_ranks<Sharded<Axis::channel>>(FlattenFrom<Axis::height>{}, images,
                                                    testing::bit_by_bit);
  }
  SUBCASE("from tokens, which are split") {
    using Tokens = Sequential<FlattenFrom<Axis::sequence>, RowParallelLinear<10, 3>>;
    testing::check_on_ranks<Sharded<Axis::sequence>, Invariant>(
        Tokens{}, {{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, 2}}, testing::bit_by_bit);
  }
  SUBCASE("by batch throughout") { check<Wide, Sharded<Axis::batch>>(); }
}
