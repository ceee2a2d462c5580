// What NcclCommunicator starts beside the rank's stream, on a stand-in for NCCL whose streams are
// threads: each waits for another one only where an event tells it to.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "nccl/ranks.hpp"
#include "nccl/stand_in.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using testing::error_of;
using testing::HostWork;
using testing::nothing_is_left;
using testing::OnStream;
using testing::run_nccl_ranks;
using testing::soon;

namespace {

/// What does not wait is done meanwhile.
void give_time_to_be_wrong() { std::this_thread::sleep_for(20ms); }

void check(bool right, const std::string& what) {
  CAPTURE(what);
  CHECK(right);
}

}  // namespace

TEST_CASE("nccl: calls read what the stream computes before, and what it does behind reads them") {
  for (const bool is_started : {false, true}) {
    run_nccl_ranks(2, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
      std::atomic<bool> computes = false;
      std::vector<float> data(8), sum(8), seen(8);
      HostWork work;
      work.put(nccl.stream(), [&] {
        soon([&] { return computes.load(); });
        data.assign(8, static_cast<float>(nccl.rank() + 1));
      });
      if (is_started) {
        const auto started = nccl.begin_all_reduce(data, std::span(sum));
      } else {
        nccl.all_reduce(data, std::span(sum));
      }
      work.put(nccl.stream(), [&] { seen = sum; });
      give_time_to_be_wrong();
      computes = true;
      cudaStreamSynchronize(nccl.stream());
      check(seen == std::vector<float>(8, 3), "sum");
      check(nccl.close(), "close");
    });
    CHECK(nothing_is_left());
  }
}

TEST_CASE("nccl: the stream runs on beside what is started, until its end") {
  for (const int ranks : {2, 3, 8}) {
    CAPTURE(ranks);
    std::atomic<int> ran_on = 0;
    run_nccl_ranks(ranks, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
      const bool is_late = nccl.rank() == ranks - 1;
      std::vector<int> data(5, nccl.rank() + 1), sum(5), seen(5),
          all(static_cast<std::size_t>(ranks)), seen_all;
      const std::vector<std::size_t> counts(all.size(), 1);
      HostWork work;
      if (is_late) check(soon([&] { return ran_on == ranks - 1; }), "the others run on");
      {
        const auto started = nccl.begin_all_reduce(data, std::span(sum));
        const auto gather = nccl.begin_all_gather(std::span(data).first(1), std::span(all), counts);
        work.put(nccl.stream(), [&] { ++ran_on; });
        if (is_late) give_time_to_be_wrong();
      }
      work.put(nccl.stream(), [&] { seen = sum, seen_all = all; });
      cudaStreamSynchronize(nccl.stream());
      check(seen == std::vector<int>(5, ranks * (ranks + 1) / 2), "sum");
      std::vector<int> in_order(all.size());
      std::iota(in_order.begin(), in_order.end(), 1);
      check(seen_all == in_order, "gather");
    });
    CHECK(nothing_is_left());
  }
}

