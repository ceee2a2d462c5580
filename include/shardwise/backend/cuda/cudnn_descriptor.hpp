#pragma once
// Owners of cuDNN's objects.
//
// cuDNN's graph API describes everything by opaque descriptors with numbered attributes. The C
// calls are wrapped here; NVIDIA's C++ front end would be one more dependency.

#include <cudnn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "shardwise/backend/cuda/cudnn_check.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/detail/destroyer.hpp"

namespace shardwise::detail::cuda {

/// The library's context on a device, which puts all work on one stream. It is destroyed through a
/// pointer, so a program that makes none need not link the library.
class CudnnHandle {
 public:
  CudnnHandle(int device, cudaStream_t stream) : handle_(nullptr, cudnnDestroy) {
    const OnDevice on(device);
    cudnnHandle_t handle = nullptr;
    check(cudnnCreate(&handle), "cudnnCreate");
    handle_.reset(handle);
    check(cudnnSetStream(handle, stream), "cudnnSetStream");
  }

  cudnnHandle_t get() const { return handle_.get(); }

 private:
  std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, cudnnStatus_t (*)(cudnnHandle_t)> handle_;
};

///@{
/// The library's types of attributes.
constexpr cudnnBackendAttributeType_t cudnn_type(std::int64_t) { return CUDNN_TYPE_INT64; }
constexpr cudnnBackendAttributeType_t cudnn_type(float) { return CUDNN_TYPE_FLOAT; }
constexpr cudnnBackendAttributeType_t cudnn_type(double) { return CUDNN_TYPE_DOUBLE; }
constexpr cudnnBackendAttributeType_t cudnn_type(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
constexpr cudnnBackendAttributeType_t cudnn_type(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
constexpr cudnnBackendAttributeType_t cudnn_type(void*) { return CUDNN_TYPE_VOID_PTR; }
constexpr cudnnBackendAttributeType_t cudnn_type(cudnnConvolutionMode_t) {
  return CUDNN_TYPE_CONVOLUTION_MODE;
}
constexpr cudnnBackendAttributeType_t cudnn_type(bool) { return CUDNN_TYPE_BOOLEAN; }
constexpr cudnnBackendAttributeType_t cudnn_type(cudnnPointwiseMode_t) {
  return CUDNN_TYPE_POINTWISE_MODE;
}
constexpr cudnnBackendAttributeType_t cudnn_type(cudnnReduceTensorOp_t) {
  return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
}
constexpr cudnnBackendAttributeType_t cudnn_type(cudnnBackendHeurMode_t) {
  return CUDNN_TYPE_HEUR_MODE;
}
constexpr cudnnBackendAttributeType_t cudnn_type(cudnnBackendNumericalNote_t) {
  return CUDNN_TYPE_NUMERICAL_NOTE;
}
///@}

/// One descriptor: its attributes are set, then it is finalized, then other descriptors may use and
/// read it.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t descriptor = nullptr;
    check(cudnnBackendCreateDescriptor(type, &descriptor), "cudnnBackendCreateDescriptor");
    descriptor_.reset(descriptor);
  }

  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }

  ///@{
  /// `Value` has the type in the documentation of the attribute.
  template <class Value>
  void set(cudnnBackendAttributeName_t name, const Value* values, std::size_t count) {
    set(name, cudnn_type(Value{}), count, values);
  }
  template <class Value>
  void set(cudnnBackendAttributeName_t name, const Value& value) {
    set(name, cudnn_type(value), 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    const cudnnBackendDescriptor_t other = value.get();
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
  }
  void set(cudnnBackendAttributeName_t name, const std::vector<CudnnDescriptor>& values) {
    std::vector<cudnnBackendDescriptor_t> others(values.size());
    std::transform(values.begin(), values.end(), others.begin(),
                   [](const CudnnDescriptor& value) { return value.get(); });
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, others.size(), others.data());
  }
  ///@}

  void finalize(const char* what) { check(cudnnBackendFinalize(get()), what); }

  /// Returns the status: the library rejects some plans that its heuristics propose.
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(get()); }

  /// Copies at most `room` elements of an attribute to `values`; returns the library's count of
  /// elements.
  template <class Value>
  std::size_t read(cudnnBackendAttributeName_t name, Value* values, std::size_t room) const {
    return read(name, cudnn_type(Value{}), room, values);
  }

  /// Reads attributes that are descriptors; the descriptors in `into` must exist.
  std::size_t read_descriptors(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t* into,
                               std::size_t room) const {
    return read(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, into);
  }

 private:
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
           const void* values) {
    check(cudnnBackendSetAttribute(get(), name, type, static_cast<std::int64_t>(count), values),
          "cudnnBackendSetAttribute");
  }
  std::size_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::size_t room, void* values) const {
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(get(), name, type, static_cast<std::int64_t>(room), &count,
                                   values),
          "cudnnBackendGetAttribute");
    return static_cast<std::size_t>(count);
  }

  std::unique_ptr<void, Destroyer<cudnnBackendDestroyDescriptor>> descriptor_;
};

}  // namespace shardwise::detail::cuda
