// A value's memory goes back to the pool as soon as the value has been moved on.

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/model/context.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/value.hpp"

using namespace shardwise;

namespace {

using Ranks = Context<float, Reference, ThreadCommunicator>;

/// Whether the pool needs no new memory for as many bytes as `converted<To>` had of its input.
template <Layout From, Layout To>
bool gives_memory_back(ThreadCommunicator& ranks) {
  Reference backend;
  Run<Ranks> run{.ranks = ranks, .all_ranks = ranks, .backend = backend};
  const Shape shape{{Axis::batch, 64}, {Axis::feature, 32}};
  Value<float, From> in(run.pool, shape, run.place());
  std::fill_n(in.writable().data(), in.view().size(), 1.0F);
  const std::size_t bytes = in.view().size() * sizeof(float);
  const Value<float, To> out = detail::converted<To>(run, std::move(in));
  const std::size_t reserved = run.pool.reserved();
  const Buffer again = run.pool.take(bytes);
  return run.pool.reserved() == reserved;
}

}  // namespace

TEST_CASE("a value that was redistributed holds no memory, whoever still owns it") {
  run_ranks(2, [](ThreadCommunicator& ranks) {
    using Batch = Sharded<Axis::batch>;
    using Features = Sharded<Axis::feature>;
    CHECK(gives_memory_back<Batch, Replicated>(ranks));
    CHECK(gives_memory_back<Batch, Features>(ranks));
    CHECK(gives_memory_back<Partial, Batch>(ranks));
    CHECK(gives_memory_back<Invariant, Batch>(ranks));
  });
}

TEST_CASE("a value that was released holds no memory") {
  Pool pool;
  Value<float, Invariant> value(pool, {{Axis::batch, 4}}, {});
  CHECK(value.may_write());
  value.release();
  CHECK(!value.may_write());
}
