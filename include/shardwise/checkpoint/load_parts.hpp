#pragma once
// Loads a checkpoint: each rank reads its own part, and all ranks succeed or none changes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "shardwise/checkpoint/checksum.hpp"
#include "shardwise/checkpoint/checksums_of_ranks.hpp"
#include "shardwise/checkpoint/other_tensors.hpp"
#include "shardwise/checkpoint/part.hpp"
#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/checkpoint/whole_tensor.hpp"
#include "shardwise/core/checked_size.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"
#include "shardwise/model/agree.hpp"

namespace shardwise {

/// Options of loading, the same on all ranks.
struct LoadOptions {
  TensorNames names{};   ///< as in SaveOptions
  bool convert = false;  ///< load tensors of other dtypes too, rounded to ours
  /// Tensors of the file that the model does not need. They are passed over, but one that is no
  /// copy of what it must be is an error, also with `ignore_unexpected`.
  OtherTensors others{};
  /// Pass over all other tensors that are not needed; `num_batches_tracked` of PyTorch always is.
  bool ignore_unexpected = false;
  /// Gets the names of those that only `ignore_unexpected` passes over: the model is not all of
  /// what the file describes. Each rank has its own.
  std::vector<std::string>* passed_over = nullptr;
  std::vector<TensorPart> own{};  ///< tensors of the caller to fill, as in SaveOptions
};

namespace detail {

/// Collects all mismatches for one message.
class Mismatches {
 public:
  void add(const std::string& kind, const std::string& what) { found_[kind].push_back(what); }

  /// throws   data_error if anything was added
  void raise(const std::string& where) const {
    if (found_.empty()) return;
    constexpr std::size_t most = 20;  // of each kind
    std::string text = where + ": is not of this model";
    for (const auto& [kind, names] : found_) {
      text += "; " + kind + ": ";
      for (std::size_t i = 0; i < std::min(most, names.size()); ++i) {
        text += (i > 0 ? ", " : "") + names[i];
      }
      if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
    }
    throw data_error({text,
                      ". Load it into the architecture that it was saved from, or give the "
                      "names that its tensors have in the file"});
  }

