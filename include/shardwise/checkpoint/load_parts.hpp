#pragma once
// Loads a checkpoint: each rank reads its own part, and all ranks succeed or all fail.

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
#include "shardwise/checkpoint/read_part.hpp"
#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/checkpoint/whole_tensor.hpp"
#include "shardwise/core/checked_size.hpp"
#include "shardwise/core/compiled.hpp"
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

/// The tensors of the files that these parts and `options.own` are of.
/// throws   data_error with all tensors that are missing, unexpected, or of another shape or dtype,
///          and for one that is no copy of what it must be, as far as this rank reads it
std::vector<WholeTensor> found_tensors(const TensorFiles& files,
                                       const std::vector<TensorPart>& parts,
                                       const LoadOptions& options, IsExpected* is_expected,
                                       Place rank);

/// The tensors that each of the files has, in their order.
inline std::vector<std::vector<const WholeTensor*>> tensors_by_file(
    const TensorFiles& files, const std::vector<WholeTensor>& tensors) {
  std::vector<std::vector<const WholeTensor*>> by_file(files.file_count());
  for (const WholeTensor& tensor : tensors)
    by_file[files.tensors().at(tensor.name()).file].push_back(&tensor);
  return by_file;
}

/// Reads this rank's elements of all tensors: those of parts `in_place` to the model, the others to
/// the result. Adds to the checksum of each tensor so that with those of the other ranks each
/// element is added once.
std::vector<StagedPart> read_parts(const TensorFiles& files,
                                   const std::vector<WholeTensor>& tensors, const Writers& readers,
                                   std::vector<Checksum>& checksums);

/// Throws checksum_error if a tensor is not what was saved, by the checksum over all ranks.
void require_as_saved(const TensorFiles& files, const std::vector<WholeTensor>& tensors,
                      const std::vector<Checksum>& checksums);

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

namespace detail {

/// The tensors of the files that these parts and `options.own` are of. A collective.
/// sends    an all-reduce: whether the files have them on all ranks
/// throws   as load_parts for tensors that are not as requested and for parts that do not fit
template <AgreeingRanks R>
std::vector<WholeTensor> requested_tensors(const TensorFiles& files, R& ranks,
                                           const std::vector<TensorPart>& parts,
                                           const LoadOptions& options, IsExpected* is_expected) {
  std::vector<WholeTensor> tensors;
  on_all_ranks(ranks, [&] {
    tensors = found_tensors(files, parts, options, is_expected, {ranks.rank(), ranks.size()});
  });
  return tensors;
}

/// Reads them on all ranks. A collective.
/// sends    two all-reduces: whether all ranks have read their elements, and checksums of these
/// throws   as load_parts; then parts `in_place` may have some elements of the files
template <AgreeingRanks R>
void load_tensors(const TensorFiles& files, R& ranks, const std::vector<WholeTensor>& tensors) {
  std::vector<StagedPart> staged;
  std::vector<Checksum> checksums;
  on_all_ranks(ranks, [&] { staged = read_parts(files, tensors, writers_of(ranks), checksums); });
  sum_over_ranks(ranks, checksums);
  require_as_saved(files, tensors, checksums);
  for (const StagedPart& from : staged) store(from);
}

}  // namespace detail

/// Fills the memory of all parts, and of `options.own`, from the tensors of their names. Each rank
/// reads only its own elements. It reads them into separate memory of the same size, and copies
/// them when all ranks have read theirs: if a rank fails, no rank has changed. Only parts that are
/// `in_place` need no such memory: they may have changed if ranks fail while they read. A
/// collective.
/// sends    three all-reduces: whether the files have the tensors on all ranks, whether all ranks
///          have read their elements, and checksums of these
/// throws   data_error for tensors that are missing, unexpected (unless `is_expected(name)`), of
///          another shape or dtype, all in one message, for files that cannot be read or change
///          meanwhile, and for a tensor that is not what its checksum says (if the file has
///          checksums, and the ranks together read all of the tensor);
///          argument_error if parts do not fit together as rows of one tensor of the file;
///          memory_error
template <detail::AgreeingRanks R>
void load_parts(const TensorFiles& files, R& ranks, const std::vector<TensorPart>& parts,
                const LoadOptions& options, detail::IsExpected* is_expected) {
  detail::load_tensors(files, ranks,
                       detail::requested_tensors(files, ranks, parts, options, is_expected));
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE std::vector<WholeTensor> found_tensors(const TensorFiles& files,
                                                        const std::vector<TensorPart>& parts,
                                                        const LoadOptions& options,
                                                        IsExpected* is_expected, Place rank) {
  std::vector<WholeTensor> tensors = whole_tensors(joined(parts, options.own));
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
  return tensors;
}

SHARDWISE_INLINE std::vector<StagedPart> read_parts(const TensorFiles& files,
                                                    const std::vector<WholeTensor>& tensors,
                                                    const Writers& readers,
                                                    std::vector<Checksum>& checksums) {
  std::vector<StagedPart> staged;
  PieceMemory memory;
  checksums.resize(tensors.size());
  const auto by_file = tensors_by_file(files, tensors);
  for (std::size_t i = 0; i < by_file.size(); ++i) {
    const File file = files.open(i);
    for (const WholeTensor* tensor : by_file[i]) {
      const TensorFiles::Place& place = files.tensors().at(tensor->name());
      Checksum& checksum = checksums[std::size_t(tensor - &tensors[0])];
      std::size_t row = 0;  // those before belong to parts before
      for (const TensorPart& part : tensor->parts) {
        const FromFile from{file,
                            files.begin_of(place),
                            place.info.dtype,
                            {readers.of(part), row, place.checksum.empty() ? nullptr : &checksum}};
        for_each_box(part, [&](const TensorPart& box) {
          if (!box.in_place) return staged.push_back(read_staged(from, box));
          read_in_place(from, box, memory);
        });
        row = std::max(row, part.file.first_row + part.rows());
      }
    }
    files.require_unchanged(i, file);
  }
  return staged;
}

SHARDWISE_INLINE void require_as_saved(const TensorFiles& files,
                                       const std::vector<WholeTensor>& tensors,
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

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
