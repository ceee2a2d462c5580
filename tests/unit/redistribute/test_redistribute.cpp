// What redistributions refuse, what they leave where, and what memory they take. That they are
// right is shown in tests/laws.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/redistribute/run.hpp"
#include "support/messages.hpp"
#include "support/plain_communicator.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::PlainCommunicator;

namespace {

using BySequence = Sharded<Axis::sequence>;
using ByFeature = Sharded<Axis::feature>;

const Shape global{{Axis::batch, 2}, {Axis::sequence, 3}, {Axis::feature, 5}};

template <class C, class From, class To>
std::string message_of(C& ranks, const Tensor<float, From>& in, Tensor<float, To>& out) {
  Pool pool;
  return testing::message_of([&] { redistribute(ranks, pool, in.view(), out.view()); });
}

template <class T, class L>
std::vector<T> elements(const Tensor<T, L>& tensor) {
  return {tensor.data(), tensor.data() + tensor.size()};
}

template <class L>
Tensor<float, L> filled(Place place, float value) {
  Tensor<float, L> tensor(global, place);
  std::fill_n(tensor.data(), tensor.size(), value);
  return tensor;
}

}  // namespace

TEST_CASE("unequal shapes are refused on every rank, before anybody waits") {
  std::array<std::string, 3> messages;
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    const Shape other{{Axis::batch, 2}, {Axis::sequence, 3}, {Axis::feature, 6}};
    const Tensor<float, BySequence> in(global, place_of(ranks));
    Tensor<float, Invariant> out(other, place_of(ranks));
    messages[static_cast<std::size_t>(ranks.rank())] = message_of(ranks, in, out);
  });
  for (int rank = 0; rank < 3; ++rank) {
    check_mentions(messages[static_cast<std::size_t>(rank)],
                   {"rank " + std::to_string(rank), "Sharded<sequence> -> Invariant",
                    "[batch 2, sequence 3, feature 5]", "[batch 2, sequence 3, feature 6]"});
  }
}

TEST_CASE("equal sizes with another grain or order are other shapes") {
  SingleRank alone;
  Pool pool;
  const Tensor<float, Invariant> in(Shape{{Axis::batch, 2}, {Axis::feature, 6}});
  for (const Shape& shape :
       {Shape{{Axis::batch, 2}, {Axis::feature, 3, 2}}, Shape{{Axis::feature, 6}, {Axis::batch, 2}},
        Shape{{Axis::batch, 2}, {Axis::channel, 6}}}) {
    Tensor<float, Replicated> out(shape);
    CHECK_THROWS_AS(redistribute(alone, pool, in.view(), out.view()), shape_error);
  }
}

TEST_CASE("views made for another rank or rank count are refused") {
  SingleRank alone;
  Pool pool;
  const Tensor<float, Partial> in(global, {1, 2});
  Tensor<float, Invariant> out(global);
  CHECK_THROWS_AS(redistribute(alone, pool, in.view(), out.view()), argument_error);
  check_mentions(message_of(alone, in, out),
                 {"rank 0", "Partial -> Invariant", "input 1 of 2", "output 0 of 1", "1 ranks"});

  const Tensor<float, Partial> right(global);
  Tensor<float, Invariant> wrong(global, {0, 2});
  CHECK_THROWS_AS(redistribute(alone, pool, right.view(), wrong.view()), argument_error);
}

TEST_CASE("ranks whose tensors differ in shape all get an error") {
  for (const bool plain : {false, true}) {
    CAPTURE(plain);
    const auto mismatch = [&] {
      run_ranks(2, [&](ThreadCommunicator& threads) {
        Pool pool;
        const auto features = static_cast<std::size_t>(5 + threads.rank());
        const Shape shape{{Axis::batch, 2}, {Axis::feature, features}};
        const Tensor<float, ByFeature> in(shape, place_of(threads));
        Tensor<float, Invariant> out(shape, place_of(threads));
        if (plain) {
          PlainCommunicator ranks(threads);
          redistribute(ranks, pool, in.view(), out.view());
        } else {
          redistribute(threads, pool, in.view(), out.view());
        }
      });
    };
    CHECK_THROWS_AS(mismatch(), collective_error);
  }
}

