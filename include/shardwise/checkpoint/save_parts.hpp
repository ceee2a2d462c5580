#pragma once
// Saves a checkpoint from all ranks.
//
// Each rank writes its own elements to their positions in the file. No rank ever holds more of a
// tensor than its part, and the communicator sends only whether all ranks succeeded, and checksums.
// This needs a file system that all ranks share. (To gather pieces on one rank would not need it,
// but would send every byte twice while the other ranks wait.)
//
// The new files are beside the old ones until the last byte is on the disk. Then one rename makes
// them the checkpoint: of the file itself, or of the index that names the files. (Where an index
// follows a single file, it is the removal of that file.) A failure before this leaves the old
// checkpoint unchanged.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "shardwise/checkpoint/checksum.hpp"
#include "shardwise/checkpoint/checksums_of_ranks.hpp"
#include "shardwise/checkpoint/new_files.hpp"
#include "shardwise/checkpoint/part.hpp"
#include "shardwise/checkpoint/safetensors_header.hpp"
#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/checkpoint/whole_tensor.hpp"
#include "shardwise/checkpoint/write_part.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"
#include "shardwise/model/agree.hpp"

namespace shardwise {

namespace detail {

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

/// The files of one save, on one rank. They are removed if the save fails.
class Saving {
 public:
  /// throws   as plan_save
  Saving(const std::filesystem::path& path, const std::vector<TensorPart>& parts,
         const SaveOptions& options);

  bool has_index() const { return files_.size() > 1; }

  /// A hash of the checkpoint's name without its folder, of all headers, and of the rows of all
  /// parts.
  std::uint64_t fingerprint_of(const std::vector<TensorPart>& parts) const;

  /// The letter of the shards, which rank 0 chooses.
  char free_generation() const;

  void name_files(char generation);

  /// Creates the files with their full size. On rank 0 only.
  void create() const;

  /// Writes this rank's elements, and returns when they are on the disk: for each tensor of each
  /// file, in their order, a checksum of what this rank has written.
  std::vector<Checksum> write(const Writers& writers) const;

  /// Writes the headers, with the checksums of all ranks together. On rank 0 only.
  void write_headers(std::span<const Checksum> checksums);

  /// Makes the new files the checkpoint, and removes those of the old one. On rank 0 only.
  void publish();

