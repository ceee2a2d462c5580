#pragma once
// A file that several ranks read and write at offsets at once, and make durable.

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// The identity of a file, and its state at one moment.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t number = 0;
  std::uint64_t size = 0;
  std::int64_t changed = 0;  ///< in nanoseconds

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// An open file. Every error is a data_error that says what kind of file it is and its path:
/// "checkpoint run.safetensors: ...".
class File {
 public:
  /// To read. Must be a regular file: a pipe has no offsets and a device no size.
  static File open(const std::filesystem::path& path, const char* kind);

  /// To write; deletes an old file of that name.
  static File create(const std::filesystem::path& path, const char* kind);

  /// To write into a file that another rank has created.
  static File open_to_write(const std::filesystem::path& path, const char* kind);

  File(File&& other) noexcept
      : path_(std::move(other.path_)),
        kind_(other.kind_),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&&) = delete;
  ~File();

  std::uint64_t size() const { return static_cast<std::uint64_t>(status().st_size); }

  FileIdentity identity() const;

  /// Reads `bytes` from `offset` on.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

  /// Writes `bytes` from `offset` on.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) const;

  /// Makes the file `size` bytes long and reserves disk space for it, so that a full disk is found
  /// before anything is written. If the file system cannot reserve, only the length is set.
  void reserve(std::uint64_t size) const;

  /// Returns when written data is durable on the disk. What is written after it may get lost
  /// without an error, so call it last.
  void sync() const;

  [[noreturn]] void fail(const std::string& why) const;
  [[noreturn]] void fail(const std::string& why, int code) const;
  /// After a system call; `parts` are those of a sentence.
  [[noreturn]] void fail_by_errno(std::initializer_list<Piece> parts) const;

 private:
  File(const std::filesystem::path& path, const char* kind, int flags, const char* what);

  struct stat status() const;

  /// Moves the offset behind the bytes that a call has read or written.
  void advance(ssize_t moved, std::uint64_t& offset, const char* what) const;

  std::filesystem::path path_;
  const char* kind_;
  int descriptor_;
};

/// Renames a file atomically: a reader finds the old file or the new one. Over a network, a call
/// that was repeated may fail after it had its effect; that is no error here.
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to,
                 const char* kind);

/// Makes the names in the folder of `path` durable, if we may read it.
void sync_folder_of(const std::filesystem::path& path, const char* kind);

/// Lets other programs that lock the folder of `path` wait as long as it lives, and waits for one
/// that has locked it. The lock ends with the process and its children. A file system that cannot
/// lock a folder makes nobody wait.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& path);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int descriptor_;
};

/// Whether there is a file of that name.
/// throws   data_error if the file system does not say
bool is_there(const std::filesystem::path& path, const char* kind);

/// Whether a file has this name; false if the file system does not say.
bool is_surely_there(const std::filesystem::path& path) noexcept;

/// Removes a file, which must be gone afterwards.
/// throws   data_error otherwise
void require_removed(const std::filesystem::path& path, const char* kind);

/// Removes a file; a failure is not an error.
void remove_file(const std::filesystem::path& path) noexcept;

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>

