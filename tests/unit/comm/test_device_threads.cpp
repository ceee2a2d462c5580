// What ranks on a device do in which order: nobody touches a peer's buffers before the peer's work
// is done, nor goes on while a peer may still touch its own.

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shardwise/comm/detail/device_message.hpp"
#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "support/far.hpp"

using namespace shardwise;

namespace {

/// Far memory, and what the backend was called for: "record ready" and "record done", "wait for
/// ready" and "wait for done" of a peer, "loop".
class Logged : public testing::Far {
 public:
  using Far::Far;

  struct Event {
    explicit Event(Logged& logged)
        : owner(&logged), name(logged.events++ == 0 ? "ready" : "done") {}
    void record() { owner->log.push_back("record " + name); }

    Logged* owner;
    std::string name;
  };

  void wait_for(const Event& event) {
    CHECK(event.owner != this);
    log.push_back("wait for " + event.name);
  }

  void enable_peer_access(const Event& event) {
    CHECK(event.owner != this);
    if (is_cut_off) throw backend_error("no peer access");
    ++reached;
  }

  template <class F>
  void for_each(std::size_t n, F f) {
    log.push_back("loop");
    if (fails) throw backend_error("no loop");
    if (before_loop) before_loop();
    Far::for_each(n, f);
  }

  int events = 0;
  int reached = 0;
  bool fails = false;
  bool is_cut_off = false;
  std::function<void()> before_loop{};
  std::vector<std::string> log;
};

/// What rank 0 of three does in `call`, and a rank that joins in it.
template <class Call>
std::vector<std::string> order_of(Call call) {
  const auto memory = std::make_shared<testing::FarMemory>();
  std::vector<std::string> first;
  run_ranks(3, [&](ThreadCommunicator& threads) {
    Logged backend(memory);
    DeviceThreadCommunicator<Logged> ranks(threads, backend);
    Pool pool(backend.memory());
    const Buffer in = pool.take(30 * sizeof(float));
    const Buffer out = pool.take(30 * sizeof(float));
    call(ranks, std::span(static_cast<float*>(in.data()), 30),
         std::span(static_cast<float*>(out.data()), 30));
    if (ranks.rank() == 0) first = backend.log;
  });
  return first;
}

}  // namespace

TEST_CASE(
    "a collective begins after the peers' work and ends after what they do in one's buffers") {
  const std::vector<std::string> expected{"record ready", "wait for ready", "wait for ready",
                                          "loop",         "record done",    "wait for done",
                                          "wait for done"};
  CHECK(order_of([](auto& ranks, auto in, auto out) { ranks.all_reduce(in, out); }) == expected);
  CHECK(order_of([](auto& ranks, auto, auto out) { ranks.broadcast(out.first(7), 1); }) ==
        expected);
}

TEST_CASE("work behind a barrier begins after the work of all ranks before it") {
  CHECK(order_of([](auto& ranks, auto, auto) { ranks.barrier(); }) ==
        std::vector<std::string>{"record ready", "wait for ready", "wait for ready", "record done",
                                 "wait for done", "wait for done"});
}

TEST_CASE("a rank whose own part fails still lets the others know when it is done") {
  const auto memory = std::make_shared<testing::FarMemory>();
  run_ranks(2, [&](ThreadCommunicator& threads) {
    Logged backend(memory);
    DeviceThreadCommunicator<Logged> ranks(threads, backend);
    Pool pool(backend.memory());
    const Buffer data = pool.take(8 * sizeof(float));
    const std::span<float> numbers(static_cast<float*>(data.data()), 8);
    backend.fails = ranks.rank() == 0;
    if (backend.fails) {
      CHECK_THROWS_AS(ranks.all_reduce(numbers, numbers), backend_error);
    } else {
      ranks.all_reduce(numbers, numbers);
    }
    CHECK(backend.log == std::vector<std::string>{"record ready", "wait for ready", "loop",
                                                  "record done", "wait for done"});
  });
}

