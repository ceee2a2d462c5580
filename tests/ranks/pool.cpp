// Pooling wherever images are split.

#include "ranks/layer_on_ranks.hpp"
#include "shardwise/layers/average_pool.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/global_max_pool.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;
using testing::bit_by_bit;
using testing::check_on_ranks;

namespace {

using Batch = Sharded<Axis::batch>;
using Channels = Sharded<Axis::channel>;
using Rows = Sharded<Axis::height>;
using Columns = Sharded<Axis::width>;

Shape pictures(std::size_t images, Dim channels, std::size_t height, std::size_t width) {
  return {{Axis::batch, images}, channels, {Axis::height, height}, {Axis::width, width}};
}

/// Shards that are even, uneven, narrower than a window, and empty; no image at all. Small integers
/// have many maxima that are equal.
template <class L, class Offered, class Wanted = Offered>
void check_pool(const LayerChecks& checks = bit_by_bit) {
  for (const Shape& shape :
       {pictures(2, {Axis::channel, 4}, 8, 16), pictures(2, {Axis::channel, 2, 2}, 29, 6),
        pictures(1, {Axis::channel, 1}, 7, 9), pictures(0, {Axis::channel, 3}, 8, 8)})
    check_on_ranks<Offered, Wanted>(L{}, shape, checks);
}

using Overlapping = MaxPool2d<pool({3, 5}, {.stride = {2, 1}, .padding = {1, 2}})>;
using Dilated = MaxPool2d<pool({3, 2}, {.stride = 1, .padding = sides(1, 0), .dilation = {2, 3}})>;
const LayerChecks in_another_order{.exact = false, .bound = 1e-14, .gradients = 5};
using Sixteenths = AveragePool2d<pool(4, {.stride = {3, 2}, .padding = 2})>;  // exact divisors

}  // namespace

TEST_CASE("maxima") {
  SUBCASE("of a share of the channels") { check_pool<Overlapping, Channels>(); }
  SUBCASE("of a share of the images") { check_pool<Overlapping, Batch>(); }
  SUBCASE("across shards of rows") { check_pool<Overlapping, Rows>(); }
  SUBCASE("across shards of columns, with gaps in the windows") { check_pool<Dilated, Columns>(); }
  SUBCASE("of three axes, across shards of the depth") {
    using Depth = Sharded<Axis::depth>;
    const Shape shape{{Axis::batch, 2},
                      {Axis::channel, 2},
                      {Axis::depth, 7},
                      {Axis::height, 4},
                      {Axis::width, 5}};
    check_on_ranks<Depth>(MaxPool3d<pool(3, {.stride = 2, .padding = 1})>{}, shape, bit_by_bit);
  }
}

TEST_CASE("in ceil mode, across shards of rows") {
  check_pool<MaxPool2d<pool(3, {.stride = {3, 2}, .ceil_mode = true})>, Rows>();
}

TEST_CASE("maxima of whole planes: the first of equal ones, on whatever rank") {
  SUBCASE("of which ranks have rows") { check_pool<GlobalMaxPool, Rows, Invariant>(); }
  SUBCASE("of which ranks have columns") { check_pool<GlobalMaxPool, Columns, Invariant>(); }
  SUBCASE("that are each on one rank") { check_pool<GlobalMaxPool, Channels>(); }
  SUBCASE("of summands") {
    check_pool<Sequential<To<Partial>, GlobalMaxPool>, Invariant, Channels>();
  }
}

TEST_CASE("means") {
  SUBCASE("across shards of rows") { check_pool<Sixteenths, Rows>(); }
  SUBCASE("across shards of columns") { check_pool<Sixteenths, Columns>(); }
  SUBCASE("of a share of the channels") { check_pool<Sixteenths, Channels>(); }
  SUBCASE("of a share of the images") { check_pool<Sixteenths, Batch>(); }
  SUBCASE("of what lies in the image alone") {  // divisors are any numbers up to 9
    check_pool<AveragePool2d<pool(3, {.stride = 2, .padding = 1, .counts_padding = false})>, Rows>(
        in_another_order);
  }
  SUBCASE("of summands") { check_pool<Sequential<To<Partial>, Sixteenths>, Invariant, Channels>(); }
  SUBCASE("of whole planes that ranks have rows of") {  // in another order, over any number
    check_pool<GlobalAveragePool, Rows, Invariant>(in_another_order);
  }
  SUBCASE("of whole planes that ranks have columns of") {
    check_pool<GlobalAveragePool, Columns, Invariant>(in_another_order);
  }
  SUBCASE("of whole planes") {
    check_pool<GlobalAveragePool, Channels>();
    check_pool<GlobalAveragePool, Batch>();
  }
  SUBCASE("of means across shards of rows") {
    check_pool<Sequential<Sixteenths, GlobalAveragePool>, Rows>(in_another_order);
  }
}
