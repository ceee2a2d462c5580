#pragma once
// On what a program computes, chosen when it runs.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// What the ranks of a program compute on.
enum class DeviceChoice : std::uint8_t {
  automatic,  ///< a device if every rank's machine has one, else the host
  host,       ///< the host
  device      ///< a device, or an error
};

/// "auto", "cpu" and "cuda", as command lines say it.
/// throws  argument_error for any other word
inline DeviceChoice device_choice(std::string_view word) {
  if (word == "auto") return DeviceChoice::automatic;
  if (word == "cpu") return DeviceChoice::host;
  if (word == "cuda") return DeviceChoice::device;
  throw argument_error({"'", word, "' names nothing to compute on: it is auto, cpu or cuda"});
}

namespace detail {

/// Which of the `seen` devices is that of the process at place `local_rank` of its machine: the
/// only one, which a launcher chose for it, or the one of its place; -1 if there is none.
constexpr int device_of_process(int seen, int local_rank) {
  if (seen < 2) return seen - 1;
  return local_rank < seen ? local_rank : -1;
}

}  // namespace detail

/// Devices of which a program has none, since it was built without.
struct NoDevices {
  /// How many the rank may choose from.
  template <Communicator C>
  static int count(const C&) {
    return 0;
  }
  static std::string missing() { return "this program was built without devices"; }  ///< why none
  /// Never called.
  template <Communicator C, class F>
  static void run(C&, F&&) {}
};

/// Calls f(communicator, backend) with what the calling rank of `ranks` talks and computes by:
/// `ranks` themselves and a HostBackend, or what Devices make of them. A collective; all ranks come
/// to the same.
///
///     with_device<OneDnn, CudaDevices>(choice, ranks, [&](auto& group, auto& backend) {
///       train(group, backend);
///     });
///
/// sends   an all-reduce (min) of one number, unless the host was chosen, and what Devices send
/// throws  backend_error, on every rank, if a device was chosen and the machine of one has none
template <class HostBackend, class Devices = NoDevices, Communicator C, class F>
void with_device(DeviceChoice choice, C& ranks, F&& f) {
  if (choice != DeviceChoice::host) {
    const std::int32_t here = Devices::count(ranks);
    std::int32_t fewest = 0;
    ranks.all_reduce(std::span<const std::int32_t>(&here, 1), std::span(&fewest, 1),
                     Reduction::min);
    if (fewest > 0) return Devices::run(ranks, f);
    if (choice == DeviceChoice::device) {
      throw backend_error({"a device was chosen, but not every rank has one; rank ", ranks.rank(),
                           " sees ", here, ": ", Devices::missing(), ". Choose the host, or auto"});
    }
  }
  HostBackend backend;
  f(ranks, backend);
}

}  // namespace shardwise