TEST_CASE("a rank reaches the memory of all its peers, in a part of them again") {
  const auto memory = std::make_shared<testing::FarMemory>();
  run_ranks(3, [&](ThreadCommunicator& threads) {
    Logged backend(memory);
    DeviceThreadCommunicator<Logged> ranks(threads, backend);
    CHECK(backend.reached == 2);
    ranks.split(ranks.rank() / 2, 0);
    CHECK(backend.reached == (ranks.rank() < 2 ? 3 : 2));
  });
}

TEST_CASE("a rank that cannot reach a peer's memory ends the job") {
  const auto memory = std::make_shared<testing::FarMemory>();
  const auto job = [&] {
    run_ranks(2, [&](ThreadCommunicator& threads) {
      Logged backend(memory);
      backend.is_cut_off = threads.rank() == 1;
      DeviceThreadCommunicator<Logged> ranks(threads, backend);
      ranks.barrier();
    });
  };
  CHECK_THROWS_AS(job(), backend_error);
}

TEST_CASE("a sender goes on behind its receiver's copy") {
  const auto log = order_of([](auto& ranks, auto in, auto) {
    if (ranks.rank() == 0) ranks.template send<float>(in, 2, 5);
    if (ranks.rank() == 2) ranks.receive(in, 0, 5);
  });
  CHECK(log == std::vector<std::string>{"record ready", "wait for done"});
}

TEST_CASE("a message is copied once, and not after it was taken back") {
  detail::Offer offer;
  int copies = 0;
  const auto copy = [&] { ++copies; };
  CHECK(!offer.take(copy));
  offer.make();
  CHECK(offer.take(copy));
  CHECK(!offer.take(copy));
  offer.make();
  CHECK(offer.take_back());
  CHECK(!offer.take(copy));
  CHECK(copies == 1);
}

TEST_CASE("a sender waits for a copy that its receiver has begun, also when another rank fails") {
  const auto memory = std::make_shared<testing::FarMemory>();
  std::vector<std::string> log;
  const auto job = [&] {
    run_ranks(3, [&](ThreadCommunicator& threads) {
      Logged backend(memory);
      DeviceThreadCommunicator<Logged> ranks(threads, backend);
      Pool pool(backend.memory());
      const Buffer data = pool.take(30 * sizeof(float));
      const std::span numbers(static_cast<float*>(data.data()), 30);
      float none = 0;
      backend.before_loop = [&] {
        threads.send<float>({&none, 1}, 2);
        CHECK_THROWS_AS(threads.receive<float>({&none, 1}, 2), error);  // all know it now
      };
      try {
        if (ranks.rank() == 0) ranks.send<float>(numbers, 1);
        if (ranks.rank() == 1) ranks.receive(numbers, 0);
        if (ranks.rank() == 2) threads.receive<float>({&none, 1}, 1);
      } catch (const error&) {
        if (ranks.rank() == 0) log = backend.log;
        throw;
      }
      if (ranks.rank() == 2) throw backend_error("the cause");
    });
  };
  CHECK_THROWS_AS(job(), error);
  CHECK(log == std::vector<std::string>{"record ready", "wait for done"});
}

TEST_CASE("a message that does not fit is an error of both sides") {
  const auto memory = std::make_shared<testing::FarMemory>();
  run_ranks(2, [&](ThreadCommunicator& threads) {
    testing::Far backend(memory);
    DeviceThreadCommunicator<testing::Far> ranks(threads, backend);
    const std::string what =
        "rank 0 called send(float32, 3 elements, to 1, tag 0), rank 1 called receive(float32, 2 "
        "elements, from 0, tag 0); dtype, elements, tag and step of a message must be the same on "
        "both sides";
    std::vector<float> none(3);
    if (ranks.rank() == 0)
      CHECK_THROWS_WITH_AS(ranks.send(std::span<const float>(none), 1), what.c_str(),
                           collective_error);
    else
      CHECK_THROWS_WITH_AS(ranks.receive(std::span(none).first(2), 0), what.c_str(),
                           collective_error);
  });
}

