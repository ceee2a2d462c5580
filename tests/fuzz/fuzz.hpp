#pragma once
// What the targets of libFuzzer share.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "support/temporary_folder.hpp"

namespace fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Calls read(), which may reject its input with an `Error`.
template <class Error, class Read>
void may_reject(const Read& read) {
  try {
    read();
  } catch (const Error&) {
  }
}

/// What read() returns; nothing if it rejects its input with an `Error`. What follows may reject
/// nothing.
template <class Error, class Read>
auto accepted(const Read& read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// A file in memory, with a name in a folder.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& name)
      : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    require(descriptor_ >= 0, "memory can be a file");
    std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(descriptor_), name);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() { ::close(descriptor_); }

  void hold(std::string_view bytes) const {
    require(::ftruncate(descriptor_, 0) == 0, "a file in memory can be emptied");
    require(
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "a file in memory can be written");
  }

 private:
  int descriptor_;
};

/// The folder of a target's files.
inline const std::filesystem::path& folder() {
  static const testing::TemporaryFolder made("fuzz");
  return made.path();
}

}  // namespace fuzz
