#pragma once
// The structs of DLPack, in which array libraries hand tensors to each other.
//
// Source: dmlc/dlpack, include/dlpack/dlpack.h, version 1.1; declared here so that nobody needs
// that file. The layout is the one of the platform's C compiler and equal to that of the original,
// so a pointer to the one may be cast to the other.

#include <cstddef>
#include <cstdint>

#include "shardwise/version.hpp"

namespace shardwise::dlpack {

struct Version {
  std::uint32_t major = 1;  ///< another one has other structs
  std::uint32_t minor = 1;
};

/// Where memory is. There are more kinds than those named; they may be given by number.
enum class DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };

struct Device {
  DeviceType type = DeviceType::cpu;
  std::int32_t id = 0;

  friend constexpr bool operator==(const Device&, const Device&) = default;
};

enum class TypeCode : std::uint8_t {
  signed_integer = 0,
  unsigned_integer = 1,
  real = 2,
  brain = 4
};

struct DataType {
  TypeCode code{};
  std::uint8_t bits = 0;
  std::uint16_t lanes = 1;

  friend constexpr bool operator==(const DataType&, const DataType&) = default;
};

/// A tensor in memory that somebody else owns. Strides count elements; null says dense row-major.
struct Tensor {
  void* data = nullptr;
  Device device;
  std::int32_t ndim = 0;
  DataType dtype;
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;
  std::uint64_t byte_offset = 0;  ///< from `data` to the first element
};

/// A tensor and who frees it, as before DLPack 1.0; in Python a capsule named "dltensor".
struct ManagedTensor {
  Tensor tensor;
  void* manager = nullptr;
  void (*deleter)(ManagedTensor*) = nullptr;  ///< may be null
};

/// Bits of `flags`.
inline constexpr std::uint64_t read_only = 1;
inline constexpr std::uint64_t is_copied = 2;

/// The same since DLPack 1.0; in Python a capsule named "dltensor_versioned".
struct ManagedTensorVersioned {
  Version version;
  void* manager = nullptr;
  void (*deleter)(ManagedTensorVersioned*) = nullptr;  ///< may be null
  std::uint64_t flags = 0;
  Tensor tensor;
};

static_assert(sizeof(void*) != 8 || (sizeof(Tensor) == 48 && sizeof(ManagedTensor) == 64 &&
                                     sizeof(ManagedTensorVersioned) == 80),
              "the structs of DLPack do not have the layout of the original");

}  // namespace shardwise::dlpack