TEST_CASE("two ranks that send to each other are told, and may go on") {
  const auto memory = std::make_shared<testing::FarMemory>();
  run_ranks(3, [&](ThreadCommunicator& threads) {
    testing::Far backend(memory);
    DeviceThreadCommunicator<testing::Far> world(threads, backend);
    auto ranks = world.split(threads.rank() == 0, 0);  // world ranks 1 and 2 are 0 and 1
    if (threads.rank() == 0) return;
    const std::vector<float> none(3);
    const int other = 1 - ranks.rank();
    std::string what = "nothing";
    try {
      // An address whose lowest byte is not 0.
      ranks.send(std::span<const float>(none).subspan(1), other);
    } catch (const collective_error& e) {
      what = e.what();
    }
    const auto call = [](int to) {
      return "send(float32, 2 elements, to " + std::to_string(to) + ", tag 0)";
    };
    CHECK(what == "rank " + std::to_string(threads.rank()) + " called " + call(other) + ", rank " +
                      std::to_string(other + 1) + " called " + call(ranks.rank()) +
                      "; a send of memory of a device waits for its receiver, so one of two ranks "
                      "that send to each other must receive first");
    ranks.barrier();
  });
}

TEST_CASE("ranks of a device that wait for messages are told in which calls of theirs") {
  const auto memory = std::make_shared<testing::FarMemory>();
  const auto job = [&] {
    run_ranks(3, [&](ThreadCommunicator& threads) {
      testing::Far backend(memory);
      DeviceThreadCommunicator<testing::Far> ranks(threads, backend);
      const std::vector<float> none(3);
      ranks.send(std::span<const float>(none), (ranks.rank() + 1) % 3, 7);
    });
  };
  CHECK_THROWS_WITH_AS(job(),
                       doctest::Contains("rank 1 waits in send(float32, 3 elements, to 2, tag 7)"),
                       collective_error);
}

TEST_CASE("a message of another step or batch is an error of both sides") {
  const auto memory = std::make_shared<testing::FarMemory>();
  for (const bool other_step : {true, false})
    run_ranks(2, [&](ThreadCommunicator& threads) {
      testing::Far backend(memory);
      DeviceThreadCommunicator<testing::Far> ranks(threads, backend);
      const bool sends = ranks.rank() == 0;
      std::vector<float> none(3);
      std::string what = "nothing";
      try {
        const detail::MarkedPhase phase(!sends && other_step ? 4 : 3,
                                        !sends && !other_step ? std::uint16_t{1} : std::uint16_t{0},
                                        Phase::forward, {});
        sends ? ranks.send(std::span<const float>(none), 1) : ranks.receive(std::span(none), 0);
      } catch (const collective_error& e) {
        what = e.what();
      }
      CHECK(what ==
            std::string("rank 0 called send(float32, 3 elements, to 1, tag 0) at step 3, "
                        "forward, rank 1 called receive(float32, 3 elements, from 0, tag 0) "
                        "at step ") +
                (other_step ? "4" : "3, batch 1") +
                ", forward; dtype, elements, tag and step of a message must be the same "
                "on both sides");
      ranks.barrier();  // who catches it on both sides may go on
    });
}

TEST_CASE("blocks that do not meet are an error of every rank") {
  const auto memory = std::make_shared<testing::FarMemory>();
  run_ranks(2, [&](ThreadCommunicator& threads) {
    testing::Far backend(memory);
    DeviceThreadCommunicator<testing::Far> ranks(threads, backend);
    const std::vector<std::size_t> sent{0, 1};
    const std::vector<std::size_t> received{0, 0};
    const std::vector<float> in(1);
    CHECK_THROWS_AS(
        ranks.all_to_all(std::span<const float>(in), sent, std::span<float>(), received),
        collective_error);
  });
}

TEST_CASE("more ranks than a kernel takes") {
  CHECK_THROWS_WITH_AS(detail::require_few_ranks(33),
                       "DeviceThreadCommunicator: 33 ranks; a kernel takes the buffers of at most "
                       "32: use NcclCommunicator, or fewer ranks",
                       argument_error);
}
