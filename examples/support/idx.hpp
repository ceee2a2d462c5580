#pragma once
// IDX files, plain or gzip'd: the format of MNIST and of the data sets that replace it.
//
// Source of the format: LeCun, Cortes, Burges, "The MNIST database of handwritten digits". Two zero
// bytes, a byte for the type (8: unsigned byte), a byte for the number of axes, each extent in four
// bytes with the highest first, then the elements, row-major.

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "shardwise/core/error.hpp"

namespace example {

/// An array of unsigned bytes, row-major.
struct IdxArray {
  std::vector<std::size_t> extents;  ///< outermost axis first
  std::vector<std::uint8_t> values;  ///< as many as the product of the extents
};

/// A file that announces more elements than this is rejected before memory is allocated.
inline constexpr std::size_t largest_idx_array = std::size_t{1} << 30;

struct GzipClose {
  void operator()(gzFile_s* file) const { gzclose_r(file); }
};

/// An open file; every error names it.
class IdxFile {
 public:
  IdxFile(const std::filesystem::path& path, std::string_view if_missing) : path_(path.string()) {
    errno = 0;
    file_.reset(gzopen(path_.c_str(), "rb"));
    if (file_) return;
    std::string why = "cannot be opened: " + std::generic_category().message(errno);
    if (!if_missing.empty()) why.append("; ").append(if_missing);
    fail(why);
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw shardwise::data_error({"data file ", path_, ": ", why});
  }

  /// Reads until `bytes` is full or the file ends; returns the number of bytes.
  std::size_t read(std::span<std::uint8_t> bytes) const {
    const int got = gzread(file_.get(), bytes.data(), static_cast<unsigned>(bytes.size()));
    int status = Z_OK;
    const char* message = gzerror(file_.get(), &status);
    if (got < 0 || status == Z_BUF_ERROR)
      fail(std::string("cannot be read to its end (") + message +
           "); it is damaged or cut short, get it again");
    return static_cast<std::size_t>(got);
  }

  void read_header(std::span<std::uint8_t> bytes) const {
    const std::size_t got = read(bytes);
    if (got != bytes.size())
      fail("ends inside its header, " + std::to_string(bytes.size() - got) +
           " bytes short; it is damaged or cut short, get it again");
  }

 private:
  std::string path_;
  std::unique_ptr<gzFile_s, GzipClose> file_;
};

inline std::vector<std::size_t> read_idx_extents(const IdxFile& file, std::size_t rank) {
  std::array<std::uint8_t, 4> word{};
  file.read_header(word);
  if (word[0] != 0 || word[1] != 0)
    file.fail("is no IDX file: it begins with the bytes " + std::to_string(word[0]) + " and " +
              std::to_string(word[1]) + " where IDX has 0 and 0");
  if (word[2] != 8)
    file.fail("holds elements of type " + std::to_string(word[2]) +
              "; only type 8, unsigned byte, is read");
  if (word[3] != rank)
    file.fail("has " + std::to_string(word[3]) + " axes where " + std::to_string(rank) +
              " are expected; are images and labels mixed up?");
  std::vector<std::size_t> extents;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    file.read_header(word);
    extents.push_back(std::size_t{word[0]} << 24 | std::size_t{word[1]} << 16 |
                      std::size_t{word[2]} << 8 | std::size_t{word[3]});
  }
  return extents;
}

/// The product of the extents, or an error if it is above the bound.
inline std::size_t count_idx_elements(const IdxFile& file,
                                      const std::vector<std::size_t>& extents) {
  std::size_t count = 1;
  std::string shape;
  bool fits = true;
  for (const std::size_t extent : extents) {
    shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    fits = fits && (extent == 0 || count <= largest_idx_array / extent);
    if (fits) count *= extent;
  }
  if (!fits)
    file.fail("announces the shape [" + shape + "], more than the " +
              std::to_string(largest_idx_array) + " elements that are read; its header is damaged");
  return count;
}

/// Reads an IDX file of unsigned bytes with `rank` axes, gzip'd or plain. Bytes after the end of
/// gzip'd data that are not gzip'd themselves are ignored, as `gzip -d` does.
///
/// throws  data_error if the file cannot be opened (the message then ends with `if_missing`, which
///         should say where to get the file), is not an IDX file, has another type, has another
///         number of axes, announces more than largest_idx_array elements, is damaged, or is
///         shorter or longer than its header says
inline IdxArray read_idx(const std::filesystem::path& path, std::size_t rank,
                         std::string_view if_missing = {}) {
  const IdxFile file(path, if_missing);
  IdxArray array;
  array.extents = read_idx_extents(file, rank);
  const std::size_t count = count_idx_elements(file, array.extents);

  // In pieces, so that a false header needs no more memory than the file has bytes.
  constexpr std::size_t piece = std::size_t{1} << 20;
  while (array.values.size() < count) {
    const std::size_t before = array.values.size();
    array.values.resize(std::min(count, before + piece));
    const std::size_t got = file.read(std::span(array.values).subspan(before));
    if (before + got < array.values.size())
      file.fail("ends after " + std::to_string(before + got) + " of the " + std::to_string(count) +
                " elements that its header announces; it is cut short, get it again");
  }
  std::uint8_t beyond = 0;
  if (file.read({&beyond, 1}) != 0)
    file.fail("goes on after the " + std::to_string(count) +
              " elements that its header announces; it is not the file that it says");
  return array;
}

}  // namespace example
