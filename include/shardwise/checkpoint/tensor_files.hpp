#pragma once
// The tensors of a checkpoint, in one file or in several with an index, as one set by name.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/checksum.hpp"
#include "shardwise/checkpoint/safetensors_header.hpp"
#include "shardwise/checkpoint/safetensors_index.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"

namespace shardwise {

namespace detail {

/// The index beside a checkpoint: "model.safetensors.index.json" of "model.safetensors".
inline std::filesystem::path index_path(std::filesystem::path path) {
  return path += ".index.json";
}

inline std::string where(const std::filesystem::path& path) {
  return "checkpoint " + path.string();
}

/// `bytes` bytes of a file as text; `bytes` is already compared with the file's size.
inline std::string read_text(const File& file, std::uint64_t offset, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

/// A hash of a text (Fowler, Noll, Vo: FNV-1a).
inline std::uint64_t fingerprint(std::string_view text, std::uint64_t begin) {
  for (const char c : text) begin = (begin ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return begin;
}

}  // namespace detail

/// All tensors of a checkpoint. The constructor reads and checks headers; data are read on request,
/// any slice of them. Files are open only while they are read.
class TensorFiles {
 public:
  /// The position of a tensor.
  struct Place {
    std::size_t file = 0;     ///< its number, for `open`
    detail::TensorInfo info;  ///< its entry in the header of that file
    std::string checksum;     ///< as detail::Checksum writes it; empty in a file without checksums
  };

  /// `path` is a safetensors file. If there is none, "<path>.index.json" names the files; the path
  /// of an index is also accepted.
  /// throws   data_error for a file that cannot be read or has another format, and for files
  ///          that differ from their index; memory_error
  explicit TensorFiles(const std::filesystem::path& path);

  /// All tensors, by name.
  const std::map<std::string, Place>& tensors() const { return tensors_; }
  ///@{
  /// The metadata of all files together, without checksums.
  const std::map<std::string, std::string>& metadata() const& { return metadata_; }
  std::map<std::string, std::string>&& metadata() && noexcept { return std::move(metadata_); }
  ///@}

  /// Its name in messages.
  std::string name() const { return detail::where(path_); }
  /// The name of a tensor's file in messages.
  std::string name_of_file(const Place& place) const {
    return detail::where(files_[place.file].path);
  }

  /// A hash of the headers.
  std::uint64_t fingerprint() const { return fingerprint_; }

  /// The number of files: one, or those of the index.
  std::size_t file_count() const { return files_.size(); }

  /// File `i`, to read from.
  /// throws   data_error if it cannot be opened, or has changed since its header was read
  detail::File open(std::size_t i) const {
    auto file = detail::File::open(files_[i].path, "checkpoint");
    require_unchanged(i, file);
    return file;
  }

  /// throws   data_error if this open file `i` has changed since its header was read
  void require_unchanged(std::size_t i, const detail::File& file) const {
    if (file.identity() == files_[i].identity) return;
    file.fail("was changed while it was read; load it again");
  }

  /// The offset of a tensor in its file.
  std::uint64_t begin_of(const Place& place) const {
    return files_[place.file].data + place.info.begin;
  }

 private:
  struct File {
    std::filesystem::path path;
    detail::FileIdentity identity;
    std::uint64_t data = 0;  // offset of the data
  };

  void read_file(const std::filesystem::path& path) {
    const auto file = detail::File::open(path, "checkpoint");
    const detail::FileIdentity identity = file.identity();
    const std::string where = detail::where(path);
    if (identity.size < 8) {
      file.fail("has " + std::to_string(identity.size) +
                " bytes, fewer than the 8 that begin a safetensors file");
    }
    std::array<unsigned char, 8> first{};
    file.read(0, std::as_writable_bytes(std::span(first)));
    const std::uint64_t length = detail::safetensors_header_length(first, identity.size, where);
    const std::string json = detail::read_text(file, 8, length);
    detail::SafetensorsHeader header =
        detail::parse_safetensors_header(json, identity.size - 8 - length, where);
    fingerprint_ = detail::fingerprint(json, fingerprint_);
    const auto checksums = detail::take_checksums(header, where);
    for (auto& [name, info] : header.tensors) {
      const std::string checksum = checksums.empty() ? "" : checksums.at(name);
      if (!tensors_.emplace(name, Place{files_.size(), std::move(info), checksum}).second) {
        file.fail("holds the tensor " + detail::in_quotes(name) + ", as another file of it does");
      }
    }
    for (const auto& [key, text] : header.metadata) {
      const auto known = metadata_.emplace(key, text).first;
      if (known->second != text) {
        file.fail("says " + detail::in_quotes(text) + " of " + detail::in_quotes(key) +
                  " where another file of this checkpoint says " +
                  detail::in_quotes(known->second) + ": they are from two checkpoints");
      }
    }
    files_.push_back({path, identity, 8 + length});
  }

  void read_index() {
    const auto file = detail::File::open(path_, "checkpoint");
    const std::uint64_t bytes = file.size();
    if (bytes > detail::longest_safetensors_header) {
      file.fail("has " + std::to_string(bytes) + " bytes, and an index of at most " +
                std::to_string(detail::longest_safetensors_header) + " is read");
    }
    const detail::SafetensorsIndex index =
        detail::parse_safetensors_index(detail::read_text(file, 0, bytes), name());
    std::set<std::string> names;
    for (const auto& [tensor, shard] : index.files) names.insert(shard);
    for (const std::string& shard : names) read_file(path_.parent_path() / shard);
    check_against(index);
  }

  void check_against(const detail::SafetensorsIndex& index) const {
    for (const auto& [tensor, shard] : index.files) {
      const auto found = tensors_.find(tensor);
      if (found == tensors_.end() || files_[found->second.file].path.filename() != shard) {
        throw data_error({name(), ": says that the tensor ", detail::in_quotes(tensor), " is in ",
                          detail::in_quotes(shard), ", but it is not"});
      }
    }
    for (const auto& [tensor, place] : tensors_) {
      if (!index.files.contains(tensor)) {
        throw data_error({name_of_file(place), ": holds the tensor ", detail::in_quotes(tensor),
                          ", which its index ", path_.filename().string(), " does not know"});
      }
    }
  }

  std::filesystem::path path_;
  std::vector<File> files_;
  std::map<std::string, Place> tensors_;
  std::map<std::string, std::string> metadata_;
  std::uint64_t fingerprint_ = 0xcbf29ce484222325U;
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE TensorFiles::TensorFiles(const std::filesystem::path& path) : path_(path) {
  const bool is_index = path.string().ends_with(".index.json");
  if (is_index || (!detail::is_there(path, "checkpoint") &&
                   detail::is_there(detail::index_path(path), "checkpoint"))) {
    if (!is_index) path_ = detail::index_path(path);
    read_index();
  } else {
    read_file(path);
  }
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
