// Redistributions of tensors in memory that the host cannot touch give the same numbers as those of
// the host, for every pair of layouts and for halos.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/redistribute/run.hpp"
#include "shardwise/testing/layouts.hpp"
#include "shardwise/testing/shapes.hpp"
#include "support/effort.hpp"
#include "support/far.hpp"
#include "support/plain_communicator.hpp"

using namespace shardwise;
using testing::Far;
using testing::FarMemory;
using Plain = testing::PlainCommunicator<ThreadCommunicator>;

namespace {

std::vector<int> rank_counts() { return testing::at_ranks({1, 2, 3, 5, 8}); }

/// Small integers: sums of them are exact in every dtype.
template <class T>
std::vector<T> integers(std::size_t count, Place place) {
  const RandomStream stream(Seed{7}, static_cast<std::uint64_t>(place.rank), 0);
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(static_cast<float>(stream.bits(i) % 9) - 4);
  }
  return values;
}

/// A rank of a job, on the host and far from it.
struct Rank {
  Rank(ThreadCommunicator& threads, const std::shared_ptr<FarMemory>& memory)
      : far(memory), near(threads), ranks(threads, far) {}

  Far far;
  Plain near;
  DeviceThreadCommunicator<Far> ranks;
  Pool near_pool;
  Pool far_pool{far.memory()};
};

/// Whether From -> To of what ranks hold comes to the same both ways.
template <Layout From, Layout To, class T>
bool same_result(Rank& rank, const Shape& shape, const std::vector<T>& in) {
  const Place place = place_of(rank.near);
  std::vector<T> expected(local_shape<To>(shape, place).elements(), static_cast<T>(99.F));
  redistribute(rank.near, rank.near_pool, View<const T, From>(in, shape, place),
               View<T, To>(expected, shape, place));

  const Buffer in_memory = rank.far_pool.take(in.size() * sizeof(T));
  const Buffer out_memory = rank.far_pool.take(expected.size() * sizeof(T));
  T* const far_in = static_cast<T*>(in_memory.data());
  T* const far_out = static_cast<T*>(out_memory.data());
  rank.far.to_device(in.data(), in.size(), far_in);
  redistribute(rank.far, rank.ranks, rank.far_pool, View<const T, From>(far_in, shape, place),
               View<T, To>(far_out, shape, place));
  std::vector<T> found(expected.size());
  rank.far.to_host(far_out, found.size(), found.data());
  return found == expected;
}

/// The same of made-up integers.
template <class T, Layout From, Layout To>
bool same_result(Rank& rank, const Shape& shape) {
  const Place place = place_of(rank.near);
  return same_result<From, To>(rank, shape,
                               integers<T>(local_shape<From>(shape, place).elements(), place));
}

/// Calls check(rank) on so many thread ranks; doctest's checks may run on any of them.
template <class Check>
void on_ranks(int count, Check check) {
  const auto memory = std::make_shared<FarMemory>();
  run_ranks(count, [&](ThreadCommunicator& threads) {
    Rank rank(threads, memory);
    check(rank);
  });
}

}  // namespace

TEST_CASE("every redistribution") {
  for (const int count : rank_counts()) {
    CAPTURE(count);
    on_ranks(count, [&](Rank& rank) {
      for (const Shape& shape : shapes_for(count)) {
        detail::oracle::for_each_pair([&]<class From, class To>() {
          CAPTURE(layout_name<From>() + " -> " + layout_name<To>() + " on " + to_string(shape));
          CHECK((same_result<float, From, To>(rank, shape)));
        });
      }
    });
  }
}

TEST_CASE_TEMPLATE("halos and their sums", T, float, bf16) {
  using H = Haloed<Axis::height, Window{.kernel = 3, .before = 1, .after = 1}>;
  using Wide = Haloed<Axis::height, Window{.kernel = 5, .stride = 2, .before = 2, .after = 2}>;
  using Block = Sharded<Axis::height>;
  for (const int count : rank_counts()) {
    CAPTURE(count);
    on_ranks(count, [&](Rank& rank) {
      for (const std::size_t height : std::array<std::size_t, 5>{0, 1, 4, 9, 17}) {
        const Shape images{
            {Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, height}, {Axis::width, 2}};
        CHECK(same_result<T, Block, H>(rank, images));
        CHECK(same_result<T, dual_t<H>, Block>(rank, images));
        CHECK(same_result<T, Block, Wide>(rank, images));
        CHECK(same_result<T, dual_t<Wide>, Block>(rank, images));
      }
    });
  }
}

TEST_CASE_TEMPLATE("a sum of halos in two bytes is rounded once", T, bf16) {
  // Every rank's window reads all three rows.
  using H = Haloed<Axis::height, Window{.kernel = 5, .before = 2, .after = 2}>;
  const Shape rows{{Axis::height, 3}, {Axis::width, 2}};
  on_ranks(3, [&](Rank& rank) {
    // 256 + 1 + 1 is 258 in bf16, which has no 257: rounded in between it would stay at 256.
    const Place place = place_of(rank.near);
    const std::vector<T> in(6, static_cast<T>(place.rank == 0 ? 256.F : 1.F));
    std::vector<T> near(2);
    redistribute(rank.near, rank.near_pool, View<const T, dual_t<H>>(in, rows, place),
                 View<T, Sharded<Axis::height>>(near, rows, place));
    for (const T sum : near) CHECK(static_cast<float>(sum) == 258.F);
    CHECK(same_result<dual_t<H>, Sharded<Axis::height>>(rank, rows, in));
  });
}