namespace shardwise::detail {

/// The result of call(), which is repeated while a signal interrupts it.
template <class Call>
auto repeated(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Whether nothing has this name. False if the file system does not say.
inline bool is_gone(const std::filesystem::path& path) noexcept {
  std::error_code code;
  return std::filesystem::status(path, code).type() == std::filesystem::file_type::not_found;
}

/// The device and number of a file; nothing if the file system does not say.
inline std::optional<std::pair<dev_t, ino_t>> device_and_number_of(
    const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return std::pair(status.st_dev, status.st_ino);
}

SHARDWISE_INLINE File File::open(const std::filesystem::path& path, const char* kind) {
  File file(path, kind, O_RDONLY | O_NONBLOCK, "opened");
  if (!S_ISREG(file.status().st_mode)) file.fail("is no regular file");
  return file;
}

SHARDWISE_INLINE File File::create(const std::filesystem::path& path, const char* kind) {
  return {path, kind, O_WRONLY | O_CREAT | O_TRUNC, "created"};
}

SHARDWISE_INLINE File File::open_to_write(const std::filesystem::path& path, const char* kind) {
  return {path, kind, O_WRONLY, "opened for writing"};
}

SHARDWISE_INLINE File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

SHARDWISE_INLINE FileIdentity File::identity() const {
  const struct stat s = status();
  return {static_cast<std::uint64_t>(s.st_dev), static_cast<std::uint64_t>(s.st_ino),
          static_cast<std::uint64_t>(s.st_size),
          std::int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec};
}

SHARDWISE_INLINE void File::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = repeated([&] {
      return ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    });
    if (got == 0) {
      fail("ends at byte " + std::to_string(offset) + ", " + std::to_string(bytes.size()) +
           " bytes too early; it was cut short after it was opened, get it again");
    }
    advance(got, offset, "read");
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

SHARDWISE_INLINE void File::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t put = repeated([&] {
      return ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    });
    advance(put, offset, "written");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

SHARDWISE_INLINE void File::reserve(std::uint64_t size) const {
  const auto length = static_cast<off_t>(size);
  int code = EINTR;
  while (code == EINTR) code = length == 0 ? 0 : ::posix_fallocate(descriptor_, 0, length);
  if (code == EOPNOTSUPP || code == EINVAL) {
    code = repeated([&] { return ::ftruncate(descriptor_, length); }) == 0 ? 0 : errno;
  }
  if (code != 0) {
    fail("needs room for " + std::to_string(size) +
             " bytes and does not get it; make room, or save elsewhere",
         code);
  }
}

SHARDWISE_INLINE void File::sync() const {
  if (repeated([&] { return ::fsync(descriptor_); }) != 0) {
    fail_by_errno({"cannot be brought to the disk"});
  }
}

SHARDWISE_INLINE void File::fail(const std::string& why) const {
  throw data_error({kind_, " ", path_.string(), ": ", why});
}

SHARDWISE_INLINE void File::fail(const std::string& why, int code) const {
  fail(why + ": " + std::generic_category().message(code));
}

SHARDWISE_INLINE void File::fail_by_errno(std::initializer_list<Piece> parts) const {
  const int code = errno;  // which the text's memory may change
  fail(sentence(parts), code);
}

SHARDWISE_INLINE File::File(const std::filesystem::path& path, const char* kind, int flags,
                            const char* what)
    : path_(path),
      kind_(kind),
      descriptor_(repeated([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); })) {
  if (descriptor_ < 0) fail_by_errno({"cannot be ", what});
}

SHARDWISE_INLINE struct stat File::status() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_by_errno({"cannot be looked at"});
  return status;
}

SHARDWISE_INLINE void File::advance(ssize_t moved, std::uint64_t& offset, const char* what) const {
  if (moved < 0) fail_by_errno({"cannot be ", what, " at byte ", offset});
  offset += static_cast<std::uint64_t>(moved);
}

SHARDWISE_INLINE void rename_file(const std::filesystem::path& from,
                                  const std::filesystem::path& to, const char* kind) {
  const auto renamed = device_and_number_of(from);
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  const int code = errno;
  if (renamed && device_and_number_of(to) == renamed) return;
  throw data_error({kind, " ", to.string(),
                    ": cannot be put in its place: ", std::generic_category().message(code)});
}

SHARDWISE_INLINE void sync_folder_of(const std::filesystem::path& path, const char* kind) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const int descriptor =
      repeated([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  const bool opened = descriptor >= 0;
  const bool synced = opened && repeated([&] { return ::fsync(descriptor); }) == 0;
  const int code = errno;
  if (opened) ::close(descriptor);
  if (synced || (!opened && code == EACCES)) return;
  if (opened && code == EINVAL) return;  // some file systems cannot sync a folder
  throw data_error({kind, " folder ", folder.string(),
                    ": cannot be brought to the disk: ", std::generic_category().message(code)});
}

SHARDWISE_INLINE FolderLock::FolderLock(const std::filesystem::path& path)
    : descriptor_(repeated([folder = path.has_parent_path() ? path.parent_path() : "."] {
        return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      })) {
  if (descriptor_ >= 0) repeated([&] { return ::flock(descriptor_, LOCK_EX); });
}

SHARDWISE_INLINE FolderLock::~FolderLock() {
  if (descriptor_ < 0) return;
  ::flock(descriptor_, LOCK_UN);  // a child process may still have the descriptor
  ::close(descriptor_);
}

SHARDWISE_INLINE bool is_there(const std::filesystem::path& path, const char* kind) {
  std::error_code code;
  const bool found = std::filesystem::exists(path, code);
  if (!code) return found;
  throw data_error({kind, " ", path.string(), ": cannot be looked for: ", code.message()});
}

SHARDWISE_INLINE bool is_surely_there(const std::filesystem::path& path) noexcept {
  std::error_code code;
  return std::filesystem::exists(path, code) && !code;
}

SHARDWISE_INLINE void require_removed(const std::filesystem::path& path, const char* kind) {
  std::error_code code;
  std::filesystem::remove(path, code);
  if (!code || is_gone(path)) return;
  throw data_error({kind, " ", path.string(), ": cannot be removed: ", code.message()});
}

SHARDWISE_INLINE void remove_file(const std::filesystem::path& path) noexcept {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
