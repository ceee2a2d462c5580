// The thread around wards: it looks at each, gives all up together, destroys them itself, and
// nobody waits for it. Run it under ThreadSanitizer.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/comm/detail/ring.hpp"
#include "shardwise/comm/detail/watchdog.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using detail::Look;

namespace {

/// What a test tells its ward and learns of it.
struct Wire {
  std::atomic<Look> say{Look::stays};
  std::atomic<int> looks{0};
  std::atomic<int> aborts{0};
  std::atomic<bool> is_destroyed{false};
  std::atomic<bool> aborts_slowly{false};
  std::thread::id destroyed_by;
  std::string failed_because;
};

class Ward {
 public:
  explicit Ward(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
  ~Ward() {
    wire_->destroyed_by = std::this_thread::get_id();
    wire_->is_destroyed = true;
  }

  Look look(std::chrono::steady_clock::time_point) {
    ++wire_->looks;
    return wire_->say;
  }
  std::string reason() const { return "its reason"; }
  void fail(const std::string& why) { wire_->failed_because = why; }
  static void abort(std::span<const std::unique_ptr<Ward>> all) {
    for (const auto& ward : all) {
      if (ward->wire_->aborts_slowly) std::this_thread::sleep_for(500ms);
      ++ward->wire_->aborts;
      ward->wire_->say = Look::gone;
    }
  }

 private:
  std::shared_ptr<Wire> wire_;
};

using Watchdog = detail::Watchdog<Ward>;

template <class F>
bool soon(F&& f) {
  for (int i = 0; i < 2000; ++i) {
    if (f()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

}  // namespace

TEST_CASE("watchdog: looks, lets go what is gone, and destroys it in its own thread") {
  Watchdog watchdog(1ms);
  const auto wire = std::make_shared<Wire>();
  const Ward* const ward = watchdog.add(std::make_unique<Ward>(wire));
  CHECK(soon([&] { return wire->looks > 2; }));
  CHECK(!watchdog.wait_until_gone(ward, 5ms));
  CHECK(!wire->is_destroyed);
  wire->say = Look::gone;
  CHECK(watchdog.wait_until_gone(ward, 5s));
  CHECK(wire->is_destroyed);
  CHECK(wire->destroyed_by != std::this_thread::get_id());
  CHECK(wire->aborts == 0);
}

TEST_CASE("watchdog: one failure gives up all wards, once, with its reason") {
  Watchdog watchdog(1ms);
  std::vector<std::shared_ptr<Wire>> wires;
  std::vector<const Ward*> wards;
  for (int i = 0; i < 3; ++i) {
    wires.push_back(std::make_shared<Wire>());
    wards.push_back(watchdog.add(std::make_unique<Ward>(wires.back())));
  }
  wires[1]->say = Look::failed;
  for (const Ward* ward : wards) CHECK(watchdog.wait_until_gone(ward, 5s));
  for (const auto& wire : wires) {
    CHECK(wire->aborts == 1);
    CHECK(wire->failed_because == "its reason");
  }
}

TEST_CASE("watchdog: wake looks at once, and wards may come and go, and come again") {
  Watchdog watchdog(1h);
  for (int round = 0; round < 50; ++round) {
    const auto wire = std::make_shared<Wire>();
    const Ward* const ward = watchdog.add(std::make_unique<Ward>(wire));
    wire->say = Look::gone;
    watchdog.wake();
    CHECK(watchdog.wait_until_gone(ward, 5s));
  }
}

TEST_CASE("watchdog: nobody waits for an abort that takes its time, nor for the thread") {
  const auto wire = std::make_shared<Wire>();
  wire->aborts_slowly = true;
  wire->say = Look::failed;
  const auto began = std::chrono::steady_clock::now();
  {
    Watchdog watchdog(1ms);
    watchdog.add(std::make_unique<Ward>(wire));
    CHECK(soon([&] { return wire->looks > 0; }));
    watchdog.wake();
  }
  CHECK(std::chrono::steady_clock::now() - began < 400ms);
  CHECK(soon([&] { return wire->is_destroyed.load(); }));
}

TEST_CASE("watchdog: wards added from several threads are all looked at") {
  Watchdog watchdog(1ms);
  std::vector<std::shared_ptr<Wire>> wires;
  for (int i = 0; i < 8; ++i) wires.push_back(std::make_shared<Wire>());
  std::vector<std::thread> threads;
  for (const auto& wire : wires)
    threads.emplace_back([&watchdog, wire] {
      const Ward* const ward = watchdog.add(std::make_unique<Ward>(wire));
      wire->say = Look::gone;
      watchdog.wake();
      watchdog.wait_until_gone(ward, 5s);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& wire : wires) CHECK(wire->is_destroyed);
}

TEST_CASE("ring: first in, first out, growing in any state") {
  detail::Ring<int> ring;
  int in = 0;
  int out = 0;
  for (int round = 1; round < 40; ++round) {
    for (int i = 0; i < round; ++i) ring.push(in++);
    CHECK(ring.back() == in - 1);
    for (int i = 0; i < round - 1; ++i) CHECK(ring.pop() == out++);
    CHECK(ring.front() == out);
  }
  CHECK(ring.size() == static_cast<std::size_t>(in - out));
}
