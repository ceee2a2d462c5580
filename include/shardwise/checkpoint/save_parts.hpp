#pragma once
// Saves a checkpoint from all ranks.
//
// Each rank writes its own elements to their positions in the file. No rank ever holds more of a
// tensor than its part, and the communicator sends only whether all ranks succeeded. This needs a
// file system that all ranks share. (To gather pieces on one rank would not need it, but would send
// every byte twice while the other ranks wait.)
//
// The new files are beside the old ones until the last byte is on the disk. Then one rename makes
// them the checkpoint: of the file itself, or of the index that names the files. (Where an index
// follows a single file, it is the removal of that file.) A failure before this leaves the old
// checkpoint unchanged.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/part.hpp"
#include "shardwise/checkpoint/safetensors_header.hpp"
#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/checkpoint/whole_tensor.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"
#include "shardwise/model/agree.hpp"

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
  std::string first_bytes;           // length and header
  std::vector<WholeTensor> tensors;  // in order of their offsets

  std::uint64_t data_bytes() const {
    return tensors.empty() ? 0 : header.tensors.at(tensors.back().name()).end;
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
    file.first_bytes = safetensors_header_bytes(file.header);
  }
  return files;
}

/// How the name of a shard ends behind the stem of its checkpoint's name:
/// "-b-00002-of-00003.safetensors". Successive checkpoints of one name alternate between the
/// generations a and b, so that new files never have the names of those in use.
inline std::string shard_ending(char generation, std::size_t number, std::size_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "-%c-%05zu-of-%05zu.safetensors", generation, number, count);
  return text;
}

/// The generation in what shard_ending() returned; nothing for any other text.
inline std::optional<char> generation_in(const std::string& ending) {
  char generation = 0;
  std::size_t number = 0, count = 0;
  std::sscanf(ending.c_str(), "-%c-%19zu-of-%19zu", &generation, &number, &count);
  const bool is_one = generation == 'a' || generation == 'b';
  if (!is_one || ending != shard_ending(generation, number, count)) return std::nullopt;
  return generation;
}

/// How the name of a file ends that becomes the checkpoint, or its index, when it is complete.
inline constexpr const char* saving_ending = ".saving";

/// The shards of the checkpoint at `path` that are named as above; none if it has no index, or one
/// that is damaged. Files with other names are not removed.
/// throws   data_error if the index cannot be read: shards that are in use could be overwritten
inline std::set<std::string> shards_in_use(const std::filesystem::path& path) {
  if (!is_there(index_path(path), "checkpoint")) return {};
  const auto file = File::open(index_path(path), "checkpoint");
  const std::uint64_t bytes = std::min(file.size(), longest_safetensors_header);
  const std::string text = read_text(file, 0, bytes);
  const std::string stem = path.stem().string();
  std::set<std::string> shards;
  try {
    const auto index = parse_safetensors_index(text, "the old index");
    for (const auto& [tensor, shard] : index.files) {
      if (shard.starts_with(stem) && generation_in(shard.substr(stem.size()))) shards.insert(shard);
    }
  } catch (const data_error&) {  // no index: nothing is in use
  }
  return shards;
}

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
/// of the file. The file's tensor begins at `begin` in the file.
inline void write_box(const File& file, std::uint64_t begin, const TensorPart& part, Place writer,
                      std::span<std::byte> scratch) {
  const std::size_t bytes = part.element_bytes();
  const bool is_as_in_file = part.is_on_host() && part.stride == bytes;
  const std::size_t most = is_as_in_file ? part.elements() : scratch.size() / part.stride;
  for_each_written_run(part, writer, [&](std::size_t whole, std::size_t local, std::size_t count) {
    for (std::size_t done = 0; done < count; done += most) {
      const std::size_t now = std::min(most, count - done);
      const std::span<const std::byte> piece =
          is_as_in_file ? std::span(part.memory + (local + done) * part.stride, now * bytes)
                        : gathered(part, local + done, now, scratch);
      file.write(begin + (whole + done) * bytes, piece);
    }
  });
}

