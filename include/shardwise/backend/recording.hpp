#pragma once
// Backends whose work can be recorded once and launched as a whole.

#include <concepts>

#include "shardwise/core/tensor_memory.hpp"

namespace shardwise {

namespace detail {

struct WorkArchetype {
  void operator()() const {}
};

}  // namespace detail

/// A backend of a device that can record its work. Besides the members of DeviceBackend it has:
///
///     B::Recording recording(backend, work)
///         calls work() once, which does nothing on the device
///     recording.launch()
///         does what work() had called for, in order with all other work of the backend
///
/// A launch uses the same memory as the recorded calls, and passes loops the same bytes. A call in
/// work() that waits for the device, such as `to_host`, throws backend_error.
template <class B>
concept RecordingBackend = DeviceBackend<B> &&
    std::constructible_from<typename B::Recording, B&, detail::WorkArchetype> &&
    requires(typename B::Recording& recording) {
  recording.launch();
};

}  // namespace shardwise