TEST_CASE("from the same value to summands: the first rank keeps, or each its block") {
  run_ranks(3, [](ThreadCommunicator& ranks) {
    Pool pool;
    const Place place = place_of(ranks);
    Tensor<float, Partial> out = filled<Partial>(place, 99);
    const auto same = filled<Invariant>(place, 4);
    redistribute(ranks, pool, same.view(), out.view());
    CHECK(elements(out) == std::vector<float>(30, ranks.rank() == 0 ? 4.F : 0.F));

    const auto block = filled<BySequence>(place, 4);
    redistribute(ranks, pool, block.view(), out.view());
    for (std::size_t i = 0; i < out.size(); ++i)
      CHECK(out[i] == (i / 5 % 3 == static_cast<std::size_t>(place.rank) ? 4.F : 0.F));
  });
}

TEST_CASE("an all-reduce may take the maximum or minimum instead of the sum") {
  run_ranks(3, [](ThreadCommunicator& ranks) {
    Pool pool;
    const auto mine = filled<Partial>(place_of(ranks), static_cast<float>(5 - ranks.rank()));
    Tensor<float, Invariant> out(global, place_of(ranks));
    redistribute(ranks, pool, mine.view(), out.view(), Reduction::max);
    CHECK(elements(out) == std::vector<float>(30, 5));
    redistribute(ranks, pool, mine.view(), out.view(), Reduction::min);
    CHECK(elements(out) == std::vector<float>(30, 3));
    redistribute(ranks, pool, mine.view(), out.view());
    CHECK(elements(out) == std::vector<float>(30, 12));
  });
}

TEST_CASE("nothing that moves changes the tensor that one rank alone holds") {
  SingleRank alone;
  Pool pool;
  Tensor<float, Partial> in(global);
  in[3] = 4;
  Tensor<float, ByFeature> out(global);
  redistribute(alone, pool, std::as_const(in).view(), out.view());
  CHECK(elements(out) == elements(in));
  CHECK(pool.reserved() == 0);
}

TEST_CASE("the pool is asked for nothing new from the second time on") {
  const auto all_moves = [](auto& ranks, Pool& pool) {
    const Place place = place_of(ranks);
    Tensor<float, Partial> sum(global, place);
    Tensor<float, ByFeature> features(global, place);
    Tensor<float, BySequence> sequences(global, place);
    Tensor<float, Replicated> same(global, place);
    redistribute(ranks, pool, std::as_const(sum).view(), features.view());
    redistribute(ranks, pool, std::as_const(features).view(), sequences.view());
    redistribute(ranks, pool, std::as_const(sequences).view(), same.view());
    redistribute(ranks, pool, std::as_const(sum).view(), same.view());
  };
  for (const bool plain : {false, true}) {
    run_ranks(4, [&](ThreadCommunicator& threads) {
      Pool pool;
      PlainCommunicator packing(threads);
      const auto once = [&] { plain ? all_moves(packing, pool) : all_moves(threads, pool); };
      once();
      const std::size_t reserved = pool.reserved();
      CHECK(reserved > 0);
      for (int i = 0; i < 3; ++i) once();
      CHECK(pool.reserved() == reserved);
    });
  }
}

TEST_CASE("redistributions run in groups made by split, whose neighbours are theirs") {
  run_ranks(5, [](ThreadCommunicator& world) {
    ThreadCommunicator ranks = world.split(world.rank() % 2, -world.rank());  // in reverse order
    Pool pool;
    const Place place = place_of(ranks);
    const auto shard = filled<BySequence>(place, static_cast<float>(place.rank));
    Tensor<float, Invariant> whole(global, place);
    redistribute(ranks, pool, shard.view(), whole.view());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const std::size_t row = i / 5 % 3;
      const std::size_t owner = place.size == 3 ? row : row / 2;  // 3 rows: 1, 1, 1 or 2, 1
      CHECK(whole[i] == static_cast<float>(owner));
    }
  });
}