/// The files of one save, on one rank. They are removed if the save fails.
class Saving {
 public:
  Saving(const std::filesystem::path& path, std::vector<NewFile> files)
      : path_(path), files_(std::move(files)) {}

  bool has_index() const { return files_.size() > 1; }
  const std::vector<NewFile>& files() const { return files_; }

  /// The letter of the shards, which rank 0 chooses.
  char free_generation() const {
    const std::set<std::string> used = shards_in_use(path_);
    if (used.empty()) return 'a';
    return generation_in(used.begin()->substr(path_.stem().string().size())) == 'a' ? 'b' : 'a';
  }

  void name_files(char generation) {
    if (!has_index()) files_.front().path = with_ending(path_, saving_ending);
    for (std::size_t i = 0; has_index() && i < files_.size(); ++i) {
      files_[i].path = with_ending(path_.parent_path() / path_.stem(),
                                   shard_ending(generation, i + 1, files_.size()));
    }
  }

  /// Creates the files with their full size and headers. On rank 0 only.
  void create() const {
    for (const NewFile& file : files_) {
      const auto made = File::create(file.path, "checkpoint");
      made.reserve(file.first_bytes.size() + file.data_bytes());
      made.write(0, std::as_bytes(std::span(file.first_bytes)));
      made.sync();
    }
  }

  /// Writes this rank's elements, and returns when they are on the disk.
  void write(const Writers& writers) const {
    std::vector<std::byte> scratch(std::size_t{1} << 18);
    std::vector<std::byte> turned;
    for (const NewFile& file : files_) {
      const auto opened = File::open_to_write(file.path, "checkpoint");
      for (const WholeTensor& tensor : file.tensors) {
        const std::uint64_t begin =
            file.first_bytes.size() + file.header.tensors.at(tensor.name()).begin;
        for (const TensorPart& part : tensor.parts) {
          const Place writer = writers.of(part);
          for_each_box(part, [&](const TensorPart& box) {
            write_box(opened, begin, in_order_of_file(box, turned), writer, scratch);
          });
        }
      }
      opened.sync();
    }
  }

  /// Makes the new files the checkpoint, and removes those of the old one. On rank 0 only.
  void publish() {
    const std::set<std::string> old = shards_in_use(path_);
    const std::filesystem::path index = index_path(path_);
    if (has_index()) {
      publish_index(index);
    } else {
      rename_file(files_.front().path, path_, "checkpoint");
      sync_folder_of(path_, "checkpoint");
      remove_file(index);
    }
    for (const std::string& shard : old) remove_file(path_.parent_path() / shard);
  }

  /// Removes the files of a save that failed, unless they are the checkpoint now or the file system
  /// does not say. On rank 0 only.
  void clean_up() const noexcept {
    if (!unpublished_while_.empty() && !is_surely_there(unpublished_while_)) return;
    for (const NewFile& file : files_) remove_file(file.path);
    remove_file(unfinished_index());
    if (unpublished_while_ == path_) remove_file(index_path(path_));
  }

 private:
  static std::filesystem::path with_ending(std::filesystem::path path, const std::string& ending) {
    return path += ending;
  }

  std::filesystem::path unfinished_index() const {
    return with_ending(index_path(path_), saving_ending);
  }

  /// A file at the path is read in place of an index. If there is one, it is the checkpoint until
  /// it is removed.
  void publish_index(const std::filesystem::path& index) {
    const bool hides = is_there(path_, "checkpoint");
    write_index(unfinished_index());
    sync_folder_of(path_, "checkpoint");
    unpublished_while_ = hides ? path_ : unfinished_index();
    rename_file(unfinished_index(), index, "checkpoint");
    sync_folder_of(path_, "checkpoint");
    if (!hides) return;
    require_removed(path_, "checkpoint");
    sync_folder_of(path_, "checkpoint");
  }

