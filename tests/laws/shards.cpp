// Shape laws: what the ranks hold covers the global tensor without gap or overlap, and each rank
// holds as much as an oracle that deals out single elements gives it.

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "shardwise/layout/local_shape.hpp"
#include "shardwise/testing/shapes.hpp"
#include "support/oracle.hpp"

using namespace shardwise;
using namespace testing;

TEST_CASE_TEMPLATE("blocks lie end to end, keep the grain and leave the other axes whole", L,
                   Sharded<Axis::batch>, Sharded<Axis::sequence>, Sharded<Axis::feature>) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const Shape& shape : shardwise::shapes_for(ranks)) {
      CAPTURE(ranks);
      CAPTURE(to_string(shape));
      const Dim& split = shape[detail::split_position<L>(shape)];
      const std::vector<std::size_t> owner = owners(shape, L::axis, ranks);
      std::size_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Shape local = local_shape<L>(shape, {rank, ranks});
        const Interval block = local_block<L>(shape, {rank, ranks});
        CHECK(block.offset == end);
        CHECK(block.size == local[local.find(L::axis)].extent());
        CHECK(local[local.find(L::axis)].grain == split.grain);
        CHECK(local.elements() == static_cast<std::size_t>(std::count(
                                      owner.begin(), owner.end(), static_cast<std::size_t>(rank))));
        end = block.end();
        for (const Dim& dim : shape)
          if (dim.axis != L::axis) CHECK(local[local.find(dim.axis)] == dim);
      }
      CHECK(end == split.extent());
    }
  }
}

TEST_CASE_TEMPLATE("what is not split is whole on every rank", L, Invariant, Replicated, Partial) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const Shape& shape : shardwise::shapes_for(ranks)) {
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(local_shape<L>(shape, {rank, ranks}) == shape);
        CHECK(local_block<L>(shape, {rank, ranks}) == Interval{0, 0});
      }
    }
  }
}
