#pragma once
// Synthetic images that a model can learn, if no data set is installed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "image_set.hpp"
#include "shardwise/core/philox.hpp"

namespace example {

// Numbers of the streams of synthetic data among those of data_ordinal; 0 is the order of samples.
enum SyntheticStream : std::uint64_t { prototype_stream = 1, mixture_stream = 2, noise_stream = 3 };

/// Ten images in squares of 4 by 4 pixels, [10, 28, 28].
inline std::vector<std::uint32_t> synthetic_prototypes(shardwise::Seed seed) {
  const shardwise::RandomStream squares(seed, shardwise::data_ordinal, 0, prototype_stream);
  std::vector<std::uint32_t> prototypes(10 * 28 * 28);
  for (std::size_t i = 0; i < prototypes.size(); ++i) {
    const std::size_t row = i / 28, x = i % 28;  // class c has rows 28 c, ..., 28 c + 27
    prototypes[i] = squares.bits(row / 4 * 7 + x / 4) % 256;
  }
  return prototypes;
}

/// `count` images [count, 1, 28, 28] in ten classes, with the shape of Fashion-MNIST. They depend
/// only on `seed` and `part`, and are the same on every machine. Image i has label i % 10: it is
/// the picture of its class, mixed with up to 45 % of another class's picture and with noise. Both
/// parts have the same ten pictures. The first images do not depend on `count`.
inline ImageSet make_synthetic_images(shardwise::Seed seed, Part part, std::size_t count) {
  ImageSet set;
  set.count = count;
  set.channels = 1;
  set.height = set.width = 28;
  set.classes = 10;
  const std::size_t size = set.image_size();
  set.pixels.resize(count * size);
  set.labels.resize(count);

  const std::vector<std::uint32_t> prototypes = synthetic_prototypes(seed);
  const std::uint64_t step = part == Part::train ? 0 : 1;
  const shardwise::RandomStream mixture(seed, shardwise::data_ordinal, step, mixture_stream);
  const shardwise::RandomStream noise(seed, shardwise::data_ordinal, step, noise_stream);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t own = i % 10;
    const std::size_t other = (own + 1 + mixture.bits(2 * i) % 9) % 10;
    const std::uint32_t share = mixture.bits(2 * i + 1) % 46;  // of the other class, in percent
    set.labels[i] = static_cast<std::int32_t>(own);
    noise.for_each_bits(i * size, (i + 1) * size, [&](std::uint64_t p, std::uint32_t random) {
      const std::size_t at = p % size;
      const std::uint32_t mixed =
          ((100 - share) * prototypes[own * size + at] + share * prototypes[other * size + at]) /
          100;
      const std::uint32_t raised = mixed + random % 151;  // by 75 on average
      set.pixels[p] = static_cast<std::uint8_t>(std::clamp(raised, 75U, 330U) - 75U);
    });
  }
  return set;
}

}  // namespace example
