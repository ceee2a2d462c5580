#pragma once
// Labelled images in memory, and batches of them as numbers for a model.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace example {

/// A part of a data set.
enum class Part { train, test };

/// Images, each with a label.
struct ImageSet {
  std::vector<std::uint8_t> pixels;  ///< [count, channels, height, width], row-major
  std::vector<std::int32_t> labels;  ///< [count], each in [0, classes)
  ///@{
  /// The number of images, and of labels.
  std::size_t count = 0;
  std::size_t channels = 0;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t classes = 0;
  ///@}

  /// Elements of one image.
  std::size_t image_size() const { return channels * height * width; }
};

/// Converts a pixel x in 0..255 to the number (x / 255 - mean) / deviation.
struct Normalisation {
  double mean = 0;       ///< of x / 255
  double deviation = 1;  ///< of x / 255; usually the standard deviation
};

/// The number of each of the 256 pixels, computed in double and rounded once to float.
template <shardwise::Real T>
std::array<T, 256> normalised_pixels(Normalisation by) {
  std::array<T, 256> numbers{};
  for (std::size_t x = 0; x < numbers.size(); ++x) {
    const double number = (static_cast<double>(x) / 255.0 - by.mean) / by.deviation;
    numbers[x] = T(static_cast<shardwise::accumulate_t<T>>(number));
  }
  return numbers;
}

/// Copies the images and labels with the numbers `chosen` into a batch.
///
///     images [chosen.size(), channels, height, width], row-major    labels [chosen.size()]
///
/// throws  shape_error if `images` or `labels` has another size, argument_error if a chosen number
///         is not an image of the set
template <shardwise::Real T>
void copy_batch(const ImageSet& set, std::span<const std::uint32_t> chosen, Normalisation by,
                std::span<T> images, std::span<std::int32_t> labels) {
  const std::size_t size = set.image_size();
  if (images.size() != chosen.size() * size || labels.size() != chosen.size())
    throw shardwise::shape_error({"batch of ", chosen.size(), " images of ", size,
                                  " pixels: the memory given holds ", images.size(), " pixels and ",
                                  labels.size(), " labels; give ", chosen.size() * size, " and ",
                                  chosen.size()});
  const std::array<T, 256> number = normalised_pixels<T>(by);
  for (std::size_t b = 0; b < chosen.size(); ++b) {
    const std::size_t i = chosen[b];
    if (i >= set.count)
      throw shardwise::argument_error(
          {"batch: image ", i, " was chosen from a set of ", set.count, "; choose below that"});
    const std::uint8_t* const image = set.pixels.data() + i * size;
    for (std::size_t p = 0; p < size; ++p) images[b * size + p] = number[image[p]];
    labels[b] = set.labels[i];
  }
}

}  // namespace example
