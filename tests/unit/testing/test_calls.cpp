// What all ranks of a mesh pass into planned collectives, by hand, and differences from a plan.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/testing/calls.hpp"
#include "shardwise/testing/many_against_one.hpp"
#include "support/plain_communicator.hpp"

using namespace shardwise;

namespace {

using Peers = ThreadCommunicator;
using Plain = testing::PlainCommunicator<ThreadCommunicator>;

// Three taps over 5 rows of 6 elements: of two ranks the first reads rows 0 to 3, the other 2 to 4.
constexpr Collective halo{.operation = Operation::halo_exchange,
                          .elements = 30,
                          .dtype = Dtype::float64,
                          .halo = {{.kernel = 3, .before = 1, .after = 1}, 5}};
constexpr Collective sum{.elements = 30};
constexpr mesh six{.data = 3, .tensor = 2};

CountedCall call(Operation operation, std::size_t elements, Dtype dtype = Dtype::float64) {
  return {operation, dtype, elements};
}

}  // namespace

TEST_CASE("ranks that cannot read each other's memory send halos by all-to-all") {
  Collective back = halo;
  back.operation = Operation::halo_sum;
  CHECK(planned_call<Plain>(halo, 2) == call(Operation::all_to_all, 42));
  CHECK(planned_call<Plain>(back, 2) == call(Operation::all_to_all, 42));
  CHECK(planned_call<Peers>(halo, 2) == call(Operation::halo_exchange, 30));
  CHECK(planned_call<Peers>(back, 2) == call(Operation::halo_sum, 42));
  Collective none = halo;
  none.halo.units = none.elements = 0;
  CHECK(planned_call<Plain>(none, 2) == call(Operation::all_to_all, 0));
}

TEST_CASE("on a mesh each group of ranks that has a copy makes the call") {
  CHECK(planned_call<Plain>(halo, six) == call(Operation::all_to_all, 3 * 42));
  CHECK(planned_call<Peers>(halo, six) == call(Operation::halo_exchange, 3 * 30));
  CHECK(planned_call<Plain>(halo.split_over(MeshAxis::data), six) ==
        call(Operation::all_to_all, 42));
  CHECK(planned_call<Plain>(sum, six) == call(Operation::all_reduce, 3 * 2 * 30, Dtype::float32));
  const CollectiveList both{sum, sum.over(MeshAxis::data), halo};
  const std::vector<CountedCall> along = planned_calls<Plain>(both, six, MeshAxis::tensor);
  REQUIRE(along.size() == 2);
  CHECK(along[0] == planned_call<Plain>(sum, six));
  CHECK(along[1] == planned_call<Plain>(halo, six));
  CHECK(planned_calls<Plain>(both, six, MeshAxis::data) ==
        std::vector{call(Operation::all_reduce, 2 * 3 * 30, Dtype::float32)});
  CHECK(planned_calls<Plain>(both, 2).size() == 3);
}

TEST_CASE("the first difference between calls and plan is told") {
  const CountedCall a = call(Operation::all_reduce, 4), b = call(Operation::all_gather, 4);
  const std::vector<CountedCall> ab{a, b}, aa{a, a}, only{a};
  CHECK(difference_from_plan("forward", ab, ab) == "");
  CHECK(difference_from_plan("forward", {}, {}) == "");
  const auto differs = [](const std::string& counted, const std::string& planned) {
    return "forward: collective 1 is " + counted + ", and planned is " + planned +
           " (elements that all ranks pass in)";
  };
  const std::string gather = "all_gather(4 x float64)", reduce = "all_reduce(4 x float64)";
  CHECK(difference_from_plan("forward", ab, aa) == differs(reduce, gather));
  CHECK(difference_from_plan("forward", ab, only) == differs("nothing more", gather));
  CHECK(difference_from_plan("forward", only, ab) == differs(gather, "nothing more"));
}

TEST_CASE("a call of ranks of several axes together is no plan's") {
  run_ranks(4, [](ThreadCommunicator& all) {
    MeshRanks counted(CountingCommunicator<ThreadCommunicator>(all), {.data = 2, .tensor = 2});
    detail::ManyAgainstOne found(all, counted, "Net");
    std::array<double, 1> number{1};
    found.counted().broadcast(std::span<double>(number), 0);
    found.compare_calls("forward", {});
    found.compare_calls("backward", {});
    CHECK(found.report().failures ==
          std::vector<std::string>{
              "Net: forward: it calls ranks of several axes together, as no plan does"});
  });
}
