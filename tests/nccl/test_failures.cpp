// How groups of NcclCommunicator fail and end, on a stand-in for NCCL.

#include <doctest/doctest.h>

#include <chrono>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "nccl/ranks.hpp"
#include "nccl/stand_in.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using testing::check_mentions;
using testing::error_of;
using testing::nothing_is_left;
using testing::OnStream;
using testing::run_nccl_ranks;
using testing::soon;
using testing::Stream;

TEST_CASE("nccl: a rank that stays away ends the others by the time-out, with all that they need") {
  const int aborted = stand_in::aborted;
  const auto began = std::chrono::steady_clock::now();
  run_nccl_ranks(3, 200ms, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    std::vector<float> data(64, 1.0F);
    nccl.all_reduce(data, std::span(data));
    nccl.wait();
    if (nccl.rank() != 1) {
      std::vector<float> out(3);
      nccl.all_gather(std::span<const float>(data).first(1), std::span(out),
                      std::vector<std::size_t>{1, 1, 1});
      const std::string reason =
          "all_gather(float32, 3 elements), call 2 of its group, was not done within 200 ms: "
          "another rank has left, has made another call, or takes longer than that. The "
          "communicator was aborted";
      const std::string place = "peer_error: rank " + std::to_string(nccl.rank()) + ": ";
      CHECK(error_of([&] { nccl.wait(); }) == place + reason);
      CHECK(error_of([&] { nccl.check(); }) == place + reason);
      CHECK(error_of([&] { nccl.broadcast(std::span(data), 0); }) ==
            place + "broadcast(float32, 64 elements, root 0) comes too late: " + reason);
      CHECK(error_of([&] { nccl.barrier(); }) == place + "barrier() comes too late: " + reason);
      CHECK(error_of([&] { nccl.split(0, 0); }) == place + "split() comes too late: " + reason);
      CHECK(error_of([&] { nccl.close(); }) == place + reason);
    }
    threads.barrier();
  });
  CHECK(std::chrono::steady_clock::now() - began < 5s);
  CHECK(nothing_is_left());
  CHECK(stand_in::aborted - aborted == 2);
}

TEST_CASE("nccl: two ranks that both send before they receive end by the time-out") {
  run_nccl_ranks(2, 200ms, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    std::vector<float> data(2);
    const auto meet = [&] {
      nccl.send(std::span<const float>(data), 1 - nccl.rank());
      nccl.receive(std::span(data), 1 - nccl.rank());
      nccl.wait();
    };
    check_mentions(error_of(meet), {"was not done within 200 ms"});
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: an abort reaches the groups made by split, and the group that they were made of") {
  run_nccl_ranks(4, 200ms, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    NcclCommunicator part = nccl.split(nccl.rank() / 2, 0);
    NcclCommunicator other = nccl.split(0, 0);
    part.barrier();
    if (nccl.rank() == 0) {
      std::vector<float> data(2);
      part.broadcast(std::span(data), 1);  // its rank 1 does not call
      check_mentions(error_of([&] { part.wait(); }),
                     {"broadcast(float32, 2 elements, root 1), call 2"});
      check_mentions(error_of([&] { other.barrier(); }),
                     {"broadcast(float32, 2 elements, root 1)"});
      check_mentions(error_of([&] { nccl.barrier(); }), {"broadcast(float32, 2 elements, root 1)"});
    }
    threads.barrier();
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: what NCCL reports later, and what it refuses at once") {
  const struct {
    ncclResult_t code;
    const char* type;
  } cases[] = {{ncclRemoteError, "peer_error: "}, {ncclSystemError, "backend_error: "}};
  for (const auto& one : cases) {
    run_nccl_ranks(1, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
      stand_in::next_async_error = one.code;
      std::string text;
      soon([&] { return !(text = error_of([&] { nccl.check(); })).empty(); });
      check_mentions(text, {one.type, "rank 0: NCCL: ", "words of the stand-in. its last error"});
    });
    CHECK(nothing_is_left());
  }
  run_nccl_ranks(1, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    std::vector<float> data(8);
    stand_in::next_result = ncclInternalError;
    const std::string text = error_of([&] { nccl.all_reduce(data, std::span(data)); });
    check_mentions(text,
                   {"backend_error: rank 0: all_reduce(sum, float32, 8 elements), call 1 of its "
                    "group: NCCL: a call failed with code 3: words of the stand-in"});
    check_mentions(error_of([&] { nccl.barrier(); }), {"barrier() comes too late: all_reduce(sum"});
  });
  CHECK(nothing_is_left());
  run_nccl_ranks(1, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    stand_in::device_is_broken = true;
    check_mentions(error_of([&] { nccl.barrier(); }),
                   {"backend_error: rank 0: barrier(), call 1 of its "
                    "group: CUDA: cudaEventQuery: cudaErrorOfStandIn"});
    stand_in::device_is_broken = false;
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: the destructor waits for nothing") {
  run_nccl_ranks(2, 2s, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    if (nccl.rank() == 0) {
      std::vector<float> data(1);
      NcclCommunicator part = nccl.split(0, 0);
      auto began = std::chrono::steady_clock::now();
      {
        const NcclCommunicator last = std::move(part);
        nccl.all_reduce(data, std::span(data));  // rank 1 does not
        began = std::chrono::steady_clock::now();
      }
      CHECK(std::chrono::steady_clock::now() - began < 1s);  // and not the 2 s of the time-out
      CHECK(error_of([&] { nccl.wait(); }) != "");
    } else {
      const NcclCommunicator part = nccl.split(0, 0);
    }
    threads.barrier();
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: without close, groups whose calls are done end by themselves, in order") {
  const int aborted = stand_in::aborted;
  const int destroyed = stand_in::destroyed;
  run_nccl_ranks(2, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) { nccl.barrier(); });
  CHECK(nothing_is_left());
  CHECK(stand_in::aborted == aborted);
  CHECK(stand_in::destroyed - destroyed == 2);
}

TEST_CASE("nccl: an end that does not come in time is given up, and close says so") {
  const int aborted = stand_in::aborted;
  run_nccl_ranks(1, 200ms, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    nccl.barrier();
    stand_in::progress_turns = std::numeric_limits<int>::max();
    CHECK(!nccl.close());
    stand_in::progress_turns = 0;
  });
  CHECK(nothing_is_left());
  CHECK(stand_in::aborted - aborted == 1);
}

