#pragma once
// A rank's part of one tensor of a checkpoint: its position in the tensor and in memory.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/dtype.hpp"
#include "shardwise/core/box.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

/// A rank's part of a named tensor, a box. Its elements are `stride` bytes apart, in row-major
/// order.
struct TensorPart {
  std::string name;             ///< in the file
  FileDtype dtype;              ///< in memory, and in the file once it is saved
  Shape whole;                  ///< of the tensor
  Shape local;                  ///< of the box that this rank holds
  BoxIn box;                    ///< the position of the box in the tensor
  bool is_split = false;        ///< if not, every rank holds the same whole tensor
  std::byte* memory = nullptr;  ///< the first element of the box
  std::size_t stride = 0;       ///< in bytes
  void (*load)(const FileDtype&, const std::byte* in, std::byte* out, std::size_t stride,
               std::size_t count) = nullptr;  ///< converts from a file's dtype

  ///@{
  /// Copy bytes from and to memory of a device; empty if `memory` is of the host.
  std::function<void(const std::byte* from, std::span<std::byte> to)> to_host{};
  std::function<void(std::span<const std::byte> from, std::byte* to)> to_device{};
  ///@}

  /// Whether `memory` is of the host.
  bool is_on_host() const { return to_host == nullptr; }

  ///@{
  /// Bytes of one element; elements of the box; bytes from the first of `count` elements to the end
  /// of the last.
  std::size_t element_bytes() const { return dtype.bits / 8; }
  std::size_t elements() const { return local.elements(); }
  std::size_t span_of(std::size_t count) const {
    return count == 0 ? 0 : (count - 1) * stride + element_bytes();
  }
  ///@}
};

/// The part in `view`, as a tensor called `name`. The memory has `per_element` numbers for each
/// element of the view; `memory` is the first number of this tensor.
template <class A, class T, Layout L>
TensorPart part_of(std::string name, const View<T, L>& view, A* memory,
                   std::size_t per_element = 1) {
  static_assert(ShardedLayout<L> || std::same_as<L, Invariant>,
                "a checkpoint holds values, and summands or uses of a value are none");
  TensorPart part{std::move(name),
                  file_dtype_v<A>,
                  view.global(),
                  view.local(),
                  BoxIn{view.global(), {}},
                  ShardedLayout<L>,
                  reinterpret_cast<std::byte*>(memory),
                  per_element * sizeof(A),
                  &detail::load_elements<A>};
  if constexpr (ShardedLayout<L>) {
    part.box = part.box.at(split_position<L>(view.global()),
                           local_block<L>(view.global(), view.place()).offset);
  }
  return part;
}

namespace detail {

/// Sets how the host reads and writes parts in the memory of the backend's tensors.
template <class B>
void reach([[maybe_unused]] B& backend, [[maybe_unused]] std::vector<TensorPart>& parts) {
  if constexpr (DeviceBackend<B>) {
    for (TensorPart& part : parts) {
      part.to_host = [&backend](const std::byte* from, std::span<std::byte> to) {
        detail::to_host(backend, from, to.size(), to.data());
      };
      part.to_device = [&backend](std::span<const std::byte> from, std::byte* to) {
        detail::to_device(backend, from.data(), from.size(), to);
      };
    }
  }
}

/// The extents of a tensor in a file.
inline std::vector<std::uint64_t> file_shape(const Shape& shape) {
  std::vector<std::uint64_t> extents;
  for (const Dim& dim : shape) extents.push_back(dim.extent());
  return extents;
}

/// Calls f(element of the tensor, element of the part, count) for every run of elements that is
/// contiguous in both.
template <class F>
void for_each_run_of(const TensorPart& part, F&& f) {
  for_each_run(part.local, part.box, BoxIn{part.local, {}}, f);
}

/// As above, for the elements that the rank at `place` writes: its box, or its share of a tensor
/// that all ranks hold.
template <class F>
void for_each_written_run(const TensorPart& part, Place place, F&& f) {
  if (part.is_split) return for_each_run_of(part, f);
  const Interval share = block_of(part.elements(), place);
  if (share.size > 0) f(share.offset, share.offset, share.size);
}

}  // namespace detail

}  // namespace shardwise
