#pragma once
// A rank's part of one tensor of a checkpoint: its position in the tensor and in memory.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/dtype.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/core/box.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

namespace detail {

/// The elements of a tensor in memory whose other elements are on other ranks along `data`.
struct CutPart {
  std::size_t first = 0;  ///< the number in `kept`'s tensor of the first element of a box
  Interval kept{};        ///< elements in memory, of the rank's part of a tensor of the model
};

}  // namespace detail

/// A rank's part of a named tensor, a box. Its elements are `stride` bytes apart, in row-major
/// order of the model's tensor. Shapes and positions have their axes in the order of the file.
struct TensorPart {
  FileTensor file;              ///< where the file has the tensor
  detail::FileDtype dtype;      ///< in memory, and in the file once it is saved
  Shape whole;                  ///< of the tensor
  Shape local;                  ///< of the box that this rank holds
  detail::BoxIn box;            ///< the position of the box in the file's tensor
  bool is_split = false;        ///< if not, every rank holds the same whole tensor
  std::byte* memory = nullptr;  ///< the first element of the box, or the first that is kept
  std::size_t stride = 0;       ///< in bytes
  void (*load)(const detail::FileDtype&, const std::byte* in, std::byte* out, std::size_t stride,
               std::size_t count) = nullptr;  ///< converts from a file's dtype

  /// If memory has not all elements of the box: which, in the order in which the model has them.
  std::optional<detail::CutPart> cut{};
  /// Whether a load writes to `memory` while it reads, so that one that fails leaves some elements
  /// of the file there. If not, it needs as much memory again.
  bool in_place = false;

  ///@{
  /// Copy bytes from and to memory of a device; empty if `memory` is of the host.
  std::function<void(const std::byte* from, std::span<std::byte> to)> to_host{};
  std::function<void(std::span<const std::byte> from, std::byte* to)> to_device{};
  ///@}

  /// Whether `memory` is of the host.
  bool is_on_host() const { return to_host == nullptr; }

