#pragma once
// Data files that a test writes.

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"

namespace testing {

inline std::filesystem::path write_gzip(const TemporaryFolder& folder, const std::string& name,
                                        const std::vector<std::uint8_t>& bytes) {
  const std::filesystem::path path = folder.path() / name;
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return path;
}

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

}  // namespace testing