TEST_CASE("nccl: used after abort and after close") {
  run_nccl_ranks(1, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    NcclCommunicator copy = nccl;
    nccl.abort();
    check_mentions(error_of([&] { copy.barrier(); }),
                   {"peer_error: rank 0: barrier() comes too late: abort() was called on it"});
  });
  run_nccl_ranks(1, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    NcclCommunicator copy = nccl;
    CHECK(nccl.close());
    CHECK(error_of([&] { copy.barrier(); }) ==
          "argument_error: NCCL: a communicator was used after close(); make a new one");
    CHECK(error_of([&] { nccl.rank(); }) != "");
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: a communicator of the caller's is used and not ended") {
  const Stream stream;
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  {
    NcclCommunicator nccl(comm, stream.get());
    CHECK(nccl.size() == 1);
    std::vector<float> data{4.0F};
    nccl.all_reduce(data, std::span(data));
    NcclCommunicator part = nccl.split(0, 0);
    CHECK(part.close());
    CHECK(nccl.close());
  }
  CHECK(stand_in::alive == 2);  // the stream, and what is the caller's
  ncclCommDestroy(comm);
  CHECK(error_of([&] { NcclCommunicator(nullptr, stream.get()); }) ==
        "argument_error: NcclCommunicator: the ncclComm_t is null; give one that was made");
}

