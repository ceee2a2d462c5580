// The laws of redistribution on communicators of somebody else's: a right one passes, and a wrong
// one is told which redistributions it breaks.

#include <doctest/doctest.h>

#include <concepts>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/testing/laws.hpp"
#include "support/plain_communicator.hpp"

using namespace shardwise;

namespace {

using Plain = testing::PlainCommunicator<ThreadCommunicator>;
using Batch = Sharded<Axis::batch>;

const std::vector<Shape> shapes{
    {{Axis::batch, 3}, {Axis::sequence, 2}, {Axis::feature, 5}},
    {{Axis::feature, 4}, {Axis::batch, 0}, {Axis::sequence, 3}},
};

/// Its sums of doubles lack what the last rank has.
struct ForgetsLast : Plain {
  explicit ForgetsLast(Plain right) : Plain(std::move(right)) {}

  template <Element T>
  void all_reduce(std::type_identity_t<std::span<const T>> in, std::span<T> out,
                  shardwise::Reduction reduction = shardwise::Reduction::sum) {
    std::vector<T> mine(in.begin(), in.end());
    if (std::same_as<T, double> && rank() + 1 == size()) mine.assign(in.size(), T{});
    Plain::all_reduce(std::span<const T>(mine), out, reduction);
  }
  ForgetsLast split(int color, int key) { return ForgetsLast(Plain::split(color, key)); }
};

/// The report of the first of three ranks; all get the same.
template <class Check>
CheckReport on_three(Check check) {
  std::vector<CheckReport> reports(3);
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    reports[static_cast<std::size_t>(ranks.rank())] = check(ranks);
  });
  for (const CheckReport& report : reports) CHECK(report.failures == reports[0].failures);
  return reports[0];
}

}  // namespace

TEST_CASE("a right communicator passes, on every pair of layouts or on one") {
  const CheckReport all =
      on_three([](ThreadCommunicator& ranks) { return check_all_redistributions(ranks, shapes); });
  CHECK_MESSAGE(all.passed(), all.text());
  CHECK(all.checked == 35 * shapes.size());
  const CheckReport one = on_three([](ThreadCommunicator& ranks) {
    return check_redistribution<Partial, Batch, bf16>(ranks, shapes);
  });
  CHECK_MESSAGE(one.passed(), one.text());
  CHECK(one.checked == shapes.size());
}

TEST_CASE("a sum that lacks a rank breaks the laws where something is summed, and nowhere else") {
  const auto check = [](auto pair) {
    return on_three([&](ThreadCommunicator& ranks) {
      ForgetsLast wrong{Plain(ranks)};
      return pair(wrong);
    });
  };
  const CheckReport sum =
      check([](auto& c) { return check_redistribution<Partial, Invariant, double>(c, shapes); });
  CHECK_FALSE(sum.passed());
  CHECK(sum.text().find("Partial -> Invariant on [batch 3, sequence 2, feature 5], 3 ranks, "
                        "float64, breaks the law: adjoint: <R x, y> is ") == 0);
  CHECK(sum.text().find("breaks the law: value") != std::string::npos);
  const CheckReport adjoint =
      check([](auto& c) { return check_redistribution<Invariant, Replicated, double>(c, shapes); });
  CHECK(adjoint.text().find("breaks the law: value of the adjoint") != std::string::npos);
  const CheckReport gather =
      check([](auto& c) { return check_redistribution<Batch, Invariant, double>(c, shapes); });
  CHECK_MESSAGE(gather.passed(), gather.text());
}

TEST_CASE("summands are other integers on each rank, and the rest on the first one") {
  const Shape shape{{Axis::feature, 4}};
  const detail::oracle::Values value = detail::oracle::small_integers(1, 4);
  const detail::oracle::PerRank parts =
      detail::oracle::lay_out(detail::oracle::meaning_of<Partial>(), shape, 3, value, 1000);
  for (const std::size_t rank : {std::size_t{1}, std::size_t{2}})
    CHECK(parts[rank] == detail::oracle::small_integers(1000 + rank, 4));
  for (std::size_t i = 0; i < 4; ++i) CHECK(parts[0][i] == value[i] - parts[1][i] - parts[2][i]);
}

