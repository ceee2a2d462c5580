// Pooling wherever images are split: at 1 to 8 ranks against one rank, calls against plans, and
// gradients against differences.

#include "ranks/model_compare.hpp"
#include "shardwise/layers/average_pool.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/train/gradient_check.hpp"

using namespace shardwise;
using testing::check_model;
using testing::Data;

namespace {

template <Layout L>
using Both = Ends<L, L>;
using Batch = Sharded<Axis::batch>;
using Channels = Sharded<Axis::channel>;
using Rows = Sharded<Axis::height>;
using Columns = Sharded<Axis::width>;

Shape pictures(std::size_t images, Dim channels, std::size_t height, std::size_t width) {
  return {{Axis::batch, images}, channels, {Axis::height, height}, {Axis::width, width}};
}

/// Shards that are even, uneven, narrower than a window, and empty; no image at all. Small integers
/// have many maxima that are equal.
template <class L, class E>
void check_pool(double bound = 0) {
  const Shape shapes[] = {
      pictures(2, {Axis::channel, 8}, 16, 16), pictures(3, {Axis::channel, 2, 2}, 29, 11),
      pictures(1, {Axis::channel, 1}, 7, 9), pictures(0, {Axis::channel, 3}, 8, 8)};
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    check_model<double, E>(L{}, {shape, Data::integers, true, 2}, bound);
  }
}

using Overlapping = MaxPool2d<pool({3, 5}, {.stride = {2, 1}, .padding = {1, 2}})>;
using Dilated = MaxPool2d<pool({3, 2}, {.stride = 1, .padding = sides(1, 0), .dilation = {2, 3}})>;
using Sixteenths = AveragePool2d<pool(4, {.stride = {3, 2}, .padding = 2})>;  // exact divisors

template <class E, class L>
void check_gradients_of(const L& layer) {
  for (const int ranks : testing::rank_counts({1, 3})) {
    testing::run_on_ranks(ranks, [&](testing::Ranks& c) {
      const auto report = check_gradients<typename E::offered, typename E::wanted>(
          c, layer, pictures(2, {Axis::channel, 2}, 7, 6), Seed{2});
      CAPTURE(ranks);
      CAPTURE(report.where);
      CHECK(report.passed());
    });
  }
}

}  // namespace

TEST_CASE("maxima") {
  SUBCASE("of a share of the channels") { check_pool<Overlapping, Both<Channels>>(); }
  SUBCASE("of a share of the images") { check_pool<Overlapping, Both<Batch>>(); }
  SUBCASE("across shards of rows") { check_pool<Overlapping, Both<Rows>>(); }
  SUBCASE("across shards of columns, with gaps in the windows") {
    check_pool<Dilated, Both<Columns>>();
  }
  SUBCASE("of three axes, across shards of the depth") {
    using Depth = Sharded<Axis::depth>;
    const Shape shape{{Axis::batch, 2},
                      {Axis::channel, 2},
                      {Axis::depth, 7},
                      {Axis::height, 4},
                      {Axis::width, 5}};
    check_model<double, Both<Depth>>(MaxPool3d<pool(3, {.stride = 2, .padding = 1})>{},
                                     {shape, Data::integers, true, 2}, 0);
  }
}

TEST_CASE("means") {
  SUBCASE("across shards of rows") { check_pool<Sixteenths, Both<Rows>>(); }
  SUBCASE("across shards of columns") { check_pool<Sixteenths, Both<Columns>>(); }
  SUBCASE("of a share of the channels") { check_pool<Sixteenths, Both<Channels>>(); }
  SUBCASE("of a share of the images") { check_pool<Sixteenths, Both<Batch>>(); }
  SUBCASE("of what lies in the image alone") {  // divisors are any numbers up to 9
    check_pool<AveragePool2d<pool(3, {.stride = 2, .padding = 1, .counts_padding = false})>,
               Both<Rows>>(1e-14);
  }
  SUBCASE("of summands") {
    check_pool<Sequential<To<Partial>, Sixteenths>, Ends<Invariant, Channels>>();
  }
  SUBCASE("of whole planes that ranks have rows of") {  // in another order, over any number
    check_pool<GlobalAveragePool, Ends<Rows, Invariant>>(1e-14);
  }
  SUBCASE("of whole planes that ranks have columns of") {
    check_pool<GlobalAveragePool, Ends<Columns, Invariant>>(1e-14);
  }
  SUBCASE("of whole planes") {
    check_pool<GlobalAveragePool, Both<Channels>>();
    check_pool<GlobalAveragePool, Both<Batch>>();
  }
}

TEST_CASE("gradients are differences") {
  SUBCASE("of maxima across rows") { check_gradients_of<Both<Rows>>(Overlapping{}); }
  SUBCASE("of means across rows") {
    check_gradients_of<Both<Rows>>(Sequential<Sixteenths, GlobalAveragePool>{});
  }
}
