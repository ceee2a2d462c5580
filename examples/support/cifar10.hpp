#pragma once
// CIFAR-10: 60,000 colour images of objects and animals in ten classes (Krizhevsky 2009).

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "image_set.hpp"
#include "shardwise/core/error.hpp"

namespace example {

/// Mean and deviation of the training images, over all three colours.
inline constexpr Normalisation cifar10_normalisation{0.4734, 0.2516};

inline constexpr std::size_t cifar10_image_bytes = 3 * 32 * 32;
inline constexpr std::size_t cifar10_record_bytes = 1 + cifar10_image_bytes;

struct FileClose {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// Appends the records of one file. A record has a label and the three colour planes of an image.
inline void append_cifar10_file(const std::filesystem::path& path, ImageSet& set) {
  const auto fail = [&path](const std::string& why) {
    throw shardwise::data_error({"CIFAR-10 file ", path.string(), ": ", why});
  };
  errno = 0;
  const std::unique_ptr<std::FILE, FileClose> file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    fail("cannot be opened: " + std::generic_category().message(errno) +
         "; name the folder (cifar-10-batches-bin) into which the binary version of the data set "
         "was unpacked");
  }
  std::vector<std::uint8_t> record(cifar10_record_bytes);
  std::size_t count = 0;
  for (;; ++count) {
    const std::size_t got = std::fread(record.data(), 1, record.size(), file.get());
    if (std::ferror(file.get()) != 0) {
      fail("cannot be read: " + std::generic_category().message(errno));
    }
    if (got == 0) break;
    const std::string image = "image " + std::to_string(count);
    if (got < record.size()) {
      fail(image + " ends after " + std::to_string(got) + " of its " +
           std::to_string(record.size()) + " bytes; the file is cut short, get it again");
    }
    if (record[0] > 9) {
      fail(image + " has the label " + std::to_string(record[0]) +
           "; the classes are 0 to 9. Is this the binary version of CIFAR-10?");
    }
    set.labels.push_back(record[0]);
    set.pixels.insert(set.pixels.end(), record.begin() + 1, record.end());
  }
  if (count == 0) fail("holds no images; get it again");
  set.count += count;
}

/// Reads the training images (data_batch_1.bin to data_batch_5.bin) or the test images
/// (test_batch.bin) of the binary version in `folder`, [count, 3, 32, 32], with their labels. Files
/// may have any number of images; the training files all have the same number.
///
/// throws  data_error, naming the file, if one cannot be opened or read, is truncated, has no image
///         or a label above 9, or if a training file has another number of images than the first
/// source  Krizhevsky, "The CIFAR-10 dataset": a record is one byte of label and 1024 bytes each of
///         red, green and blue, row by row
inline ImageSet read_cifar10(Part part, const std::filesystem::path& folder) {
  ImageSet set;
  set.channels = 3;
  set.height = set.width = 32;
  set.classes = 10;
  if (part == Part::test) {
    append_cifar10_file(folder / "test_batch.bin", set);
    return set;
  }
  std::size_t of_first = 0;
  for (int number = 1; number <= 5; ++number) {
    const auto path = folder / ("data_batch_" + std::to_string(number) + ".bin");
    const std::size_t before = set.count;
    append_cifar10_file(path, set);
    if (number == 1) of_first = set.count;
    if (set.count - before != of_first) {
      throw shardwise::data_error({"CIFAR-10 file ", path.string(), ": holds ", set.count - before,
                                   " images, but data_batch_1.bin holds ", of_first,
                                   "; one of them is cut short, get them again"});
    }
  }
  return set;
}

}  // namespace example
