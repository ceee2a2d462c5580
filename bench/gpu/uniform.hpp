#pragma once
// Random numbers that the device, the host and PyTorch make alike, each of any element alone.

#include <cstddef>
#include <cstdint>

#include "shardwise/core/memory.hpp"

namespace bench {

/// 32 bits that look random: multiplications modulo 2^32 and shifts. gpu_torch_peer.py has the
/// same.
constexpr std::uint32_t mixed(std::uint32_t number) {
  std::uint32_t h = number * 0x9E3779B1U;
  h ^= h >> 15U;
  h *= 0x85EBCA77U;
  h ^= h >> 13U;
  h *= 0xC2B2AE3DU;
  return h ^ h >> 16U;
}

/// Element i of tensor number `tensor`: a multiple of 2^-23 in [-1, 1).
constexpr float uniform(std::uint32_t tensor, std::size_t i) {
  const std::uint32_t bits = mixed(static_cast<std::uint32_t>(i) + mixed(tensor + 1));
  return static_cast<float>(bits >> 8U) * 0x1p-23F - 1.0F;
}

/// data[i] = element i, rounded.
template <class T>
struct Uniform {
  T* data;
  std::uint32_t tensor;
  constexpr void operator()(std::size_t i) const { data[i] = static_cast<T>(uniform(tensor, i)); }
};

/// n numbers where a backend keeps its tensors.
template <class T>
class Numbers {
 public:
  /// Of a tensor.
  template <class Backend>
  Numbers(Backend& backend, shardwise::Pool& pool, std::size_t n, std::uint32_t tensor)
      : Numbers(pool, n) {
    backend.for_each(n, Uniform<T>{data(), tensor});
  }
  /// Of any content.
  Numbers(shardwise::Pool& pool, std::size_t n) : memory_(pool.take(n * sizeof(T))), size_(n) {}

  T* data() const { return static_cast<T*>(memory_.data()); }
  std::size_t size() const { return size_; }

 private:
  shardwise::Buffer memory_;
  std::size_t size_;
};

}  // namespace bench
