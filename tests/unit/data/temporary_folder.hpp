#pragma once
// A folder for the files that a test writes; it goes when the test ends.

#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / (name + "." + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name,
                              const std::vector<std::uint8_t>& bytes) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }

  std::filesystem::path write_gzip(const std::string& name,
                                   const std::vector<std::uint8_t>& bytes) const {
    gzFile file = gzopen((path_ / name).c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return path_ / name;
  }

  /// Cuts `bytes` off the end of a file.
  void shorten(const std::filesystem::path& file, std::uintmax_t bytes) const {
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - bytes);
  }

 private:
  std::filesystem::path path_;
};

/// The header of an IDX file of unsigned bytes.
inline std::vector<std::uint8_t> idx_header(const std::vector<std::uint32_t>& extents) {
  std::vector<std::uint8_t> bytes = {0, 0, 8, static_cast<std::uint8_t>(extents.size())};
  for (const std::uint32_t extent : extents)
    for (const int shift : {24, 16, 8, 0})
      bytes.push_back(static_cast<std::uint8_t>(extent >> shift & 0xffU));
  return bytes;
}

/// An IDX file whose elements are 0, 1, 2, ... modulo `modulus`.
inline std::vector<std::uint8_t> idx_bytes(const std::vector<std::uint32_t>& extents,
                                           std::uint32_t modulus) {
  std::vector<std::uint8_t> bytes = idx_header(extents);
  std::uint32_t count = 1;
  for (const std::uint32_t extent : extents) count *= extent;
  for (std::uint32_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(i % modulus));
  return bytes;
}