 private:
  std::map<std::string, std::vector<std::string>> found_;
};

inline void compare(const WholeTensor& tensor, const TensorInfo& info, bool convert,
                    Mismatches& found) {
  const std::vector<std::uint64_t> shape = file_shape(tensor.shape);
  if (info.shape != shape) {
    found.add("of another shape", in_quotes(tensor.name()) + " is " + shape_text(info.shape) +
                                      " in the file and " + shape_text(shape) + " here");
  }
  const bool is_convertible = is_loadable(info.dtype) && is_loadable(tensor.dtype());
  if (info.dtype == tensor.dtype() || (convert && is_convertible)) return;
  found.add("of another dtype", in_quotes(tensor.name()) + " is " + std::string(info.dtype.name) +
                                    " in the file and " + std::string(tensor.dtype().name) +
                                    " here" +
                                    (is_convertible ? " (LoadOptions::convert loads it)" : ""));
}

/// PyTorch's batch normalisation counts its batches, and needs the count only for a mean over all.
inline constexpr const char* batches_of_pytorch = ".num_batches_tracked";

/// Says which unrequested tensors a file may have.
using IsExpected = bool(const std::string& name);

/// Compares the tensors of the files with the requested ones.
/// throws   data_error with all tensors that are missing, unexpected, or of another shape or dtype,
///          and for one that is no copy of what it must be, as far as this rank reads it
inline void check_tensors(const TensorFiles& files, const std::vector<WholeTensor>& tensors,
                          const LoadOptions& options, IsExpected* is_expected, Place rank) {
  Mismatches found;
  std::set<std::string> asked;
  std::vector<std::string> passed_over;
  for (const WholeTensor& tensor : tensors) {
    asked.insert(tensor.name());
    const auto there = files.tensors().find(tensor.name());
    if (there == files.tensors().end()) {
      found.add("missing", in_quotes(tensor.name()));
    } else {
      compare(tensor, there->second.info, options.convert, found);
    }
  }
  for (const auto& [name, place] : files.tensors()) {
    if (asked.contains(name) || is_expected(name) || name.ends_with(batches_of_pytorch)) continue;
    if (is_without_meaning(options.others, name)) continue;
    if (const std::string original = original_of(files, options.others, name); !original.empty())
      require_copy(files, name, original, rank);
    else if (!options.ignore_unexpected)
      found.add("unexpected", in_quotes(name));
    else
      passed_over.push_back(name);
  }
  found.raise(files.name());
  if (options.passed_over != nullptr) *options.passed_over = passed_over;
}

/// A rank's elements from the file, before they are copied to the model.
struct StagedPart {
  TensorPart part;
  FileDtype dtype{};  // of the file
  std::unique_ptr<std::byte[]> bytes{};
};

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
  Checksum& checksum;
};

/// Reads the rank's elements of a box of one tensor of the model. The file's tensor begins at
/// `begin` in the file.
inline std::unique_ptr<std::byte[]> read_box(const File& file, std::uint64_t begin,
                                             const TensorPart& part, const FileDtype& dtype,
                                             const InChecksum& counted) {
  const std::size_t size = dtype.bits / 8;
  auto bytes = std::make_unique_for_overwrite<std::byte[]>(part.elements() * size);
  const auto read = [&](std::size_t whole, std::size_t local, std::size_t count) {
    const std::span<std::byte> there(bytes.get() + local * size, count * size);
    file.read(begin + whole * size, there);
    return there;
  };
  const RowsFrom rows(part, counted.row);
  if (rows.shape.elements() < part.elements()) for_each_run_of(part, read);
  const Interval mine = block_of(part.elements(), counted.reader);
  constexpr std::size_t most = 1 << 15;  // elements that stay in a cache
  for_each_run(rows.shape, rows.in_file, rows.in_part,
               [&](std::size_t whole, std::size_t local, std::size_t count) {
                 for (std::size_t done = 0; done < count; done += most) {
                   const std::size_t first = local + done, now = std::min(most, count - done);
                   const auto there = read(whole + done, first, now);
                   const Interval here = overlap({first, now}, mine);
                   if (here.size == 0) continue;
                   const std::size_t skipped = here.offset - first;
                   counted.checksum.add((whole + done + skipped) * size,
                                        there.subspan(skipped * size, here.size * size));
                 }
               });
  if (!part.file.transposed) return bytes;
  auto transposed = std::make_unique_for_overwrite<std::byte[]>(part.elements() * size);
  transpose(bytes.get(), part.local[part.file.ones].extent(),
            part.local[part.file.ones + 1].extent(), size, size, transposed.get());
  return transposed;
}

/// The tensors that each of the files has, in their order.
inline std::vector<std::vector<const WholeTensor*>> tensors_by_file(
    const TensorFiles& files, const std::vector<WholeTensor>& tensors) {
  std::vector<std::vector<const WholeTensor*>> by_file(files.file_count());
  for (const WholeTensor& tensor : tensors)
    by_file[files.tensors().at(tensor.name()).file].push_back(&tensor);
  return by_file;
}

/// Reads this rank's elements of all tensors, and adds to the checksum of each tensor so that with
/// those of the other ranks each element is added once.
inline std::vector<StagedPart> read_parts(const TensorFiles& files,
                                          const std::vector<WholeTensor>& tensors,
                                          const Writers& readers,
                                          std::vector<Checksum>& checksums) {
  std::vector<StagedPart> staged;
  checksums.resize(tensors.size());
  const auto by_file = tensors_by_file(files, tensors);
  for (std::size_t i = 0; i < by_file.size(); ++i) {
    const File file = files.open(i);
    for (const WholeTensor* tensor : by_file[i]) {
      const TensorFiles::Place& place = files.tensors().at(tensor->name());
      const FileDtype dtype = place.info.dtype;
      std::size_t row = 0;  // those before belong to parts before
      for (const TensorPart& part : tensor->parts) {
        const InChecksum counted{readers.of(part), row,
                                 checksums[std::size_t(tensor - &tensors[0])]};
        for_each_box(part, [&](const TensorPart& box) {
          staged.push_back(
              {box, dtype, read_box(file, files.begin_of(place), box, dtype, counted)});
        });
        row = std::max(row, part.file.first_row + part.rows());
      }
    }
  }
  return staged;
}

/// Throws checksum_error if a tensor is not what was saved, by the checksum over all ranks.
inline void require_as_saved(const TensorFiles& files, const std::vector<WholeTensor>& tensors,
                             const std::vector<Checksum>& checksums) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorFiles::Place& place = files.tensors().at(tensors[i].name());
    const bool is_whole = checksums[i].bytes == place.info.end - place.info.begin;
    if (place.checksum.empty() || !is_whole || checksums[i].text() == place.checksum) continue;
    throw checksum_error({files.name_of_file(place), ": the tensor ", in_quotes(tensors[i].name()),
                          " is not what was saved: its checksum is ", checksums[i].text(),
                          " and was ", place.checksum,
                          "; the file is damaged, take another copy of it, or the checkpoint "
                          "before it (or, if a program has changed it on purpose, let that leave "
                          "out the metadata ",
                          header_checksum_key, " and ", checksums_key, ")"});
  }
}

}  // namespace detail

