#pragma once
// The kernels of `Cuda` on the stand-ins, without nvcc: loops are put on the stream as they would
// be, and run on the host when somebody waits for it.

#include <cstddef>
#include <cstring>
#include <vector>

#include "cuda/stand_in.hpp"
#include "shardwise/backend/cuda/cublaslt_linear.hpp"
#include "shardwise/backend/cuda/device_memory.hpp"
#include "shardwise/backend/cuda/options.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/core/dtype.hpp"

namespace testing {

class HostCuda {
 public:
  template <shardwise::Real T>
  using Linear = shardwise::detail::cuda::CublasLtLinear<HostCuda, T>;

  explicit HostCuda(const shardwise::CudaOptions& options = {}) : session_(options) {}

  template <class F>
  void for_each(std::size_t n, F f) {
    ++loops;
    stand_in::push(session_.stream().get(), [=] {
      for (std::size_t i = 0; i < n; ++i) f(i);
    });
  }
  shardwise::detail::cuda::Session& session() { return session_; }
  void synchronize() { session_.stream().synchronize(); }

  int loops = 0;

 private:
  shardwise::detail::cuda::Session session_;
};

/// Numbers on the device, `offset` elements behind an aligned address; null if there are none.
template <class T>
class OnDevice {
 public:
  OnDevice(HostCuda& cuda, const std::vector<T>& values, std::size_t offset = 0)
      : cuda_(&cuda), size_(values.size()) {
    if (values.empty()) return;
    memory_ = shardwise::detail::cuda::DeviceBuffer(cuda.session().memory(),
                                                    (offset + values.size()) * sizeof(T));
    data_ = static_cast<T*>(memory_.data()) + offset;
    std::memcpy(data_, values.data(), values.size() * sizeof(T));
  }

  T* data() const { return data_; }
  /// When all is done.
  std::vector<T> values() const {
    cuda_->synchronize();
    return std::vector<T>(data_, data_ + size_);
  }

 private:
  HostCuda* cuda_;
  std::size_t size_;
  shardwise::detail::cuda::DeviceBuffer memory_;
  T* data_ = nullptr;
};

/// While it lives, the machine is another one; then the usual one again, and nothing may be left.
class Machine {
 public:
  Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() {
    stand_in::devices = 2;
    stand_in::has_driver = true;
    stand_in::major = 9;
    stand_in::free_bytes = std::size_t{1} << 30;
    stand_in::has_peer_access = true;
    stand_in::memory_of_device = 0;
    stand_in::reaches_all = false;
    stand_in::fails_at = 0;
    stand_in::is_capturing = false;
    stand_in::lacks = 0;
    stand_in::says_to_lacks = CUBLAS_STATUS_NOT_SUPPORTED;
    stand_in::has_algorithms = true;
    stand_in::fastest = 0;
    stand_in::refusing = 0;
  }
};

}  // namespace testing
