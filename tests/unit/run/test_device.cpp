#include <doctest/doctest.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/run/device.hpp"

using namespace shardwise;

namespace {

/// Two ranks that see so many devices.
template <int OfFirst, int OfSecond>
struct Seen {
  template <class C>
  static int count(const C& ranks) {
    return ranks.rank() == 0 ? OfFirst : OfSecond;
  }
  static std::string missing() { return "there is none"; }
  template <class C, class F>
  static void run(C& ranks, F&& f) {
    int device = count(ranks);
    f(ranks, device);
  }
};

/// What each of two ranks computes on: "host", "device", or the error.
template <class Devices>
std::string chosen(DeviceChoice choice) {
  std::string answers[2];
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    std::string& answer = answers[ranks.rank()];
    try {
      with_device<Reference, Devices>(choice, ranks, [&](auto&, auto& backend) {
        answer = std::same_as<std::decay_t<decltype(backend)>, Reference> ? "host" : "device";
      });
    } catch (const backend_error& e) {
      answer = e.what();
    }
  });
  return answers[0] == answers[1] ? answers[0] : answers[0] + " / " + answers[1];
}

}  // namespace

TEST_CASE("words for what to compute on") {
  CHECK(device_choice("auto") == DeviceChoice::automatic);
  CHECK(device_choice("cpu") == DeviceChoice::host);
  CHECK(device_choice("cuda") == DeviceChoice::device);
  CHECK_THROWS_WITH_AS(device_choice("gpu"),
                       "'gpu' names nothing to compute on: it is auto, cpu or cuda",
                       argument_error);
}

TEST_CASE("all ranks compute on devices, or all on the host") {
  CHECK(chosen<Seen<1, 2>>(DeviceChoice::automatic) == "device");
  CHECK(chosen<Seen<1, 2>>(DeviceChoice::device) == "device");
  CHECK(chosen<Seen<1, 2>>(DeviceChoice::host) == "host");
  CHECK(chosen<Seen<1, 0>>(DeviceChoice::automatic) == "host");
  CHECK(chosen<Seen<1, 0>>(DeviceChoice::device) ==
        "a device was chosen, but not every rank has one; rank 0 sees 1: there is none. Choose the "
        "host, or auto / a device was chosen, but not every rank has one; rank 1 sees 0: there is "
        "none. Choose the host, or auto");
}

TEST_CASE("a process has the only device that it sees, or that of its place") {
  using detail::device_of_process;
  CHECK(device_of_process(0, 0) == -1);
  CHECK(device_of_process(1, 5) == 0);
  CHECK(device_of_process(4, 3) == 3);
  CHECK(device_of_process(4, 4) == -1);
}

TEST_CASE("what all ranks use is the smallest that one has, wherever that rank is") {
  constexpr std::int64_t gib = std::int64_t{1} << 30;  // workspaces are as large
  for (const int ranks_wanted : {1, 3, 8}) {
    for (int poorest = 0; poorest < ranks_wanted; ++poorest) {
      run_ranks(ranks_wanted, [&](ThreadCommunicator& ranks) {
        const std::int64_t here = ranks.rank() == poorest ? 5 * gib : (6 + ranks.rank()) * gib;
        CHECK(detail::smallest_of_ranks(ranks, here) == 5 * gib);
      });
    }
  }
}

TEST_CASE("a program without devices computes on the host") {
  run_ranks(1, [](ThreadCommunicator& ranks) {
    bool on_host = false;
    with_device<Reference>(DeviceChoice::automatic, ranks, [&](auto&, auto& backend) {
      on_host = std::same_as<std::decay_t<decltype(backend)>, Reference>;
    });
    CHECK(on_host);
    CHECK_THROWS_WITH_AS(
        with_device<Reference>(DeviceChoice::device, ranks, [](auto&, auto&) {}),
        "a device was chosen, but not every rank has one; rank 0 sees 0: this program was built "
        "without devices. Choose the host, or auto",
        backend_error);
  });
}
