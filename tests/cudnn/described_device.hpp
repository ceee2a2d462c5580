#pragma once
// Devices that are not there, as cuDNN plans for them: by a description of them, in JSON.

#include <cudnn.h>

#include <cstdint>
#include <string>

#include "shardwise/backend/cuda/cudnn_descriptor.hpp"
#include "support/skipped.hpp"

namespace testing {

/// Whether cuDNN plans for devices that are only described to it. Says that a test is skipped if
/// it does not.
inline bool plans_for_described_devices() {
  const bool plans = cudnnGetVersion() >= 90800;
  if (!plans) skip("plans of cuDNN, which makes them without a GPU from version 9.8 on");
  return plans;
}

/// In place of shardwise::detail::cuda::DeviceOfHandle.
class DescribedDevice {
  using Descriptor = shardwise::detail::cuda::CudnnDescriptor;

 public:
  /// What differs between devices; `capability` is 900 for sm_90.
  struct Numbers {
    int capability;
    int multiprocessors;
    int shared_memory;  ///< that a block may have, in bytes
    int l2_cache;       ///< in bytes
    std::int64_t memory;
  };

  explicit DescribedDevice(const Numbers& numbers)
      : descriptor_(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) {
    const std::string json = json_of(numbers);
    shardwise::detail::cuda::check(
        cudnnBackendSetAttribute(descriptor_.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, static_cast<std::int64_t>(json.size()),
                                 json.data()),
        "cudnnBackendSetAttribute of a device");
    descriptor_.finalize("cudnnBackendFinalize of a device");
  }

  static DescribedDevice a100() {
    return DescribedDevice({800, 108, 166912, 41943040, 85'899'345'920});
  }
  static DescribedDevice h200() {
    return DescribedDevice({900, 132, 232448, 62914560, 150'754'820'096});
  }

  void tell_graph(Descriptor&) const {}  // of no device
  void tell_heuristic(Descriptor& heuristic) const {
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, descriptor_);
  }
  void tell_plan(Descriptor& plan) const {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, descriptor_);
  }

 private:
  static std::string json_of(const Numbers& n) {
    const auto field = [](const char* name, std::int64_t value) {
      return ",\"" + std::string(name) + "\":" + std::to_string(value);
    };
    return R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64])"
           R"(,"deviceName":"described")" +
           field("regsPerBlock", 65536) + field("multiProcessorCount", n.multiprocessors) +
           field("warpSize", 32) + field("maxSharedMemoryPerBlock", 49152) +
           field("maxSharedMemoryPerBlockOptin", n.shared_memory) +
           field("reservedSharedMemoryPerBlock", 1024) + field("maxRegistersPerSM", 65536) +
           field("maxCtasPerSM", 32) + field("maxThreadsPerBlock", 1024) +
           field("maxThreadsPerSM", 2048) + field("pciDeviceId", 0) + field("isTccDriver", 0) +
           field("supportCoopLaunch", 1) + field("smClockRateKHz", 1'980'000) +
           field("memClockRateKHz", 3'201'000) + field("l2CacheSize", n.l2_cache) +
           field("deviceVer", n.capability) + field("driverVer", 13000) + field("cudaDeviceId", 0) +
           field("totalGlobalMem", n.memory) + '}';
  }

  Descriptor descriptor_;
};

}  // namespace testing
