// Batches of images as numbers, and the data sets that give images: Fashion-MNIST and made-up ones.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "../../../examples/support/fashion_mnist.hpp"
#include "../../../examples/support/image_set.hpp"
#include "../../../examples/support/synthetic_images.hpp"
#include "support/messages.hpp"
#include "support/skipped.hpp"
#include "unit/examples/data_files.hpp"

namespace sw = shardwise;
using testing::idx_bytes;
using testing::TemporaryFolder;
using testing::write_gzip;

namespace {

example::ImageSet three_images() {
  example::ImageSet set;
  set.pixels = {0, 255, 51, 102, 1, 2};
  set.labels = {7, 8, 9};
  set.count = 3;
  set.channels = 1;
  set.height = 1;
  set.width = 2;
  set.classes = 10;
  return set;
}

/// Writes the training files of a small data set of the form of Fashion-MNIST.
void write_training_files(const TemporaryFolder& folder, const std::vector<std::uint8_t>& images,
                          const std::vector<std::uint8_t>& labels) {
  write_gzip(folder, "train-images-idx3-ubyte.gz", images);
  write_gzip(folder, "train-labels-idx1-ubyte.gz", labels);
}

}  // namespace

TEST_CASE_TEMPLATE("a batch holds the chosen images as normalised numbers", T, float, double,
                   sw::bf16, sw::fp16) {
  const example::ImageSet set = three_images();
  const std::array<std::uint32_t, 3> chosen{2, 0, 2};
  std::vector<T> images(6);
  std::vector<std::int32_t> labels(3);
  example::copy_batch<T>(set, chosen, {0.25, 0.5}, images, labels);
  CHECK(labels == std::vector<std::int32_t>{9, 7, 9});
  const std::array<std::uint8_t, 6> pixels{1, 2, 0, 255, 1, 2};
  for (std::size_t i = 0; i < 6; ++i) {
    const double exact = (pixels[i] / 255.0 - 0.25) / 0.5;
    CHECK(double{images[i]} == double{T(static_cast<sw::accumulate_t<T>>(exact))});
  }
  CHECK(double{images[2]} == -0.5);
  CHECK(double{images[3]} == 1.5);
}

TEST_CASE("a batch that does not fit is refused") {
  const example::ImageSet set = three_images();
  std::vector<float> images(4);
  std::vector<std::int32_t> labels(2);
  const std::array<std::uint32_t, 1> one{0};
  const std::array<std::uint32_t, 2> beyond{0, 3};
  CHECK_THROWS_AS(example::copy_batch<float>(set, one, {}, images, labels), sw::shape_error);
  CHECK_THROWS_AS(example::copy_batch<float>(set, beyond, {}, images, std::span(labels).first(1)),
                  sw::shape_error);
  CHECK_THROWS_WITH_AS(example::copy_batch<float>(set, beyond, {}, images, labels),
                       "batch: image 3 was chosen from a set of 3; choose below that",
                       sw::argument_error);
}

TEST_CASE("Fashion-MNIST is read from its four files, gzip'd or plain") {
  const TemporaryFolder folder("shardwise_fashion_good");
  write_training_files(folder, idx_bytes({12, 28, 28}, 251), idx_bytes({12}, 10));
  folder.write("t10k-images-idx3-ubyte", idx_bytes({3, 28, 28}, 241));
  folder.write("t10k-labels-idx1-ubyte", idx_bytes({3}, 10));

  const example::ImageSet train = example::read_fashion_mnist(example::Part::train, folder.path());
  CHECK(train.count == 12);
  CHECK(train.image_size() == 784);
  CHECK(train.pixels.size() == 12 * 784);
  CHECK(train.pixels[784] == 784 % 251);
  CHECK(train.labels == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1});
  CHECK(train.classes == 10);

  const example::ImageSet test = example::read_fashion_mnist(example::Part::test, folder.path());
  CHECK(test.count == 3);
  CHECK(test.pixels[784] == 784 % 241);
}

