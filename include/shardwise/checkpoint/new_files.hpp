#pragma once
// The files that a save will write: which tensors are in which of them, and their headers.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/checksum.hpp"
#include "shardwise/checkpoint/part.hpp"
#include "shardwise/checkpoint/safetensors_header.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/checkpoint/whole_tensor.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// Options of saving, the same on all ranks.
struct SaveOptions {
  TensorNames names{};  ///< of tensors in the file
  /// More bytes of tensors than this are split into several files with an index. A tensor is never
  /// split, so a larger one has its own file.
  std::uint64_t max_shard_bytes = 5'000'000'000;
  /// Stored in the file, and returned on loading.
  std::map<std::string, std::string> metadata{};
  /// Tensors of the caller, in memory of the host, beside those of the model:
  /// `{part_of("data.mean", mean.view())}`.
  std::vector<TensorPart> own{};
};

namespace detail {

/// One file to be written.
struct NewFile {
  std::filesystem::path path;
  SafetensorsHeader header;
  std::string first_bytes;           // length and header; no checksum changes their number
  std::vector<WholeTensor> tensors;  // in order of their offsets

  std::uint64_t data_bytes() const {
    return tensors.empty() ? 0 : header.tensors.at(tensors.back().name()).end;
  }

  /// Those of its tensors, in the same order.
  void set_checksums(std::span<const Checksum> checksums) {
    std::map<std::string, std::string> by_name;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      by_name[tensors[i].name()] = checksums[i].text();
    detail::set_checksums(header, by_name);
    first_bytes = safetensors_header_bytes(header);
  }
};

/// Throws argument_error if a file cannot have tensors of these names and rows.
inline void check_names(const std::vector<WholeTensor>& tensors) {
  for (const WholeTensor& tensor : tensors) {
    std::size_t end = 0;  // of the rows so far
    const bool is_once =
        std::all_of(tensor.parts.begin(), tensor.parts.end(), [&](const auto& part) {
          return std::exchange(end, end + part.rows()) == part.file.first_row;
        });
    if (is_once && tensor.name() != "__metadata__") continue;
    throw argument_error({"checkpoint: two tensors are to be ", in_quotes(tensor.name()),
                          " or the same rows of it, or that name is the format's own; look at the "
                          "names in the options"});
  }
}

/// Distributes the tensors over files, those of wide dtypes first, so that all are aligned.
inline std::vector<NewFile> cut_into_files(std::vector<WholeTensor> tensors,
                                           const SaveOptions& options) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const WholeTensor& a, const WholeTensor& b) {
    return a.dtype().bits > b.dtype().bits;
  });
  std::vector<NewFile> files(1);
  for (WholeTensor& tensor : tensors) {
    const std::uint64_t bytes = tensor.bytes();
    std::uint64_t begin = files.back().data_bytes();
    if (begin > 0 && begin + bytes > options.max_shard_bytes) {
      files.emplace_back();
      begin = 0;
    }
    NewFile& file = files.back();
    const TensorInfo info{tensor.dtype(), file_shape(tensor.shape), begin, begin + bytes};
    file.header.tensors.emplace(tensor.name(), info);
    file.tensors.push_back(std::move(tensor));
  }
  for (NewFile& file : files) {
    file.header.metadata = options.metadata;
    file.header.metadata.emplace("format", "pt");  // of PyTorch: Hugging Face's readers need it
    file.set_checksums(std::vector<Checksum>(file.tensors.size()));
  }
  return files;
}

/// The tensors to save, checked as far as possible without the disk.
inline std::vector<NewFile> plan_save(const std::filesystem::path& path,
                                      const std::vector<TensorPart>& parts,
                                      const SaveOptions& options) {
  if (path.extension() != ".safetensors" || path.stem().empty()) {
    throw argument_error(
        {"checkpoint ", path.string(), ": the name of a checkpoint ends in .safetensors"});
  }
  std::vector<WholeTensor> tensors = whole_tensors(parts);
  check_names(tensors);
  return cut_into_files(std::move(tensors), options);
}

}  // namespace detail

}  // namespace shardwise
