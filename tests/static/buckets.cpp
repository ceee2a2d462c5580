// Gradients are settled in buckets of a bounded size, which the plan lists one by one.

#include <cstddef>

#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/plan.hpp"

using namespace shardwise;

namespace {

using Batch = Sharded<Axis::batch>;

struct Whole : Sequential<Linear<split::none, 20, 15>, Relu, Linear<split::none, 15, 10>> {};
constexpr std::size_t owed = 20 * 15 + 15 + 15 * 10 + 10;  // 475

constexpr CollectiveList settle(const Sending& sending) {
  return plan<Whole, 4, Batch, Batch>(batch{64}, sending).settle;
}

constexpr Sending in_floats(std::size_t bytes) { return {Dtype::float32, Dtype::float32, bytes}; }

// A small model needs one collective, and one whose gradients are whole needs none.
static_assert(settle({}) == CollectiveList{all_reduce(owed)});
static_assert(plan<Whole, 4>(batch{64}, in_floats(4)).settle.empty());

// Whole buckets and a rest; a bucket that fits exactly leaves none.
static_assert(settle(in_floats(800)) ==
              CollectiveList{all_reduce(200), all_reduce(200), all_reduce(75)});
static_assert(settle(in_floats(4 * owed)) == CollectiveList{all_reduce(owed)});
static_assert(settle(in_floats(4 * owed - 1)) ==
              CollectiveList{all_reduce(owed - 1), all_reduce(1)});
// Elements are not cut, and a bucket holds at least one.
static_assert(settle(in_floats(803)).size() == 3);
static_assert(settle(in_floats(0)).size() == owed);

// Bytes are those of the dtype in which gradients travel, which need not be that of values.
static_assert(settle({Dtype::bfloat16, Dtype::float32, 800}).size() == 3);
static_assert(settle({Dtype::float32, Dtype::bfloat16, 800}) ==
              CollectiveList{all_reduce(400, Dtype::bfloat16), all_reduce(75, Dtype::bfloat16)});

// What all ranks together send does not depend on the buckets.
static_assert(settle(in_floats(800)).bytes_sent(4) == settle({}).bytes_sent(4));

}  // namespace