TEST_CASE("nccl: captured calls are not watched, all others reuse their events") {
  run_nccl_ranks(1, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    std::vector<float> data(8);
    nccl.barrier();
    const int events = stand_in::events;
    for (int i = 0; i < 100; ++i) {
      nccl.all_reduce(data, std::span(data));
      nccl.wait();
    }
    CHECK(stand_in::events == events);
    const OnStream backend{nccl.stream()};
    const auto sums = [&] {
      for (int i = 0; i < 10; ++i) nccl.all_reduce(data, std::span(data));
    };
    CudaGraph graph(backend, sums);
    CHECK(stand_in::events == events);
    graph.launch();
    cudaStreamSynchronize(nccl.stream());
    nccl.abort();
    check_mentions(error_of([&] { CudaGraph(backend, sums); }), {"comes too late"});
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: launches of captured calls are watched") {
  run_nccl_ranks(2, 200ms, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    nccl.barrier();
    if (nccl.rank() == 0) {
      CHECK(error_of([&] { nccl.launch_recorded([] { throw argument_error("not launched"); }); }) ==
            "argument_error: not launched");
      nccl.wait();
      std::vector<float> data(8);
      const OnStream backend{nccl.stream()};
      CudaGraph graph(backend, [&] { nccl.all_reduce(data, std::span(data)); });
      nccl.launch_recorded([&] { graph.launch(); });  // rank 1 does not
      check_mentions(
          error_of([&] { nccl.wait(); }),
          {"peer_error: rank 0: recorded(), call 3 of its group, was not done within 200 ms"});
      check_mentions(error_of([&] { nccl.launch_recorded([] {}); }),
                     {"recorded() comes too late: "});
    }
    threads.barrier();
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: at communicating, calls that differ or are left out are told to every rank") {
  shardwise::run_ranks(3, [&](ThreadCommunicator& threads) {
    const Stream stream;
    NcclCommunicator nccl(threads, {threads.rank(), stream.get(), 20s, CheckLevel::communicating});
    CHECK(nccl.compares_calls());
    std::vector<float> data(4, 1.0F);
    const auto sum = [&] { nccl.all_reduce(data, std::span(data)); };
    const auto told = [&](auto&& call) {
      try {
        call();
        return std::string("nothing was thrown");
      } catch (const collective_error& e) {
        return std::string(e.what());
      }
    };
    sum();
    check_mentions(told([&] { nccl.rank() == 1 ? nccl.barrier() : sum(); }),
                   {"ranks disagree in collective 2 of their group of 3: ranks 0, 2 called "
                    "all_reduce(sum, float32, 4 elements); rank 1 called barrier(); all must"});
    {
      const bool leaves_out = nccl.rank() == 2;
      const shardwise::detail::MarkedPhase phase(leaves_out ? 12 : 11, 0, Phase::backward, {});
      const shardwise::detail::MarkedPart part({3, [] { return std::string("Product"); }, false});
      check_mentions(told(sum),
                     {"rank 2 is at step 12, the others at step 11: it left out 3: Product, "
                      "backward; all must"});
    }
    {
      const std::vector<std::size_t> even{1, 1, 1}, uneven{2, 0, 1};
      std::vector<float> blocks(3);
      const auto& sent = nccl.rank() == 2 ? uneven : even;
      const auto exchange = [&](std::span<const std::size_t> counts) {
        nccl.all_to_all(std::span<const float>(data).first(3), counts, std::span(blocks), even);
      };
      check_mentions(told([&] { exchange(sent); }),
                     {"ranks disagree in all_to_all: rank 2 sends 2 elements to rank 0, which "
                      "called it to receive 1 from there"});
      exchange(even);
      nccl.wait();
    }
    NcclCommunicator part = nccl.split(nccl.rank() > 0, 0);
    CHECK(part.compares_calls());
    check_mentions(
        told([&] { nccl.rank() == 2 ? void(part.split(0, 0)) : part.barrier(); }),
        {nccl.rank() == 0 ? "nothing was thrown"
                          : "group of 2: rank 1 called barrier(); rank 2 called split()"});
    sum();
    nccl.wait();
    CHECK(data[0] == 9.0F);
    CHECK(part.close());
    CHECK(nccl.close());
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: the time-out says where in its model a rank waits") {
  run_nccl_ranks(2, 200ms, [&](NcclCommunicator& nccl, ThreadCommunicator& threads) {
    std::vector<float> data(4);
    if (nccl.rank() == 0) {
      const shardwise::detail::MarkedPhase phase(12, 0, Phase::backward, {});
      nccl.all_reduce(data, std::span(data));
      check_mentions(
          error_of([&] { nccl.wait(); }),
          {"all_reduce(sum, float32, 4 elements) at step 12, backward, call 1 of its group, "
           "was not done within"});
    }
    threads.barrier();
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: ranks with different levels of checks do not wait for each other") {
  shardwise::run_ranks(3, [&](ThreadCommunicator& threads) {
    const Stream stream;
    const NcclOptions options{threads.rank(), stream.get(), 20s,
                              threads.rank() == 1 ? CheckLevel::communicating : CheckLevel::local};
    const std::string what = error_of([&] { const NcclCommunicator nccl(threads, options); });
    check_mentions(what,
                   {"ranks disagree on the level of checks: ranks 0, 2 have local of the program, "
                    "rank 1 has communicating of the program; give SHARDWISE_CHECKS to",
                    "or the same level to all ranks in the program"});
  });
}

TEST_CASE("nccl: ranks that meet by an id agree on the level of checks") {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  shardwise::run_ranks(2, [&](ThreadCommunicator& threads) {
    const Stream stream;
    const NcclOptions options{threads.rank(), stream.get(), 20s,
                              threads.rank() == 1 ? CheckLevel::communicating : CheckLevel::local};
    check_mentions(
        error_of([&] { const NcclCommunicator nccl(id, threads.rank(), 2, options); }),
        {"ranks disagree on the level of checks: rank 0 has local of the program, rank 1 has "
         "communicating of the program;"});
  });
  CHECK(nothing_is_left());
}