  void write_index(const std::filesystem::path& path) const {
    SafetensorsIndex index;
    std::uint64_t total = 0;
    for (const NewFile& file : files_) {
      total += file.data_bytes();
      for (const WholeTensor& tensor : file.tensors) {
        index.files.emplace(tensor.name(), file.path.filename().string());
      }
    }
    const std::string text = safetensors_index_text(index, total);
    const auto made = File::create(path, "checkpoint");
    made.write(0, std::as_bytes(std::span(text)));
    made.sync();
  }

  std::filesystem::path path_;
  std::vector<NewFile> files_;
  // As long as a file has this name, the index does not count. Empty before the index is renamed.
  std::filesystem::path unpublished_while_;
};

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

/// A hash of all headers, and of the rows of all parts.
inline std::uint64_t fingerprint_of(const std::vector<NewFile>& files,
                                    const std::vector<TensorPart>& parts) {
  std::uint64_t value = 0;
  for (const NewFile& file : files) value = fingerprint(file.first_bytes, value);
  for (const TensorPart& part : parts) {
    value = fingerprint(part.file.name + ' ' + std::to_string(part.file.first_row), value);
  }
  return value;
}

/// Those of a model, or of other ranks, which hold unlike parts of split tensors.
template <AgreeingRanks R>
Writers writers_of(R& ranks) {
  Writers writers;
  if constexpr (requires { ranks.mesh_place(); })
    writers.place = ranks.mesh_place();
  else
    writers.place[MeshAxis::tensor] = {ranks.rank(), ranks.size()};
  return writers;
}

}  // namespace detail

/// Writes the tensors, of which each rank passes its part, and `options.own` as the checkpoint
/// `path`. The name ends in ".safetensors", and its folder exists. One program at a time writes to
/// a name. A collective; every rank passes the same tensors in the same order, and the same
/// options.
///
/// sends    only whether each step succeeded on all ranks
/// throws   data_error on every rank if any of them cannot write: the disk is full, the folder not
///          there; the old checkpoint is then as it was. If only the last sync of the folder fails,
///          the new one is in its place, but may be lost if the power fails; if the file system
///          does not say whether it is in its place, the files of both are left. argument_error for
///          another ending, for two tensors of one name and rows, for rows that do not fit together
///          as one tensor, and for ranks that do not save the same
template <AgreeingRanks R>
void save_parts(const std::filesystem::path& path, R& ranks,
                const std::vector<TensorPart>& of_model, const SaveOptions& options) {
  const std::vector<TensorPart> parts = detail::joined(of_model, options.own);
  std::vector<detail::NewFile> files;
  detail::on_all_ranks(ranks, [&] { files = detail::plan_save(path, parts, options); });
  if (!detail::same_on_all_ranks(ranks, detail::fingerprint_of(files, parts))) {
    throw argument_error({"checkpoint ", path.string(),
                          ": the ranks do not save the same tensors with the same metadata; give "
                          "each of them equal arguments"});
  }
  detail::Saving saving(path, std::move(files));
  const bool leads = ranks.rank() == 0;
  std::uint8_t generation = 0;
  detail::on_all_ranks(ranks, [&] {
    if (leads) generation = static_cast<std::uint8_t>(saving.free_generation());
  });
  ranks.broadcast(std::span(&generation, 1), 0);
  saving.name_files(static_cast<char>(generation));
  try {
    detail::on_all_ranks(ranks, [&] {
      if (leads) saving.create();
    });
    detail::on_all_ranks(ranks, [&] { saving.write(detail::writers_of(ranks)); });
    detail::on_all_ranks(ranks, [&] {
      if (leads) saving.publish();
    });
  } catch (...) {
    if (leads) saving.clean_up();
    throw;
  }
}

}  // namespace shardwise
