#pragma once
// The structs of DLPack, with which array libraries exchange tensors.
//
// Source: dmlc/dlpack, include/dlpack/dlpack.h, version 1.1; declared here so that the file is not
// needed. The layout is that of the platform's C compiler and equal to that of the original, so
// pointers may be cast to each other.

#include <cstdint>

#include "shardwise/version.hpp"

/// DLPack's structs, under shorter names than the original's.
namespace shardwise::dlpack {

/// A device.
struct Device {
  /// Kinds of devices. There are more than those named; other numbers are allowed.
  enum class Type : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };

  Type type = Type::cpu;  ///< its kind
  std::int32_t id = 0;    ///< its number among devices of its kind, from 0

  friend constexpr bool operator==(const Device&, const Device&) = default;
};

/// A tensor in memory that it does not own. Strides count elements; null means dense row-major.
struct Tensor {
  /// A number type.
  struct DataType {
    /// The kind of a number type; `brain` is that of bf16. There are more than those named.
    enum class Code : std::uint8_t {
      signed_integer = 0,
      unsigned_integer = 1,
      real = 2,
      brain = 4
    };

    Code code{};              ///< its kind
    std::uint8_t bits = 0;    ///< of one number
    std::uint16_t lanes = 1;  ///< numbers in one element

    friend constexpr bool operator==(const DataType&, const DataType&) = default;
  };

  void* data = nullptr;             ///< the start of the memory
  Device device;                    ///< of the memory
  std::int32_t ndim = 0;            ///< axes
  DataType dtype;                   ///< of the elements
  std::int64_t* shape = nullptr;    ///< [ndim], outermost axis first
  std::int64_t* strides = nullptr;  ///< [ndim], in elements, or null
  std::uint64_t byte_offset = 0;    ///< from `data` to the first element
};

/// A tensor and its deleter, before DLPack 1.0; in Python a capsule named "dltensor".
struct ManagedTensor {
  Tensor tensor;                              ///< the exchanged tensor
  void* manager = nullptr;                    ///< used only by the deleter
  void (*deleter)(ManagedTensor*) = nullptr;  ///< may be null
};

/// The same since DLPack 1.0; in Python a capsule named "dltensor_versioned".
struct ManagedTensorVersioned {
  /// The version of the structs of their producer.
  struct Version {
    std::uint32_t major = 1;  ///< other major versions have other structs
    std::uint32_t minor = 1;  ///< later minor versions have more constants
  };

  ///@{
  /// Bits of `flags`: the memory must not be written to, and the memory is a copy made for the
  /// receiver.
  static constexpr std::uint64_t read_only = 1;
  static constexpr std::uint64_t is_copied = 2;
  ///@}

  Version version;                                     ///< of these structs
  void* manager = nullptr;                             ///< used only by the deleter
  void (*deleter)(ManagedTensorVersioned*) = nullptr;  ///< may be null
  std::uint64_t flags = 0;                             ///< `read_only`, `is_copied`, and others
  Tensor tensor;                                       ///< the exchanged tensor
};

static_assert(sizeof(void*) != 8 || (sizeof(Tensor) == 48 && sizeof(ManagedTensor) == 64 &&
                                     sizeof(ManagedTensorVersioned) == 80),
              "the structs of DLPack do not have the layout of the original");

}  // namespace shardwise::dlpack
