// Ranks that wait for too long: who is missing is said on standard error, each rank that waits gets
// an error, and a process whose rank never comes back ends. No case looks at a clock: each ends by
// the time-out alone.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/comm/timeout.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using testing::check_mentions;
using testing::contains;
using testing::message_of;

namespace {

/// A program in a process of its own.
class OwnProcess {
 public:
  template <class F>
  explicit OwnProcess(F program) {
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    child_ = fork();
    if (child_ == 0) {
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      close(ends[1]);
      alarm(100);  // a hang is a failure
      program();
      _exit(0);
    }
    close(ends[1]);
    errors_ = ends[0];
  }
  OwnProcess(const OwnProcess&) = delete;
  OwnProcess& operator=(const OwnProcess&) = delete;
  ~OwnProcess() { close(errors_); }

  /// It must end with the exit code of lost ranks, and say all of this on standard error.
  void check_lost(const std::vector<std::string>& lines) {
    std::string errors;
    std::array<char, 4096> piece{};
    for (ssize_t got; (got = read(errors_, piece.data(), piece.size())) > 0;)
      errors.append(piece.data(), static_cast<std::size_t>(got));
    int status = 0;
    waitpid(child_, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 70);  // as run_ranks promises
    check_mentions(errors, lines);
  }

 private:
  pid_t child_ = -1;
  int errors_ = -1;
};

[[noreturn]] void never_come_back() noexcept {
  for (;;) std::this_thread::sleep_for(1h);
}

}  // namespace

TEST_CASE("each rank that waits for too long is told who does not come, and where all wait") {
  std::array<std::string, 3> told;
  std::atomic<int> waiting = 2;
  const auto body = [&](ThreadCommunicator& c) {
    std::vector<float> data(4);
    if (c.rank() == 2) return waiting.wait(2), waiting.wait(1);
    told[static_cast<std::size_t>(c.rank())] = message_of<peer_error>(
        [&] { c.rank() == 0 ? c.barrier() : c.receive(std::span(data), 2); });
    CHECK_THROWS_AS(c.barrier(), peer_error);
    --waiting;
    waiting.notify_all();
  };
  run_ranks(3, body, {.timeout = 2s});
  const std::string all =  // whichever of the two is the first that says so
      "rank 0 waits in barrier(), collective 1 of ranks 0, 1, 2; rank "
      "1 waits in receive(float32, 4 elements, from 2, tag 0) of ranks 0, 1, 2; rank 2 waits for "
      "no "
      "rank; a rank that does not come has stopped, computes without end, or makes another call";
  CHECK(contains(told[0], "in barrier(), collective 1 of ranks 0, 1, 2: rank "));
  CHECK(
      contains(told[1], "in receive(float32, 4 elements, from 2, tag 0) of ranks 0, 1, 2: rank "));
  for (const std::string& what : {told[0], told[1]}) {
    CAPTURE(what);
    CHECK((contains(what, "rank 0 has waited 2 s for ranks 1, 2: " + all) ||
           contains(what, "rank 1 has waited 2 s for rank 2: " + all)));
  }
}

TEST_CASE("a process whose rank never comes back ends, and says which rank that is") {
  OwnProcess endless([] {
    const auto body = [](ThreadCommunicator& c) {
      c.rank() == 1 ? never_come_back() : c.barrier();
    };
    run_ranks(2, body, {.timeout = 1s});
  });
  OwnProcess reads_without_end([] {  // its peer may not leave, because its memory is being read
    const auto body = [](ThreadCommunicator& c) {
      const std::vector<float> mine(1000);
      c.read_peers(Call{}, std::span(mine), [&](std::span<const float* const>) noexcept {
        if (c.rank() == 1) never_come_back();
      });
    };
    run_ranks(2, body, {.timeout = 1s});
  });
  OwnProcess thrown([] {
    const auto body = [](ThreadCommunicator& c) {
      if (c.rank() == 0) throw std::runtime_error("the disk is full");
      never_come_back();
    };
    run_ranks(2, body, {.timeout = 1s});
  });

  endless.check_lost(
      {"shardwise: rank 0 has waited 100 ms for rank 1: rank 0 waits in barrier(), collective 1 of "
       "ranks 0, 1; rank 1 waits for no rank",
       "shardwise: rank 1 has not ended within 1 s after this: rank 0 has waited 1 s for rank 1"});
  reads_without_end.check_lost(
      {"shardwise: ranks 0, 1 have not ended within 1 s after this: rank 0 has waited 1 s for rank "
       "1"});
  thrown.check_lost(
      {"shardwise: rank 1 has not ended within 1 s after this: rank 0 threw: the disk is full; a "
       "thread cannot be ended, so the process ends with exit code 70"});
}

TEST_CASE("ranks that wait patiently have no time-out") {
  const auto body = [](ThreadCommunicator& c) {
    if (c.rank() == 0) std::this_thread::sleep_for(100ms);  // a hundred time-outs
    patiently([&] { c.barrier(); });
  };
  run_ranks(3, body, {.timeout = 1ms});
}

TEST_CASE("ranks that wait patiently are told when another one ends") {
  const auto body = [](ThreadCommunicator& c) {
    if (c.rank() == 0) throw std::runtime_error("the disk is full");
    check_mentions(message_of<peer_error>([&] { patiently([&] { c.barrier(); }); }),
                   {"rank 0 threw: the disk is full"});
  };
  CHECK_THROWS_AS(run_ranks(3, body), rank_error);
}

TEST_CASE("ranks that wait patiently for each other are told that no rank can go on") {
  const auto body = [](ThreadCommunicator& c) {
    std::array<int, 1> number{};
    patiently([&] { c.receive<int>(number, 1 - c.rank()); });
  };
  CHECK_THROWS_AS(run_ranks(2, body), collective_error);
}

TEST_CASE("SHARDWISE_TIMEOUT is the time-out of ranks that name none") {
  constexpr const char* name = "SHARDWISE_TIMEOUT";
  const char* const given = std::getenv(name);
  const std::string before = given == nullptr ? "" : given;
  unsetenv(name);
  CHECK(ThreadOptions().timeout == 10min);
  setenv(name, "3", 1);
  CHECK(ThreadOptions().timeout == 3s);
  setenv(name, "0", 1);
  CHECK(ThreadOptions().timeout == 0s);
  for (const char* wrong : {"-1", "1.5", "soon", "99999999999"}) {
    setenv(name, wrong, 1);
    CHECK_THROWS_AS(run_ranks(1, [](ThreadCommunicator&) {}), argument_error);
  }
  setenv(name, before.c_str(), 1);  // an empty one is none
}
