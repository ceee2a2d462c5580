#pragma once
// The devices of a program: the host, or, in a program built by nvcc with
// SHARDWISE_EXAMPLE_CUDA, GPUs too. The rest of the program is the same.

#include <CLI/CLI.hpp>
#include <concepts>
#include <string>
#include <type_traits>
#include <utility>

#include "shardwise/backend/reference.hpp"
#include "shardwise/run/device.hpp"

// begin: devices
#ifdef SHARDWISE_EXAMPLE_CUDA

#include "shardwise/run/cuda_devices.hpp"

namespace example {

using Devices = shardwise::CudaDevices;
template <class T>
using Host = shardwise::Reference;  // so the program needs only NVIDIA's libraries

}  // namespace example

#else

#include "shardwise/backend/onednn/onednn.hpp"

namespace example {

using Devices = shardwise::NoDevices;
template <class T>  // oneDNN has no products in double
using Host = std::conditional_t<std::same_as<T, double>, shardwise::Reference, shardwise::OneDnn>;

}  // namespace example

#endif
// end: devices

namespace example {

/// The option --device. `chosen` outlives the parsing.
inline void add_device_option(CLI::App& app, std::string& chosen) {
  app.add_option("--device", chosen, "what computes; auto is a GPU where there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
}

/// Calls f(communicator, backend) for the chosen device and a model in T. A collective.
/// throws  backend_error, on every rank, if it is cuda and a rank has no GPU
template <class T, shardwise::Communicator C, class F>
void on_device(const std::string& chosen, C& ranks, F&& f) {
  shardwise::with_device<Host<T>, Devices>(shardwise::device_choice(chosen), ranks,
                                           std::forward<F>(f));
}

}  // namespace example