TEST_CASE("each law is broken by a result that is wrong in one number") {
  const Shape shape{{Axis::batch, 3}, {Axis::feature, 2}};
  const auto right = [&] {
    detail::oracle::Trial trial = detail::oracle::trial_of(
        detail::oracle::pair_of<Partial, Invariant, float, ThreadCommunicator>(), shape, 3);
    trial.rx = detail::oracle::lay_out(trial.to, shape, 3, trial.value);
    trial.ry = detail::oracle::lay_out(trial.dual_from, shape, 3, trial.gradient);
    trial.x_after = trial.back = trial.x;
    trial.in_place = trial.rx;
    return trial;
  };
  CHECK(detail::oracle::broken_laws(right()).empty());
  using Laws = std::vector<std::string>;
  const auto broken_by = [&](auto change) {
    detail::oracle::Trial trial = right();
    change(trial);
    return detail::oracle::broken_laws(trial);
  };
  CHECK(broken_by([](auto& t) { t.rx[1][5] += 1, t.in_place[1][5] += 1; }) == Laws{"value"});
  CHECK(broken_by([](auto& t) { t.x_after[2][0] += 1; }) == Laws{"input"});
  CHECK(broken_by([](auto& t) { t.back[0][1] += 1; }) == Laws{"round trip"});
  CHECK(broken_by([](auto& t) { t.has_reverse = false, t.back[0][1] += 1; }).empty());
  CHECK(broken_by([](auto& t) { t.in_place[2][3] += 1; }) == Laws{"in place"});
  CHECK(broken_by([](auto& t) { t.may_share_memory = false, t.in_place[2][3] += 1; }).empty());
  CHECK(broken_by([](auto& t) { t.as_declared[1] = 0; }) == Laws{"calls"});
  CHECK(broken_by([](auto& t) { t.ry[1].pop_back(); }).size() == 2);
  const Laws sum = broken_by([](auto& t) { t.rx[0][0] += 1, t.in_place[0][0] += 1; });
  REQUIRE(sum.size() == 2);
  CHECK(sum[0].starts_with("adjoint: <R x, y> is "));
  CHECK(sum[1] == "value");
  const Laws adjoint = broken_by([](auto& t) { t.ry[0][0] += 1; });
  REQUIRE(adjoint.size() == 2);
  CHECK(adjoint[1] == "value of the adjoint");
}

TEST_CASE("a redistribution makes the one call that it declares") {
  SingleRank alone;
  CountingCommunicator<SingleRank> ranks(alone);
  const auto sums = detail::oracle::pair_of<Partial, Invariant, float, decltype(ranks)>();
  const auto slices = detail::oracle::pair_of<Invariant, Batch, float, decltype(ranks)>();
  std::vector<float> six(6);
  std::vector<double> doubles(6);
  CHECK_FALSE(detail::oracle::calls_as_declared(sums, ranks, 6));
  CHECK(detail::oracle::calls_as_declared(slices, ranks, 6));
  ranks.all_reduce<float>(six, six);
  CHECK(detail::oracle::calls_as_declared(sums, ranks, 6));
  CHECK_FALSE(detail::oracle::calls_as_declared(sums, ranks, 7));
  CHECK_FALSE(detail::oracle::calls_as_declared(slices, ranks, 6));
  ranks.all_reduce<float>(six, six);
  CHECK_FALSE(detail::oracle::calls_as_declared(sums, ranks, 6));
  ranks.clear();
  ranks.all_reduce<double>(doubles, doubles);
  CHECK_FALSE(detail::oracle::calls_as_declared(sums, ranks, 6));
}
