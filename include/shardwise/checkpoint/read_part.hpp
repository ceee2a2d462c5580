#pragma once
// Reads the elements of a tensor that a rank holds from their positions in a file.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/checksum.hpp"
#include "shardwise/checkpoint/dtype.hpp"
#include "shardwise/checkpoint/part.hpp"
#include "shardwise/core/box.hpp"
#include "shardwise/core/file.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/shape.hpp"

namespace shardwise::detail {

/// The elements of a box that belong to rows of the file's tensor from `row` on.
struct RowsFrom {
  Shape shape;             // of those, also a box
  BoxIn in_file, in_part;  // its positions

  RowsFrom(const TensorPart& part, std::size_t row)
      : shape(part.local), in_file(part.box), in_part{part.local, {}} {
    const std::size_t axis = part.row_axis();
    if (axis >= shape.rank() || part.box.begin[axis] >= row) return;
    const std::size_t others = std::min(row - part.box.begin[axis], shape[axis].extent());
    shape[axis] = {shape[axis].axis, shape[axis].extent() - others};
    in_file.begin[axis] += others;
    in_part.begin[axis] += others;
  }
};

/// What a rank adds to the checksum of a tensor that it reads with others: its share, as `reader`,
/// of the elements of rows from `row` on.
struct InChecksum {
  Place reader;
  std::size_t row;
  Checksum* checksum;  // null if the file has none
};

/// A tensor of a file.
struct FromFile {
  const File& file;
  std::uint64_t begin;  // of the tensor in the file
  FileDtype dtype;
  InChecksum counted;

  std::size_t element_bytes() const { return dtype.bits / 8; }
};

/// Elements that are read at once: they stay in a cache while they are added to a checksum.
inline constexpr std::size_t most_read = 1 << 15;

/// Reads the rank's elements of a box of one tensor of the model, in the order of the file. The
/// `count` elements of the box from `local` on are read to `place(local, count)`, at most
/// `most_read` at once. Some may be read twice.
template <class PlaceOf>
void read_box(const FromFile& from, const TensorPart& part, PlaceOf&& place) {
  const std::size_t size = from.element_bytes();
  const InChecksum& counted = from.counted;
  const auto in_pieces = [&](auto&& use) {
    return [&, use](std::size_t whole, std::size_t local, std::size_t count) {
      for (std::size_t done = 0; done < count; done += most_read) {
        const std::size_t now = std::min(most_read, count - done);
        const std::span<std::byte> there = place(local + done, now);
        from.file.read(from.begin + (whole + done) * size, there);
        use(whole + done, Interval{local + done, now}, there);
      }
    };
  };
  const RowsFrom rows(part, counted.row);
  if (counted.checksum == nullptr || rows.shape.elements() < part.elements())
    for_each_run_of(part, in_pieces([](auto&&...) {}));
  if (counted.checksum == nullptr) return;
  const Interval mine = block_of(part.elements(), counted.reader);
  for_each_run(
      rows.shape, rows.in_file, rows.in_part,
      in_pieces([&](std::size_t whole, const Interval& read, std::span<const std::byte> bytes) {
        const Interval here = overlap(read, mine);
        if (here.size == 0) return;
        const std::size_t skipped = here.offset - read.offset;
        counted.checksum->add((whole + skipped) * size,
                              bytes.subspan(skipped * size, here.size * size));
      }));
}

/// A rank's elements from the file, before they are copied to the model.
struct StagedPart {
  TensorPart part;
  FileDtype dtype{};  // of the file
  std::unique_ptr<std::byte[]> bytes{};
};

/// Reads a box to separate memory.
inline StagedPart read_staged(const FromFile& from, const TensorPart& part) {
  const std::size_t size = from.element_bytes();
  auto bytes = std::make_unique_for_overwrite<std::byte[]>(part.elements() * size);
  read_box(from, part, [&](std::size_t local, std::size_t count) {
    return std::span(bytes.get() + local * size, count * size);
  });
  if (!part.file.transposed) return {part, from.dtype, std::move(bytes)};
  auto transposed = std::make_unique_for_overwrite<std::byte[]>(part.elements() * size);
  transpose(bytes.get(), part.local[part.file.ones].extent(),
            part.local[part.file.ones + 1].extent(), size, size, transposed.get());
  return {part, from.dtype, std::move(transposed)};
}

/// Copies the elements to the model. For a device this needs memory of the host from the first to
/// the last element of the part.
inline void store(const StagedPart& from) {
  const TensorPart& part = from.part;
  if (part.is_on_host()) {
    return part.load(from.dtype, from.bytes.get(), part.memory, part.stride, part.elements());
  }
  std::vector<std::byte> there(part.span_of(part.elements()));
  if (part.stride != part.element_bytes()) part.to_host(part.memory, there);
  part.load(from.dtype, from.bytes.get(), there.data(), part.stride, part.elements());
  part.to_device(there, part.memory);
}

/// Memory for elements that are read and not yet in the model, kept from box to box.
struct PieceMemory {
  std::vector<std::byte> read;
  std::vector<std::byte> turned;  // for rows of the file that are columns of the model
};

/// Converts elements of a box, as the file has them, to their places in the model, a piece of at
/// most `most` at a time: read_box reads to where `take` says, and `store` ends the last piece.
class Pieces {
 public:
  static constexpr std::size_t most = 8 * most_read;  ///< at most 2 MiB