  /// Removes the files of a save that failed, unless they are the checkpoint now or the file system
  /// does not say. On rank 0 only.
  void clean_up() const noexcept;

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

/// Throws argument_error on all ranks if their fingerprints differ, and names two that do not save
/// the same. A collective.
template <AgreeingRanks R>
void require_same_save(const std::filesystem::path& path, R& ranks, std::uint64_t fingerprint) {
  if (same_on_all_ranks(ranks, fingerprint)) return;
  const int other = first_unlike_rank_0(ranks, fingerprint);
  const std::string name = path.filename().string();
  const std::string of_rank_0 = broadcast_text(ranks, name, 0);
  const std::string of_other = broadcast_text(ranks, name, other);
  throw argument_error({"checkpoint ", path.string(),
                        ": the ranks do not save the same: rank 0 saves ", of_rank_0, ", rank ",
                        other, " saves ", of_other,
                        of_other == of_rank_0 ? " with other tensors or metadata" : "",
                        "; let all ranks make the same calls with equal arguments"});
}

}  // namespace detail

/// Writes the tensors, of which each rank passes its part, and `options.own` as the checkpoint
/// `path`. The name ends in ".safetensors", and its folder exists. Programs that save in one folder
/// wait for each other, so of two that save to one name each writes a whole checkpoint, and the
/// later one stays; one that waits longer than the time-out of its ranks fails. On a network file
/// system without locks let one program write to a name. A collective; every rank passes the same
/// tensors in the same order, and the same options.
///
/// sends    only whether each step succeeded on all ranks, and the checksums of their elements
/// throws   data_error on every rank if any of them cannot write: the disk is full, the folder not
///          there; the old checkpoint is then as it was. If only the last sync of the folder fails,
///          the new one is in its place, but may be lost if the power fails; if the file system
///          does not say whether it is in its place, the files of both are left. argument_error for
///          another ending, for two tensors of one name and rows, for rows that do not fit together
///          as one tensor, and for ranks that do not save the same
template <detail::AgreeingRanks R>
void save_parts(const std::filesystem::path& path, R& ranks,
                const std::vector<TensorPart>& of_model, const SaveOptions& options) {
  const std::vector<TensorPart> parts = detail::joined(of_model, options.own);
  std::optional<detail::Saving> saving;
  detail::on_all_ranks(ranks, [&] { saving.emplace(path, parts, options); });
  detail::require_same_save(path, ranks, saving->fingerprint_of(parts));
  const bool leads = ranks.rank() == 0;
  std::uint8_t generation = 0;
  std::optional<detail::FolderLock> lock;
  detail::on_all_ranks(ranks, [&] {
    if (!leads) return;
    lock.emplace(path);
    generation = static_cast<std::uint8_t>(saving->free_generation());
  });
  ranks.broadcast(std::span(&generation, 1), 0);
  saving->name_files(static_cast<char>(generation));
  try {
    detail::on_all_ranks(ranks, [&] {
      if (leads) saving->create();
    });
    std::vector<detail::Checksum> checksums;
    detail::on_all_ranks(ranks, [&] { checksums = saving->write(detail::writers_of(ranks)); });
    detail::sum_over_ranks(ranks, checksums);
    detail::on_all_ranks(ranks, [&] {
      if (!leads) return;
      saving->write_headers(checksums);
      saving->publish();
    });
  } catch (...) {
    if (leads) saving->clean_up();
    throw;
  }
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE Saving::Saving(const std::filesystem::path& path,
                                const std::vector<TensorPart>& parts, const SaveOptions& options)
    : path_(path), files_(plan_save(path, parts, options)) {}

SHARDWISE_INLINE std::uint64_t Saving::fingerprint_of(const std::vector<TensorPart>& parts) const {
  std::uint64_t value = fingerprint(path_.filename().string(), 0);
  for (const NewFile& file : files_) value = fingerprint(file.first_bytes, value);
  for (const TensorPart& part : parts) {
    value = fingerprint(part.file.name + ' ' + std::to_string(part.file.first_row), value);
  }
  return value;
}

SHARDWISE_INLINE char Saving::free_generation() const {
  const std::set<std::string> used = shards_in_use(path_);
  if (used.empty()) return 'a';
  return generation_in(used.begin()->substr(path_.stem().string().size())) == 'a' ? 'b' : 'a';
}

SHARDWISE_INLINE void Saving::name_files(char generation) {
  if (!has_index()) files_.front().path = with_ending(path_, saving_ending);
  for (std::size_t i = 0; has_index() && i < files_.size(); ++i) {
    files_[i].path = with_ending(path_.parent_path() / path_.stem(),
                                 shard_ending(generation, i + 1, files_.size()));
  }
}

SHARDWISE_INLINE void Saving::create() const {
  for (const NewFile& file : files_) {
    const auto made = File::create(file.path, "checkpoint");
    made.reserve(file.first_bytes.size() + file.data_bytes());
    made.sync();
  }
}

SHARDWISE_INLINE std::vector<Checksum> Saving::write(const Writers& writers) const {
  std::vector<Checksum> checksums;
  std::vector<std::byte> scratch(std::size_t{1} << 18);
  std::vector<std::byte> turned;
  for (const NewFile& file : files_) {
    const auto opened = File::open_to_write(file.path, "checkpoint");
    for (const WholeTensor& tensor : file.tensors) {
      const std::uint64_t begin =
          file.first_bytes.size() + file.header.tensors.at(tensor.name()).begin;
      Checksum& checksum = checksums.emplace_back();
      for (const TensorPart& part : tensor.parts) {
        const Place writer = writers.of(part);
        for_each_box(part, [&](const TensorPart& box) {
          write_box(opened, begin, in_order_of_file(box, turned), writer, scratch, checksum);
        });
      }
    }
    opened.sync();
  }
  return checksums;
}

SHARDWISE_INLINE void Saving::write_headers(std::span<const Checksum> checksums) {
  for (NewFile& file : files_) {
    file.set_checksums(checksums.first(file.tensors.size()));
    checksums = checksums.subspan(file.tensors.size());
    const auto opened = File::open_to_write(file.path, "checkpoint");
    opened.write(0, std::as_bytes(std::span(file.first_bytes)));
    opened.sync();
  }
}

SHARDWISE_INLINE void Saving::publish() {
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

SHARDWISE_INLINE void Saving::clean_up() const noexcept {
  if (!unpublished_while_.empty() && !is_surely_there(unpublished_while_)) return;
  for (const NewFile& file : files_) remove_file(file.path);
  remove_file(unfinished_index());
  if (unpublished_while_ == path_) remove_file(index_path(path_));
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
