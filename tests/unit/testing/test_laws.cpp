// The laws of redistribution on communicators of somebody else's: a right one passes, and a wrong
// one is told which redistributions it breaks.

#include <doctest/doctest.h>

#include <concepts>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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