static_assert(detail::AloneByType<SingleRank>);
static_assert(!detail::AloneByType<ThreadCommunicator>);
static_assert(!detail::AloneByType<PlainCommunicator<SingleRank>>);
static_assert(detail::moves_nothing<Redistribute<Partial, ByFeature>, SingleRank>);
static_assert(!detail::moves_nothing<Redistribute<Partial, ByFeature>, ThreadCommunicator>);
static_assert(detail::moves_nothing<Redistribute<Invariant, Replicated>, ThreadCommunicator>);
static_assert(!detail::moves_nothing<Redistribute<Invariant, Partial>, ThreadCommunicator>);

TEST_CASE("ranks that split different axes of equal counts are told") {
  const Shape square{{Axis::batch, 4}, {Axis::sequence, 4}, {Axis::feature, 4}};
  std::array<std::string, 2> gathers, sums, swaps;
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    const Place place = place_of(ranks);
    const auto me = static_cast<std::size_t>(ranks.rank());
    Tensor<float, Invariant> whole(square, place);
    const Tensor<float, Partial> summand(square, place);
    const auto both = [&]<class L>(L) {
      Tensor<float, L> part(square, place);
      Tensor<float, Sharded<Axis::batch>> rows(square, place);
      gathers[me] = message_of(ranks, part, whole);
      sums[me] = message_of(ranks, summand, part);
      swaps[me] = message_of(ranks, part, rows);
    };
    if (me == 0) {
      both(BySequence{});
    } else {
      both(ByFeature{});
    }
  });
  for (const auto& texts : {gathers, sums})
    for (const std::string& text : texts) check_mentions(text, {", axis 1)", ", axis 2)"});
  for (const std::string& text : swaps)
    check_mentions(text, {", axis 1 to axis 0)", ", axis 2 to axis 0)"});
}

TEST_CASE("ranks that cut equal extents into other units are told") {
  std::array<std::string, 3> messages;
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    const Place place = place_of(ranks);
    const Dim features = place.rank == 0 ? Dim{Axis::feature, 4} : Dim{Axis::feature, 2, 2};
    const Shape shape{{Axis::batch, 2}, features};
    Tensor<float, Invariant> whole(shape, place);
    messages[static_cast<std::size_t>(place.rank)] =
        message_of(ranks, Tensor<float, ByFeature>(shape, place), whole);
  });
  for (const std::string& text : messages)
    check_mentions(text, {"in counts 4 2 2", "in counts 4 4 0"});
}

TEST_CASE("the outermost axis is told from an inner one") {
  const Shape square{{Axis::batch, 4}, {Axis::feature, 4}};
  std::array<std::string, 2> messages;
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    const Place place = place_of(ranks);
    Tensor<float, Invariant> whole(square, place);
    messages[static_cast<std::size_t>(ranks.rank())] =
        ranks.rank() == 0
            ? message_of(ranks, Tensor<float, Sharded<Axis::batch>>(square, place), whole)
            : message_of(ranks, Tensor<float, ByFeature>(square, place), whole);
  });
  for (const std::string& text : messages) check_mentions(text, {"axis 1"});
}

TEST_CASE("a maximum is refused where nothing but sums is taken") {
  SingleRank alone;
  Pool pool;
  const Tensor<float, Partial> in(global);
  Tensor<float, ByFeature> part(global);
  CHECK_THROWS_WITH_AS(redistribute(alone, pool, in.view(), part.view(), Reduction::max),
                       doctest::Contains("Partial -> Sharded<feature>: max was asked for"),
                       argument_error);
  Tensor<float, Invariant> whole(global);
  redistribute(alone, pool, in.view(), whole.view(), Reduction::max);
}
