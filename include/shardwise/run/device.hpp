#pragma once
// The choice of a device when a program starts.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// The device on which the ranks of a program compute.
enum class DeviceChoice : std::uint8_t {
  automatic,  ///< a device if every rank's machine has one, else the host
  host,       ///< the host
  device      ///< a device, or an error
};

/// "auto", "cpu" and "cuda", from a command line.
/// throws  argument_error for any other word
inline DeviceChoice device_choice(std::string_view word) {
  if (word == "auto") return DeviceChoice::automatic;
  if (word == "cpu") return DeviceChoice::host;
  if (word == "cuda") return DeviceChoice::device;
  throw argument_error({"'", word, "' names nothing to compute on: it is auto, cpu or cuda"});
}

namespace detail {

/// The device, of `seen` ones, of the process with this `local_rank` on its machine: the only one,
/// which a launcher chose for it, or the one with that number; -1 if there is none.
constexpr int device_of_process(int seen, int local_rank) {
  if (seen < 2) return seen - 1;
  return local_rank < seen ? local_rank : -1;
}

/// The smallest of the numbers that the ranks give. A collective; sends an all-reduce (min) of one
/// number.
template <Communicator C, class T>
T smallest_of_ranks(C& ranks, const T& here) {
  T least{};
  ranks.all_reduce(std::span<const T>(&here, 1), std::span(&least, 1), Reduction::min);
  return least;
}

}  // namespace detail

/// The devices of a program that was built without devices: none.
struct NoDevices {
  /// The number of devices that the rank may use.
  template <Communicator C>
  static int count(const C&) {
    return 0;
  }
  static std::string missing() { return "this program was built without devices"; }  ///< why none
  /// Never called.
  template <Communicator C, class F>
  static void run(C&, F&&) {}
};

/// Calls f(communicator, backend) on each rank of `ranks`: with `ranks` and a HostBackend, or with
/// those that Devices make. A collective; all ranks make the same choice.
///
///     with_device<OneDnn, CudaDevices>(choice, ranks, [&](auto& group, auto& backend) {
///       train(group, backend);
///     });
///
/// sends   an all-reduce (min) of one number, unless the host was chosen, and the calls of Devices
/// throws  backend_error, on every rank, if a device was chosen and a rank's machine has none
template <class HostBackend, class Devices = NoDevices, Communicator C, class F>
void with_device(DeviceChoice choice, C& ranks, F&& f) {
  if (choice != DeviceChoice::host) {
    const std::int32_t here = Devices::count(ranks);
    if (detail::smallest_of_ranks(ranks, here) > 0) return Devices::run(ranks, f);
    if (choice == DeviceChoice::device) {
      throw backend_error({"a device was chosen, but not every rank has one; rank ", ranks.rank(),
                           " sees ", here, ": ", Devices::missing(), ". Choose the host, or auto"});
    }
  }
  HostBackend backend;
  f(ranks, backend);
}

}  // namespace shardwise