TEST_CASE("a data set that does not fit together is refused") {
  const TemporaryFolder folder("shardwise_fashion_bad");
  const auto mentions = [&folder](const std::string& part) {
    return testing::contains(testing::message_of<sw::data_error>([&] {
                               example::read_fashion_mnist(example::Part::train, folder.path());
                             }),
                             part);
  };
  CHECK(mentions("dataset-fashion-mnist"));
  CHECK(mentions(folder.path().string()));

  write_training_files(folder, idx_bytes({12, 28, 28}, 251), idx_bytes({11}, 10));
  CHECK(mentions("holds 12 images"));
  CHECK(mentions("holds 11 labels"));
  write_training_files(folder, idx_bytes({12, 28, 28}, 251), idx_bytes({12}, 11));
  CHECK(mentions("gives image 10 the label 10"));
  write_training_files(folder, idx_bytes({12, 28, 27}, 251), idx_bytes({12}, 10));
  CHECK(mentions("28 by 27"));
  write_training_files(folder, idx_bytes({0, 28, 28}, 251), idx_bytes({0}, 10));
  CHECK(mentions("no images"));
  write_training_files(folder, idx_bytes({12}, 10), idx_bytes({12, 28, 28}, 251));
  CHECK(mentions("1 axes where 3"));
}

TEST_CASE("the installed Fashion-MNIST has the published form") {
  if (!std::filesystem::exists(example::fashion_mnist_folder)) {
    testing::skip("reading Fashion-MNIST: not installed: dataset-fashion-mnist");
    return;
  }
  const example::ImageSet train = example::read_fashion_mnist(example::Part::train);
  const example::ImageSet test = example::read_fashion_mnist(example::Part::test);
  CHECK(train.count == 60'000);
  CHECK(test.count == 10'000);
  std::array<int, 10> of_class{};
  for (const std::int32_t label : train.labels) ++of_class[static_cast<std::size_t>(label)];
  for (const int images : of_class) CHECK(images == 6'000);

  double sum = 0, squares = 0;
  for (const std::uint8_t pixel : train.pixels) {
    sum += pixel / 255.0;
    squares += pixel / 255.0 * (pixel / 255.0);
  }
  const auto n = static_cast<double>(train.pixels.size());
  const double deviation = std::sqrt(squares / n - sum / n * (sum / n));
  CHECK(std::abs(sum / n - example::fashion_mnist_normalisation.mean) < 1e-4);
  CHECK(std::abs(deviation - example::fashion_mnist_normalisation.deviation) < 1e-4);
}

TEST_CASE("made-up images depend on seed and part alone, and not on how many are made") {
  const example::ImageSet few =
      example::make_synthetic_images(sw::Seed{1}, example::Part::train, 20);
  const example::ImageSet more =
      example::make_synthetic_images(sw::Seed{1}, example::Part::train, 50);
  CHECK(few.pixels.size() == 20 * 784);
  CHECK(std::equal(few.pixels.begin(), few.pixels.end(), more.pixels.begin()));
  CHECK(std::equal(few.labels.begin(), few.labels.end(), more.labels.begin()));
  CHECK(few.pixels != example::make_synthetic_images(sw::Seed{2}, example::Part::train, 20).pixels);
  CHECK(few.pixels != example::make_synthetic_images(sw::Seed{1}, example::Part::test, 20).pixels);
  CHECK(example::make_synthetic_images(sw::Seed{1}, example::Part::test, 0).pixels.empty());
}

TEST_CASE("made-up test images are told apart by the means of the training images") {
  const example::ImageSet train =
      example::make_synthetic_images(sw::Seed{5}, example::Part::train, 500);
  const example::ImageSet test =
      example::make_synthetic_images(sw::Seed{5}, example::Part::test, 500);
  std::vector<double> means(10 * 784);
  for (std::size_t i = 0; i < train.pixels.size(); ++i)
    means[static_cast<std::size_t>(train.labels[i / 784]) * 784 + i % 784] +=
        train.pixels[i] / 50.0;
  int right = 0;
  for (std::size_t i = 0; i < test.count; ++i) {
    std::array<double, 10> distance{};
    for (std::size_t c = 0; c < 10; ++c)
      for (std::size_t p = 0; p < 784; ++p)
        distance[c] += std::pow(test.pixels[i * 784 + p] - means[c * 784 + p], 2);
    const auto nearest = std::min_element(distance.begin(), distance.end()) - distance.begin();
    right += nearest == test.labels[i];
  }
  CHECK(right > 450);
}