TEST_CASE("nccl: an exception leaves nothing that is still written to") {
  run_nccl_ranks(2, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    std::vector<int> data(5, 1), sum(5);
    HostWork work;
    if (nccl.rank() == 1) threads.barrier();
    CHECK_THROWS_AS(
        [&] {
          const auto started = nccl.begin_all_reduce(data, std::span(sum));
          throw std::runtime_error("between");
        }(),
        std::runtime_error);
    work.put(nccl.stream(), [&] { sum.assign(5, -1); });  // the memory is somebody else's now
    if (nccl.rank() == 0) give_time_to_be_wrong();
    if (nccl.rank() == 0) threads.barrier();
    nccl.wait();
    cudaStreamSynchronize(nccl.stream());
    check(sum == std::vector<int>(5, -1), "memory");
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: calls of all groups run one after another") {
  stand_in::some_at_once = false;
  run_nccl_ranks(2, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    NcclCommunicator part = nccl.split(0, -nccl.rank());
    const OnStream backend{nccl.stream()};
    std::vector<int> one(3, 1), two(3, 2), data(3, 1), sum(3), third(3);
    CudaGraph graph(backend, [&] { part.all_reduce(one, std::span(third)); });
    if (nccl.rank() == 1) threads.barrier();
    {
      const auto first = nccl.begin_all_reduce(one, std::span(sum));
      part.all_reduce(data, std::span(data));  // behind the first one, which has not ended
      const auto second = part.begin_all_reduce(two, std::span(two));
      const auto third_of_all = nccl.begin_all_reduce(one, std::span(one));
      part.launch_recorded([&] { graph.launch(); });
    }
    if (nccl.rank() == 0) {
      give_time_to_be_wrong();
      threads.barrier();
    }
    cudaStreamSynchronize(nccl.stream());
    check(sum == std::vector<int>(3, 2) && data == sum && one == sum, "sums");
    check(two == std::vector<int>(3, 4) && third == two, "sums of sums");
    check(part.close() && nccl.close(), "close");
  });
  CHECK(!stand_in::some_at_once);
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: what is started and never met ends by the time-out, and the stream goes on") {
  run_nccl_ranks(2, 200ms, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    nccl.barrier();
    if (nccl.rank() == 0) {
      std::vector<float> data(8);
      {
        const auto started = nccl.begin_all_reduce(data, std::span(data));
        CHECK(error_of([&] { nccl.wait(); })
                  .starts_with("peer_error: rank 0: all_reduce(sum, float32, 8 elements), call 2 "
                               "of its group, was not done within 200 ms"));
        CHECK(error_of([&] {
                nccl.barrier();
              }).starts_with("peer_error: rank 0: barrier() comes too late: all_reduce(sum"));
      }
      CHECK(error_of([&] { const auto started = nccl.begin_all_reduce(data, std::span(data)); })
                .starts_with("peer_error: rank 0: all_reduce(sum, float32, 8 elements) comes too "
                             "late: all_reduce(sum"));
      cudaStreamSynchronize(nccl.stream());
    }
    threads.barrier();
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: what cannot be started throws, and what is started may outlive its group") {
  run_nccl_ranks(1, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    std::vector<float> data(8);
    stand_in::next_result = ncclInternalError;
    CHECK(error_of([&] { const auto started = nccl.begin_all_reduce(data, std::span(data)); })
              .starts_with("backend_error: rank 0: all_reduce(sum, float32, 8 elements), call 1 of "
                           "its group: NCCL: a call failed with code 3"));
    cudaStreamSynchronize(nccl.stream());
  });
  CHECK(nothing_is_left());
  run_nccl_ranks(1, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    std::vector<float> data(8);
    const auto started = nccl.begin_all_reduce(data, std::span(data));
    CHECK(nccl.close());
    CHECK(error_of([&] { nccl.rank(); }) != "");
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: starting makes no event and no stream after the first calls") {
  run_nccl_ranks(1, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    std::vector<float> data(8);
    nccl.barrier();
    const int events = stand_in::events;
    const int alive = stand_in::alive;
    for (int i = 0; i < 100; ++i) {
      { const auto started = nccl.begin_all_reduce(data, std::span(data)); }
      nccl.wait();
    }
    CHECK(stand_in::events == events);
    CHECK(stand_in::alive == alive);
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: what is started in a recording is done at each launch") {
  run_nccl_ranks(3, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    std::vector<int> given(4), data(4), sum(4), more(4), all(4), seen(4);
    const OnStream backend{nccl.stream()};
    HostWork work;
    threads.barrier();
    const int events = stand_in::events;
    CudaGraph graph(backend, [&] {
      work.put(nccl.stream(), [&] { data = given; });
      {
        const auto started = nccl.begin_all_reduce(data, std::span(sum));
        work.put(nccl.stream(), [&] { more.assign(4, nccl.rank()); });
      }
      { const auto started = nccl.begin_all_reduce(more, std::span(more)); }
      nccl.all_reduce(sum, std::span(all));
      work.put(nccl.stream(), [&] {
        seen = more;
        for (std::size_t i = 0; i < 4; ++i) seen[i] += 100 * sum[i] + 10000 * all[i];
      });
    });
    check(stand_in::events == events, "no events");
    threads.barrier();
    check(sum == std::vector<int>(4), "nothing is done while recording");
    for (int launch = 1; launch <= 3; ++launch) {
      given.assign(4, launch);
      nccl.launch_recorded([&] { graph.launch(); });
      nccl.wait();
      cudaStreamSynchronize(nccl.stream());
      check(seen == std::vector<int>(4, 3 + 300 * launch + 90000 * launch), "launch");
    }
    check(nccl.close(), "close");
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: a recording in which nothing that was started has ended is none") {
  run_nccl_ranks(1, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    std::vector<int> data(4);
    const OnStream backend{nccl.stream()};
    std::optional<detail::nccl::UnderWay> started;
    CHECK(error_of([&] {
            CudaGraph(backend,
                      [&] { started.emplace(nccl.begin_all_reduce(data, std::span(data))); });
          }) != "");
    started.reset();
    nccl.all_reduce(data, std::span(data));
    CHECK(nccl.close());
  });
  CHECK(nothing_is_left());
}