  Pieces(const FromFile& from, const TensorPart& part, PieceMemory& memory)
      : part_(part), dtype_(from.dtype), size_(from.element_bytes()), memory_(memory) {
    memory.read.resize(std::max(memory.read.size(), most * size_));
  }

  /// Where to read `count` elements from number `local` of the box on.
  std::span<std::byte> take(std::size_t local, std::size_t count) {
    if (local != first_ + count_ || count_ + count > most) {
      store();
      first_ = local;
    }
    const std::span<std::byte> there(memory_.read.data() + count_ * size_, count * size_);
    count_ += count;
    return there;
  }

  void store() {
    if (part_.file.transposed)
      store_turned();
    else
      load(memory_.read.data(), first_, 1, count_);
    count_ = 0;
  }

 private:
  /// To the elements of the model from number `first` on, each `apart` behind the one before.
  void load(const std::byte* in, std::size_t first, std::size_t apart, std::size_t count) const {
    part_.load(dtype_, in, part_.memory + first * part_.stride, apart * part_.stride, count);
  }

  void store_turned() {
    const std::size_t rows = part_.local[part_.file.ones].extent();
    const std::size_t columns = part_.local[part_.file.ones + 1].extent();
    const std::byte* in = memory_.read.data();
    for (std::size_t at = first_, left = count_; left > 0;) {
      const std::size_t row = at / columns, column = at % columns;
      std::size_t now = std::min(columns - column, left);
      if (now == columns) {
        const std::size_t whole_rows = left / columns;
        now = whole_rows * columns;
        memory_.turned.resize(std::max(memory_.turned.size(), now * size_));
        transpose(in, whole_rows, columns, size_, size_, memory_.turned.data());
        for (std::size_t i = 0; i < columns; ++i)
          load(memory_.turned.data() + i * whole_rows * size_, i * rows + row, 1, whole_rows);
      } else {
        load(in, column * rows + row, rows, now);
      }
      in += now * size_;
      at += now;
      left -= now;
    }
  }

  const TensorPart& part_;
  FileDtype dtype_;
  std::size_t size_;
  PieceMemory& memory_;
  std::size_t first_ = 0, count_ = 0;  // of the piece
};

/// Reads a box to the model. For a device it goes through memory of the host, as a whole: see
/// `read_staged` and `store`.
inline void read_in_place(const FromFile& from, const TensorPart& part, PieceMemory& memory) {
  if (!part.is_on_host()) return store(read_staged(from, part));
  const std::size_t size = from.element_bytes();
  if (from.dtype == part.dtype && part.stride == size && !part.file.transposed) {
    return read_box(from, part, [&](std::size_t local, std::size_t count) {
      return std::span(part.memory + local * size, count * size);
    });
  }
  Pieces pieces(from, part, memory);
  read_box(from, part,
           [&](std::size_t local, std::size_t count) { return pieces.take(local, count); });
  pieces.store();
}

}  // namespace shardwise::detail
