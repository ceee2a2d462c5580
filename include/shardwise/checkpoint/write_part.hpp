#pragma once
// Writes the elements of a tensor that a rank holds to their positions in a file.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "shardwise/checkpoint/checksum.hpp"
#include "shardwise/checkpoint/part.hpp"
#include "shardwise/core/file.hpp"

namespace shardwise::detail {

/// Copies `count` elements from memory to the front of `scratch`, without gaps. `scratch` has room
/// for all bytes from the first to the last of them.
inline std::span<std::byte> gathered(const TensorPart& part, std::size_t first, std::size_t count,
                                     std::span<std::byte> scratch) {
  const std::size_t bytes = part.element_bytes();
  const std::byte* in = part.memory + first * part.stride;
  if (!part.is_on_host()) {
    part.to_host(in, scratch.first(part.span_of(count)));
    in = scratch.data();
  }
  for (std::size_t i = 0; i < count; ++i) {  // never overwrites elements that are still to be read
    std::memmove(scratch.data() + i * bytes, in + i * part.stride, bytes);
  }
  return scratch.first(count * bytes);
}

/// The part with its elements in the order of the file. If that is another order than in memory,
/// they are copied to `turned`.
inline TensorPart in_order_of_file(const TensorPart& part, std::vector<std::byte>& turned) {
  TensorPart ordered = part;
  if (!part.file.transposed) return ordered;
  std::vector<std::byte> there;
  if (!part.is_on_host()) {
    there.resize(part.span_of(part.elements()));
    part.to_host(part.memory, there);
  }
  const std::size_t bytes = part.element_bytes();
  turned.resize(part.elements() * bytes);
  transpose(part.is_on_host() ? part.memory : there.data(), part.local[part.row_axis()].extent(),
            part.local[part.file.ones].extent(), part.stride, bytes, turned.data());
  ordered.memory = turned.data();
  ordered.stride = bytes;
  ordered.to_host = nullptr;
  return ordered;
}

/// Writes the share of `writer` of the elements of a box of one tensor of the model, in the order
/// of the file, and adds it to the checksum of the file's tensor, which begins at `begin` in the
/// file.
inline void write_box(const File& file, std::uint64_t begin, const TensorPart& part, Place writer,
                      std::span<std::byte> scratch, Checksum& checksum) {
  const std::size_t bytes = part.element_bytes();
  const bool is_as_in_file = part.is_on_host() && part.stride == bytes;
  const std::size_t most = scratch.size() / part.stride;  // small enough for a cache
  for_each_written_run(part, writer, [&](std::size_t whole, std::size_t local, std::size_t count) {
    for (std::size_t done = 0; done < count; done += most) {
      const std::size_t now = std::min(most, count - done);
      const std::span<const std::byte> piece =
          is_as_in_file ? std::span(part.memory + (local + done) * part.stride, now * bytes)
                        : gathered(part, local + done, now, scratch);
      file.write(begin + (whole + done) * bytes, piece);
      checksum.add((whole + done) * bytes, piece);
    }
  });
}

}  // namespace shardwise::detail