/// Opens a checkpoint on all ranks. A collective.
/// sends    three all-reduces of one number: whether all ranks could read it, and read the same
/// throws   data_error on every rank if one cannot read it, or if ranks read different files
template <detail::AgreeingRanks R>
TensorFiles open_checkpoint(const std::filesystem::path& path, R& ranks) {
  std::optional<TensorFiles> files;
  detail::on_all_ranks(ranks, [&] { files.emplace(path); });
  if (!detail::same_on_all_ranks(ranks, files->fingerprint())) {
    const int other = detail::first_unlike_rank_0(ranks, files->fingerprint());
    throw data_error({files->name(), ": rank 0 and rank ", other,
                      " do not see the same file; it was changed while it was opened, their file "
                      "systems differ, or they were given different names"});
  }
  return std::move(*files);
}

/// Fills the memory of all parts, and of `options.own`, from the tensors of their names. Each rank
/// reads only its own elements. It reads them into separate memory of the same size, and copies
/// them when all ranks have read theirs: if a rank fails, no rank has changed. A collective.
/// sends    two all-reduces: whether all ranks have read their elements, and checksums of these
/// throws   data_error for tensors that are missing, unexpected (unless `is_expected(name)`), of
///          another shape or dtype, all in one message, for files that cannot be read, and for
///          a tensor that is not what its checksum says (if the file has checksums, and the ranks
///          together read all of the tensor);
///          argument_error if parts do not fit together as rows of one tensor of the file;
///          memory_error
template <detail::AgreeingRanks R>
void load_parts(const TensorFiles& files, R& ranks, const std::vector<TensorPart>& parts,
                const LoadOptions& options, detail::IsExpected* is_expected) {
  std::vector<detail::WholeTensor> tensors;
  std::vector<detail::StagedPart> staged;
  std::vector<detail::Checksum> checksums;
  detail::on_all_ranks(ranks, [&] {
    tensors = detail::whole_tensors(detail::joined(parts, options.own));
    detail::check_tensors(files, tensors, options, is_expected, {ranks.rank(), ranks.size()});
    staged = detail::read_parts(files, tensors, detail::writers_of(ranks), checksums);
  });
  detail::sum_over_ranks(ranks, checksums);
  detail::require_as_saved(files, tensors, checksums);
  for (const detail::StagedPart& from : staged) detail::store(from);
}

}  // namespace shardwise
