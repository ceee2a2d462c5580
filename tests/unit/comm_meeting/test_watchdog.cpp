// The thread that polls watched objects: it aborts all together, destroys them itself, and no other
// thread waits for it. Run it under ThreadSanitizer.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/comm/detail/reused_when_done.hpp"
#include "shardwise/comm/detail/ring.hpp"
#include "shardwise/comm/detail/watchdog.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using detail::WatchStatus;

namespace {

/// What a test tells its watched object and learns from it.
struct Wire {
  std::atomic<WatchStatus> say{WatchStatus::active};
  std::atomic<int> polls{0};
  std::atomic<int> aborts{0};
  std::atomic<bool> is_destroyed{false};
  std::atomic<bool> aborts_slowly{false};
  std::thread::id destroyed_by;
  std::string failed_because;
};

class Watched {
 public:
  explicit Watched(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
  ~Watched() {
    wire_->destroyed_by = std::this_thread::get_id();
    wire_->is_destroyed = true;
  }

  WatchStatus poll(std::chrono::steady_clock::time_point) {
    ++wire_->polls;
    return wire_->say;
  }
  std::string reason() const { return "its reason"; }
  void fail(const std::string& why) { wire_->failed_because = why; }
  static void abort(std::span<const std::unique_ptr<Watched>> all) {
    for (const auto& watched : all) {
      if (watched->wire_->aborts_slowly) std::this_thread::sleep_for(500ms);
      ++watched->wire_->aborts;
      watched->wire_->say = WatchStatus::finished;
    }
  }

 private:
  std::shared_ptr<Wire> wire_;
};

using Watchdog = detail::Watchdog<Watched>;

template <class F>
bool soon(F&& f) {
  for (int i = 0; i < 2000; ++i) {
    if (f()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

}  // namespace

TEST_CASE("watchdog: polls, removes what is finished, and destroys it in its own thread") {
  Watchdog watchdog(1ms);
  const auto wire = std::make_shared<Wire>();
  const std::uint64_t watched = watchdog.add(std::make_unique<Watched>(wire)).number;
  CHECK(soon([&] { return wire->polls > 2; }));
  CHECK(!watchdog.wait_until_finished(watched, 5ms));
  CHECK(!wire->is_destroyed);
  wire->say = WatchStatus::finished;
  CHECK(watchdog.wait_until_finished(watched, 5s));
  CHECK(wire->is_destroyed);
  CHECK(wire->destroyed_by != std::this_thread::get_id());
  CHECK(wire->aborts == 0);
}

TEST_CASE("watchdog: one failure aborts all watched objects, once, with its reason") {
  Watchdog watchdog(1ms);
  std::vector<std::shared_ptr<Wire>> wires;
  std::vector<std::uint64_t> all;
  for (int i = 0; i < 3; ++i) {
    wires.push_back(std::make_shared<Wire>());
    all.push_back(watchdog.add(std::make_unique<Watched>(wires.back())).number);
  }
  wires[1]->say = WatchStatus::failed;
  for (const std::uint64_t watched : all) CHECK(watchdog.wait_until_finished(watched, 5s));
  for (const auto& wire : wires) {
    CHECK(wire->aborts == 1);
    CHECK(wire->failed_because == "its reason");
  }
}

TEST_CASE("watchdog: wake polls at once, and objects may be added and finish many times") {
  Watchdog watchdog(1h);
  for (int round = 0; round < 50; ++round) {
    const auto wire = std::make_shared<Wire>();
    const std::uint64_t watched = watchdog.add(std::make_unique<Watched>(wire)).number;
    wire->say = WatchStatus::finished;
    watchdog.wake();
    CHECK(watchdog.wait_until_finished(watched, 5s));
  }
}

TEST_CASE("watchdog: no thread waits for a slow abort, nor for the watchdog") {
  const auto wire = std::make_shared<Wire>();
  wire->aborts_slowly = true;
  wire->say = WatchStatus::failed;
  const auto began = std::chrono::steady_clock::now();
  {
    Watchdog watchdog(1ms);
    watchdog.add(std::make_unique<Watched>(wire));
    CHECK(soon([&] { return wire->polls > 0; }));
    watchdog.wake();
  }
  CHECK(std::chrono::steady_clock::now() - began < 400ms);
  CHECK(soon([&] { return wire->is_destroyed.load(); }));
}

TEST_CASE("watchdog: objects added from several threads are all polled") {
  Watchdog watchdog(1ms);
  std::vector<std::shared_ptr<Wire>> wires;
  for (int i = 0; i < 8; ++i) wires.push_back(std::make_shared<Wire>());
  std::vector<std::thread> threads;
  for (const auto& wire : wires)
    threads.emplace_back([&watchdog, wire] {
      const std::uint64_t watched = watchdog.add(std::make_unique<Watched>(wire)).number;
      wire->say = WatchStatus::finished;
      watchdog.wake();
      watchdog.wait_until_finished(watched, 5s);
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

TEST_CASE(
    "objects are used again when they are done, and looked at a few times however many wait") {
  struct Object {
    int number = -1;
    bool is_done = false;
  };
  detail::ReusedWhenDone<Object> objects;
  int made = 0, looks = 0;
  const auto take = [&]() -> Object& {
    Object& one = objects.take([&](const Object& object) {
      ++looks;
      return object.is_done;
    });
    if (one.number < 0) one.number = made++;
    one.is_done = false;
    return one;
  };
  constexpr int many = 1000;
  std::vector<Object*> taken;
  for (int i = 0; i < many; ++i) taken.push_back(&take());
  CHECK(made == many);
  CHECK(looks < 4 * many);

  for (Object* one : taken) one->is_done = one != taken[0];  // the first one waits for ever
  for (int i = 0; i < 2 * many; ++i) take().is_done = true;
  CHECK(made < 2 * many + 10);
  CHECK(looks < 4 * 4 * many);

  taken[0]->is_done = true;
  take();
  int left = 0;
  objects.hand_over([&](std::unique_ptr<Object> object) { left += object->is_done ? 0 : 1; });
  CHECK(left == 1);
}