  ///@{
  /// The axis of the tensor's rows, and their number.
  std::size_t row_axis() const { return file.ones + (file.transposed ? 1 : 0); }
  std::size_t rows() const { return whole.rank() == file.ones ? 1 : whole[row_axis()].extent(); }
  ///@}

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

namespace detail {

/// The same axes behind `ones` axes of extent 1.
inline Shape behind_ones(std::size_t ones, const Shape& shape) {
  Shape result;
  for (std::size_t i = 0; i < ones; ++i) result.append({Axis::batch, 1});
  for (const Dim& dim : shape) result.append(dim);
  return result;
}

/// Lets the box begin so many of the model's elements later.
inline void skip(TensorPart& part, std::size_t elements) {
  if (part.cut)
    part.cut->first += elements;
  else
    part.memory += elements * part.stride;
}

/// Sets the axes, their order and the first row that `part.file` says, of a part that is like the
/// view.
void move_into_file(TensorPart& part);

/// Throws argument_error for a tensor that is several in the file, or has its rows in pieces.
inline void require_one_part(const FileTensor& file) {
  if (file.piece == 0 && file.name.find('*') == std::string::npos) return;
  throw argument_error({"checkpoint: part_of makes one part, but ", in_quotes(file.name),
                        " is several, by its * or its pieces: call add_parts"});
}

/// The shape of one element of the outermost axis.
inline Shape without_front(const Shape& shape) {
  Shape rest;
  for (std::size_t i = 1; i < shape.rank(); ++i) rest.append(shape[i]);
  return rest;
}

/// The part in `view` as the model has it: what `part.file` says is not done yet.
template <class A, class T, Layout L>
TensorPart part_like(FileTensor file, const View<T, L>& view, A* memory, std::size_t per_element) {
  static_assert(ShardedLayout<L> || std::same_as<L, Invariant>,
                "a checkpoint holds values, and summands or uses of a value are none");
  TensorPart part{std::move(file),
                  file_dtype_v<A>,
                  view.global(),
                  view.local(),
                  BoxIn{view.global(), {}},
                  ShardedLayout<L>,
                  reinterpret_cast<std::byte*>(memory),
                  per_element * sizeof(A),
                  &load_elements<A>};
  if constexpr (ShardedLayout<L>) {
    part.box = part.box.at(split_position<L>(view.global()),
                           local_block<L>(view.global(), view.place()).offset);
  }
  return part;
}

}  // namespace detail

/// The part in `view`, as the tensor `file` of a file. The memory has `per_element` numbers for
/// each element of the view; `memory` is the first number of this tensor.
/// throws   argument_error if it is to be transposed and is no matrix
template <class A, class T, Layout L>
TensorPart part_of(FileTensor file, const View<T, L>& view, A* memory,
                   std::size_t per_element = 1) {
  TensorPart part = detail::part_like(std::move(file), view, memory, per_element);
  detail::move_into_file(part);
  return part;
}

/// The same of the memory that the view shows. Every rank makes one, of equal name and shape; of a
/// tensor that is Sharded each rank has its block.
/// throws   also for a name with a * and for pieces, which are several parts
template <class T, Layout L>
TensorPart part_of(FileTensor file, const View<T, L>& view) {
  static_assert(!std::is_const_v<T>,
                "a part is also for loading, so its memory must not be const: give a View<double, "
                "Invariant>, and not a View<const double, Invariant>.");
  detail::require_one_part(file);
  return part_of(std::move(file), view, view.data());
}

namespace detail {

/// All parts in one list.
std::vector<TensorPart> joined(std::vector<TensorPart> parts,
                               const std::vector<TensorPart>& others);

/// Adds a part to `parts`, as one part for each piece of its rows in the file.
/// throws   argument_error if its rows are no whole number of pieces, or pieces overlap
inline void add_pieces(const TensorPart& part, std::vector<TensorPart>& parts) {
  const FileTensor& file = part.file;
  if (file.piece == 0) return parts.push_back(part);
  const std::size_t axis = part.row_axis(), rows = part.rows();
  if (rows % file.piece != 0 || file.apart < file.piece) {
    throw argument_error({"checkpoint: ", rows, " rows are to be ", in_quotes(file.name),
                          " in pieces of ", file.piece, ", ", file.apart,
                          " rows apart: give a number that divides the rows, and pieces that do "
                          "not overlap"});
  }
  const Interval held{part.box.begin[axis] - file.first_row, part.local[axis].extent()};
  const std::size_t row = held.size == 0 ? 0 : part.elements() / held.size;
  for (std::size_t begin = 0; begin < rows; begin += file.piece) {
    const Interval here = overlap(held, {begin, file.piece});
    TensorPart one = part;
    one.file.piece = 0;
    one.file.first_row += begin / file.piece * file.apart;
    one.whole[axis] = {part.whole[axis].axis, file.piece};
    one.local[axis] = {part.local[axis].axis, here.size};
    one.box.begin[axis] = one.file.first_row + (here.size == 0 ? 0 : here.offset - begin);
    if (here.size > 0) skip(one, (here.offset - held.offset) * row);
    parts.push_back(std::move(one));
  }
}

/// Adds what `add_parts` says of `part`, which is as the model has it.
void add_part(const TensorPart& part, std::optional<Interval> kept, std::vector<TensorPart>& parts);

}  // namespace detail

/// Adds the parts in `view`, as `part_of` has them, to `parts`: one, or one for each element of the
/// outermost axis if the name in the file has a *, and of those one for each piece of rows. A
/// rank's part of an element that it does not hold is empty. If `kept` is given, memory begins with
/// the first of these elements of the view, and has no others.
/// throws   as part_of, and argument_error for a * and a tensor of fewer than two axes, for rows
///          that are no whole number of pieces, and for pieces that overlap
template <class A, class T, Layout L>
void add_parts(std::vector<TensorPart>& parts, const FileTensor& file, const View<T, L>& view,
               A* memory, std::size_t per_element = 1, std::optional<Interval> kept = {}) {
  detail::add_part(detail::part_like(file, view, memory, per_element), kept, parts);
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

/// Calls f(element of the file's tensor, element of the part, count) for every run of elements that
/// is contiguous in both. The part is in the order of the file.
template <class F>
void for_each_run_of(const TensorPart& part, F&& f) {
  for_each_run(part.local, part.box, BoxIn{part.local, {}}, f);
}

/// The axes of a part from the outermost to the innermost in memory.
inline std::vector<std::size_t> axes_in_memory(const TensorPart& part) {
  std::vector<std::size_t> axes(part.local.rank());
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = i;
  if (part.file.transposed) std::swap(axes[part.file.ones], axes[part.file.ones + 1]);
  return axes;
}

/// The largest box that begins with element `first` of a cut part, in the order of memory, and has
/// none from `end` on.
inline TensorPart largest_box(const TensorPart& part, std::size_t first, std::size_t end) {
  TensorPart box = part;
  box.cut.reset();
  box.memory += (part.cut->first + first - part.cut->kept.offset) * part.stride;
  std::vector<std::size_t> axes = axes_in_memory(part);
  const auto extent = [&] { return part.local[axes.back()].extent(); };
  std::size_t size = 1;  // of the box so far, which has all of the axes that are taken away
  while (!axes.empty() && first % (size * extent()) == 0 && first + size * extent() <= end) {
    size *= extent();
    axes.pop_back();
  }
  std::size_t at = first / size;
  std::size_t units = (end - first) / size;  // along the innermost of the other axes
  for (; !axes.empty(); axes.pop_back(), units = 1) {
    const std::size_t begin = at % extent(), axis = axes.back();
    at /= extent();
    box.local[axis] = {part.local[axis].axis, std::min(units, extent() - begin)};
    box.box.begin[axis] += begin;
  }
  return box;
}

/// Calls f(box) for boxes that together are the elements of the part in memory, which is all of
/// each box: the part itself, unless it is cut.
template <class F>
void for_each_box(const TensorPart& part, F&& f) {
  if (!part.cut) return f(part);
  const Interval here = overlap({part.cut->first, part.elements()}, part.cut->kept);
  std::size_t first = here.offset - part.cut->first;
  const std::size_t end = first + here.size;
  while (first < end) {
    const TensorPart box = largest_box(part, first, end);
    f(box);
    first += box.elements();
  }
}

/// The place of a rank that writes. Those that have the same elements each write a share of them;
/// in a pipeline those of one stage.
struct Writers {
  MeshPlace place;  ///< without a mesh, along `tensor`

  /// The place of the rank among those.
  Place of(const TensorPart& part) const {
    MeshPlace copies = place;
    copies[MeshAxis::pipeline] = {};
    if (part.is_split) copies[MeshAxis::tensor] = {};
    if (part.cut) copies[MeshAxis::data] = {};
    int size = 1;
    for (const Place& along : copies.places) size *= along.size;
    return {rank_at(copies), size};
  }
};

/// As above, for this share of the elements.
template <class F>
void for_each_written_run(const TensorPart& part, Place writer, F&& f) {
  const Interval mine = block_of(part.elements(), writer);
  for_each_run_of(part, [&](std::size_t whole, std::size_t local, std::size_t count) {
    const std::size_t first = std::max(local, mine.offset);
    const std::size_t end = std::min(local + count, mine.end());
    if (first < end) f(whole + (first - local), first, end - first);
  });
}

/// Copies a matrix of elements of `bytes` bytes, `stride` bytes apart, to a dense one with
/// `columns` rows.
inline void transpose(const std::byte* in, std::size_t rows, std::size_t columns,
                      std::size_t stride, std::size_t bytes, std::byte* out) {
  constexpr std::size_t block = 32;  // of rows and columns: both sides stay in the cache
  for (std::size_t r0 = 0; r0 < rows; r0 += block) {
    for (std::size_t c0 = 0; c0 < columns; c0 += block) {
      for (std::size_t r = r0; r < std::min(rows, r0 + block); ++r) {
        for (std::size_t c = c0; c < std::min(columns, c0 + block); ++c) {
          std::memcpy(out + (c * rows + r) * bytes, in + (r * columns + c) * stride, bytes);
        }
      }
    }
  }
}

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void move_into_file(TensorPart& part) {
  if (part.file.transposed) {
    if (part.whole.rank() != 2) {
      throw argument_error({"checkpoint: a tensor ", part.whole, " is to be ",
                            in_quotes(part.file.name),
                            " transposed, and only a matrix can be; look at the names in the "
                            "options"});
    }
    for (Shape* shape : {&part.whole, &part.local, &part.box.whole}) {
      std::swap((*shape)[0], (*shape)[1]);
    }
    std::swap(part.box.begin[0], part.box.begin[1]);
  }
  for (Shape* shape : {&part.whole, &part.local, &part.box.whole}) {
    *shape = behind_ones(part.file.ones, *shape);
  }
  auto& begin = part.box.begin;
  std::rotate(begin.begin(), begin.end() - static_cast<std::ptrdiff_t>(part.file.ones),
              begin.end());
  part.box.begin[part.row_axis()] += part.file.first_row;
}

SHARDWISE_INLINE std::vector<TensorPart> joined(std::vector<TensorPart> parts,
                                                const std::vector<TensorPart>& others) {
  parts.insert(parts.end(), others.begin(), others.end());
  return parts;
}

SHARDWISE_INLINE void add_part(const TensorPart& part, std::optional<Interval> kept,
                               std::vector<TensorPart>& parts) {
  const auto add = [&](TensorPart one, std::size_t skipped) {
    if (kept) one.cut = CutPart{0, *kept};
    skip(one, skipped);
    add_pieces(one, parts);
  };
  TensorPart one = part;
  const std::size_t star = part.file.name.find('*');
  if (star == std::string::npos) {
    move_into_file(one);
    return add(std::move(one), 0);
  }
  if (part.whole.rank() < 2) {
    throw argument_error({"checkpoint: each element of a tensor ", part.whole, " is to be a ",
                          in_quotes(part.file.name),
                          ", but only a tensor of two or more axes has tensors as its elements; "
                          "look at the names in the options"});
  }
  for (Shape* shape : {&one.whole, &one.local, &one.box.whole}) *shape = without_front(*shape);
  auto& begin = one.box.begin;
  const Interval held{std::exchange(begin[0], 0), part.local[0].extent()};
  std::rotate(begin.begin(), begin.begin() + 1, begin.end());
  for (std::size_t i = 0; i < part.whole[0].extent(); ++i) {
    TensorPart element = one;
    element.file.name.replace(star, 1, std::to_string(i));
    move_into_file(element);
    const bool is_here = i - held.offset < held.size;
    if (!is_here) element.local[element.row_axis()].units = 0;
    add(std::move(element), is_here ? (i - held.offset) * one.local.elements() : 0);
  }
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
