#pragma once
// One tensor in a .npy file, as in numpy.save and numpy.load.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"
#include "shardwise/interop/dense.hpp"
#include "shardwise/interop/npy_header.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

namespace detail {

/// A .npy file whose header is read and matches the size of the file.
class NpyFile {
 public:
  explicit NpyFile(const std::filesystem::path& path)
      : where_("npy file " + path.string()), file_(File::open(path, "npy file")) {
    const std::uint64_t bytes = file_.size();
    const std::string first = read_text(0, std::min<std::uint64_t>(bytes, 12));
    const NpyStart start = find_npy_header(first, bytes, where_);
    begin_ = start.begin + start.length;
    header_ = parse_npy_header(read_text(start.begin, start.length), bytes - begin_, where_);
  }

  const std::string& where() const { return where_; }
  const NpyHeader& header() const { return header_; }

  void require_dtype(Dtype wanted) const {
    if (header_.dtype == wanted) return;
    throw data_error({where_, ": holds ", name(header_.dtype), " and was asked for ", name(wanted),
                      "; read it as what it is, or convert it with x.astype"});
  }

  /// Reads elements from number `first` on.
  template <Element T>
  void read(std::size_t first, std::span<T> elements) const {
    file_.read(begin_ + std::uint64_t{first} * sizeof(T), std::as_writable_bytes(elements));
  }

 private:
  std::string read_text(std::uint64_t offset, std::uint64_t length) const {
    std::string text(static_cast<std::size_t>(length), '\0');
    file_.read(offset, std::as_writable_bytes(std::span(text)));
    return text;
  }

  std::string where_;
  File file_;
  std::uint64_t begin_ = 0;
  NpyHeader header_;
};

inline std::vector<std::uint64_t> extents_of(const Shape& shape) {
  std::vector<std::uint64_t> extents;
  for (const Dim& dim : shape) extents.push_back(dim.extent());
  return extents;
}

/// A layout in which a rank holds a part of the value.
template <class L>
concept HoldsValues = Layout<L> && !std::same_as<L, Partial> && !HaloedPartialLayout<L>;

}  // namespace detail

/// The header of the file; its elements are not read.
/// throws   data_error if it cannot be read or is not a .npy file as described in npy_header.hpp
inline NpyHeader read_npy_header(const std::filesystem::path& path) {
  return detail::NpyFile(path).header();
}

/// Fills `view` with the rank's own part of the array in the file, and reads no other elements: one
/// read for each run that is contiguous in the file. Not a collective.
/// throws   data_error as above and for another dtype than T, shape_error for another shape than
///          `view.global()`; nothing is written then, unless the disk fails halfway
template <Element T, detail::HoldsValues L, class E>
void read_npy(const std::filesystem::path& path, const View<T, L, E>& view) {
  const detail::NpyFile file(path);
  file.require_dtype(dtype_v<T>);
  if (file.header().shape != detail::extents_of(view.global())) {
    throw shape_error({file.where(), ": has the shape ", detail::shape_text(file.header().shape),
                       " and was asked for as ", view.global(),
                       "; give a view of the same extents"});
  }
  for_each_global_run(view, [&](std::size_t in_file, std::size_t in_view, std::size_t length) {
    file.read(in_file, view.span().subspan(in_view, length));
  });
}

/// The array in the file, whole on this rank, with a name for each axis:
/// `read_npy<float>("x.npy", {Axis::batch, Axis::feature})`.
/// throws   data_error as above; memory_error; shape_error if there are not as many names as axes,
///          or more than 6
template <Element T>
Tensor<T, Invariant> read_npy(const std::filesystem::path& path, const std::vector<Axis>& axes) {
  const detail::NpyFile file(path);
  file.require_dtype(dtype_v<T>);
  Tensor<T, Invariant> tensor(detail::named_shape(axes, file.header().shape, file.where()));
  file.read(0, tensor.view().span());
  return tensor;
}

/// Writes a tensor that this rank holds whole, in C order. The file is written as `path` with the
/// suffix ".saving", and renamed when all of it is on the disk; until then an older file is
/// unchanged. One rank calls this, and one program at a time writes to a name.
/// throws   data_error if it cannot be written
template <class T, class E>
void write_npy(const std::filesystem::path& path, const View<T, Invariant, E>& view) {
  constexpr const char* kind = "npy file";
  constexpr Dtype dtype = dtype_v<std::remove_const_t<T>>;
  const std::string header = detail::npy_header_bytes({dtype, detail::extents_of(view.global())});
  const std::filesystem::path saving = path.string() + ".saving";
  try {
    const detail::File file = detail::File::create(saving, kind);
    file.reserve(header.size() + view.span().size_bytes());
    file.write(0, std::as_bytes(std::span(header)));
    file.write(header.size(), std::as_bytes(view.span()));
    file.sync();
    detail::rename_file(saving, path, kind);
  } catch (...) {
    detail::remove_file(saving);
    throw;
  }
  detail::sync_folder_of(path, kind);
}

}  // namespace shardwise
