// Shape laws: what the ranks hold tiles the global tensor, without gap or overlap, where an oracle
// that deals out single elements says.

#include <doctest/doctest.h>

#include <vector>

#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/view.hpp"
#include "support/layouts.hpp"
#include "support/oracle.hpp"
#include "support/shapes.hpp"

using namespace shardwise;
using namespace testing;

namespace {

/// Which rank holds each global element according to the views, or -1 for none, -2 for several.
template <ShardedLayout L>
std::vector<int> holders(const Shape& shape, int ranks) {
  std::vector<int> holder(shape.elements(), -1);
  for (int rank = 0; rank < ranks; ++rank) {
    const View<const float, L> view(static_cast<const float*>(nullptr), shape, {rank, ranks});
    std::size_t next = 0;
    for_each_global_run(view, [&](std::size_t global, std::size_t local, std::size_t length) {
      CHECK(local == next);  // in the order of local memory, which is that of the global tensor
      next += length;
      for (std::size_t i = global; i < global + length; ++i)
        holder.at(i) = holder.at(i) == -1 ? rank : -2;
    });
    CHECK(next == view.size());
  }
  return holder;
}

}  // namespace

TEST_CASE_TEMPLATE("blocks tile the tensor", L, Sharded<Axis::batch>, Sharded<Axis::sequence>,
                   Sharded<Axis::feature>) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const Shape& shape : shapes_for(ranks)) {
      CAPTURE(ranks);
      CAPTURE(to_string(shape));
      const std::vector<std::size_t> expected = owners(shape, L::axis, ranks);
      CHECK(holders<L>(shape, ranks) == std::vector<int>(expected.begin(), expected.end()));
    }
  }
}

TEST_CASE_TEMPLATE("blocks lie end to end and keep the grain", L, Sharded<Axis::batch>,
                   Sharded<Axis::sequence>, Sharded<Axis::feature>) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const Shape& shape : shapes_for(ranks)) {
      CAPTURE(ranks);
      CAPTURE(to_string(shape));
      const Dim& split = shape[split_position<L>(shape)];
      std::size_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Shape local = local_shape<L>(shape, {rank, ranks});
        const Interval block = local_block<L>(shape, {rank, ranks});
        CHECK(block.offset == end);
        CHECK(block.size == local[local.find(L::axis)].extent());
        CHECK(local[local.find(L::axis)].grain == split.grain);
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
    for (const Shape& shape : shapes_for(ranks)) {
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(local_shape<L>(shape, {rank, ranks}) == shape);
        CHECK(local_block<L>(shape, {rank, ranks}) == Interval{0, 0});
      }
    }
  }
}
