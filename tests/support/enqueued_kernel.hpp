#pragma once
// Kernels of the host that a device without a device does when it is their turn.

#include <cstddef>

#include "shardwise/backend/pooling.hpp"

namespace testing {

/// A kernel of `Reference` for a device that has host(), a Reference, and enqueue(call).
template <class Kernel, class Device>
class EnqueuedKernel {
 public:
  template <class... Given>
  explicit EnqueuedKernel(Device& device, Given... given)
      : device_(device), kernel_(device.host(), given...) {}

  std::size_t record_bytes(const shardwise::PoolingCall& call) const {
    return kernel_.record_bytes(call);
  }
  template <class... Given>
  void forward(Given... given) {
    device_.enqueue([=, this] { kernel_.forward(given...); });
  }
  template <class... Given>
  void backward(Given... given) {
    device_.enqueue([=, this] { kernel_.backward(given...); });
  }
  template <class... Given>
  void backward_input(Given... given) {
    device_.enqueue([=, this] { kernel_.backward_input(given...); });
  }
  template <class... Given>
  void backward_weight(Given... given) {
    device_.enqueue([=, this] { kernel_.backward_weight(given...); });
  }

 private:
  Device& device_;
  Kernel kernel_;
};

}  // namespace testing
