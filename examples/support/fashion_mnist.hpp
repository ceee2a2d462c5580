#pragma once
// Fashion-MNIST: 70,000 grey images of clothes in ten classes (Xiao, Rasul, Vollgraf 2017).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "idx.hpp"
#include "image_set.hpp"
#include "shardwise/core/error.hpp"

namespace example {

/// The folder of Debian's package dataset-fashion-mnist.
inline constexpr std::string_view fashion_mnist_folder = "/usr/share/datasets/fashion-mnist";

/// Mean and deviation of the training images.
inline constexpr Normalisation fashion_mnist_normalisation{0.2860, 0.3530};

/// Reads `folder`/`name`.gz or, if that does not exist, `folder`/`name`.
inline IdxArray read_fashion_mnist_file(const std::filesystem::path& folder,
                                        const std::string& name, std::size_t rank) {
  const std::filesystem::path compressed = folder / (name + ".gz");
  const std::filesystem::path plain = folder / name;
  const std::string if_missing = "looked for " + compressed.string() + " and " + plain.string() +
                                 "; install the Debian package dataset-fashion-mnist or name the "
                                 "folder that holds the files";
  return read_idx(std::filesystem::exists(compressed) ? compressed : plain, rank, if_missing);
}

/// Reads the training or the test images, [count, 1, 28, 28], with their labels from the four files
/// of the data set in `folder`, gzip'd or plain. MNIST has the same format.
///
/// throws  data_error if read_idx does, if images and labels differ in number, if there are none,
///         if an image is not 28 by 28, or if a label is above 9
inline ImageSet read_fashion_mnist(Part part,
                                   const std::filesystem::path& folder = fashion_mnist_folder) {
  const std::string prefix = part == Part::train ? "train" : "t10k";
  const std::string images_name = prefix + "-images-idx3-ubyte";
  const std::string labels_name = prefix + "-labels-idx1-ubyte";
  IdxArray images = read_fashion_mnist_file(folder, images_name, 3);
  const IdxArray labels = read_fashion_mnist_file(folder, labels_name, 1);
  const auto fail = [&folder](const std::string& why) {
    throw shardwise::data_error({"Fashion-MNIST in ", folder.string(), ": ", why});
  };

  const std::size_t count = images.extents[0];
  if (count != labels.extents[0])
    fail(images_name + " holds " + std::to_string(count) + " images, but " + labels_name +
         " holds " + std::to_string(labels.extents[0]) + " labels; are they of one data set?");
  if (count == 0) fail(images_name + " holds no images");
  if (images.extents[1] != 28 || images.extents[2] != 28)
    fail(images_name + " holds images of " + std::to_string(images.extents[1]) + " by " +
         std::to_string(images.extents[2]) + " pixels where 28 by 28 are expected");
  const auto large = std::find_if(labels.values.begin(), labels.values.end(),
                                  [](std::uint8_t label) { return label > 9; });
  if (large != labels.values.end())
    fail(labels_name + " gives image " + std::to_string(large - labels.values.begin()) +
         " the label " + std::to_string(*large) + "; the classes are 0 to 9");

  ImageSet set;
  set.pixels = std::move(images.values);
  set.labels.assign(labels.values.begin(), labels.values.end());
  set.count = count;
  set.channels = 1;
  set.height = set.width = 28;
  set.classes = 10;
  return set;
}

}  // namespace example
