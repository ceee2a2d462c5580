// CIFAR-10 in its binary form: files that are good, cut anywhere, of unequal length, or another
// thing altogether.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "../../../examples/support/cifar10.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"

namespace sw = shardwise;
using testing::check_mentions;
using testing::message_of;
using testing::TemporaryFolder;

namespace {

constexpr std::size_t record = 1 + 3 * 32 * 32;

/// Images of which number i, counted from `first`, has the label i % 10, and a red, green and blue
/// plane of i, i + 80 and i + 160, but for a pixel that gives its row and column.
std::vector<std::uint8_t> records(std::size_t first, std::size_t count) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = first; i < first + count; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i % 10));
    for (const std::size_t colour : {0U, 80U, 160U})
      bytes.insert(bytes.end(), 1024, static_cast<std::uint8_t>(i + colour));
    bytes[bytes.size() - 3 * 1024 + 5 * 32 + 7] = 255;  // red, row 5, column 7
  }
  return bytes;
}

void write_training_files(const TemporaryFolder& folder, std::size_t in_each) {
  for (std::size_t number = 1; number <= 5; ++number)
    folder.write("data_batch_" + std::to_string(number) + ".bin",
                 records((number - 1) * in_each, in_each));
}

std::string complaint(example::Part part, const TemporaryFolder& folder) {
  return message_of<sw::data_error>([&] { example::read_cifar10(part, folder.path()); });
}

}  // namespace

TEST_CASE("training images come from five files, in their order, test images from one") {
  const TemporaryFolder folder("shardwise_cifar_good");
  write_training_files(folder, 3);
  folder.write("test_batch.bin", records(20, 2));

  const example::ImageSet train = example::read_cifar10(example::Part::train, folder.path());
  CHECK(train.count == 15);
  CHECK(train.channels == 3);
  CHECK(train.height == 32);
  CHECK(train.width == 32);
  CHECK(train.classes == 10);
  REQUIRE(train.pixels.size() == 15 * train.image_size());
  REQUIRE(train.labels.size() == 15);
  for (std::size_t i = 0; i < train.count; ++i) {
    CHECK(train.labels[i] == static_cast<std::int32_t>(i % 10));
    const std::uint8_t* const image = train.pixels.data() + i * train.image_size();
    CHECK(image[0] == i);
    CHECK(image[5 * 32 + 7] == 255);
    CHECK(image[1024] == i + 80);
    CHECK(image[3 * 1024 - 1] == i + 160);
  }

  const example::ImageSet test = example::read_cifar10(example::Part::test, folder.path());
  CHECK(test.count == 2);
  CHECK(test.labels == std::vector<std::int32_t>{0, 1});
  CHECK(test.pixels[test.image_size()] == 21);
}

TEST_CASE("a missing file is named, with what to do") {
  const TemporaryFolder folder("shardwise_cifar_missing");
  check_mentions(complaint(example::Part::test, folder),
                 {"test_batch.bin", "No such file", "cifar-10-batches-bin"});
  write_training_files(folder, 1);
  std::filesystem::remove(folder.path() / "data_batch_4.bin");
  check_mentions(complaint(example::Part::train, folder), {"data_batch_4.bin", "No such file"});
}

TEST_CASE("a folder is no file") {
  const TemporaryFolder folder("shardwise_cifar_folder");
  std::filesystem::create_directory(folder.path() / "test_batch.bin");
  check_mentions(complaint(example::Part::test, folder), {"test_batch.bin", "cannot be read"});
}

TEST_CASE("a file that ends within an image is refused") {
  const TemporaryFolder folder("shardwise_cifar_cut");
  const std::vector<std::uint8_t> whole = records(0, 3);
  for (const std::size_t size : {std::size_t{1}, record - 1, record + 1, 3 * record - 1}) {
    folder.write("test_batch.bin", {whole.begin(), whole.begin() + static_cast<long>(size)});
    check_mentions(complaint(example::Part::test, folder),
                   {"test_batch.bin",
                    "image " + std::to_string(size / record) + " ends after " +
                        std::to_string(size % record) + " of its 3073 bytes",
                    "cut short"});
  }
  folder.write("test_batch.bin", "");
  check_mentions(complaint(example::Part::test, folder), {"holds no images"});
}

TEST_CASE("a training file that ends between two images is noticed by the others") {
  const TemporaryFolder folder("shardwise_cifar_uneven");
  write_training_files(folder, 3);
  folder.write("data_batch_5.bin", records(12, 2));
  check_mentions(complaint(example::Part::train, folder),
                 {"data_batch_5.bin", "holds 2 images", "data_batch_1.bin holds 3"});
}

TEST_CASE("a label that is no class is refused") {
  const TemporaryFolder folder("shardwise_cifar_label");
  std::vector<std::uint8_t> bytes = records(0, 2);
  bytes[record] = 10;
  folder.write("test_batch.bin", bytes);
  check_mentions(complaint(example::Part::test, folder), {"image 1 has the label 10", "0 to 9"});
}
