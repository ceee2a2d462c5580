#pragma once
// Rank 0 reads images and broadcasts them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "fashion_mnist.hpp"
#include "image_set.hpp"
#include "shardwise/comm/communicator.hpp"
#include "synthetic_images.hpp"

namespace example {

/// Broadcasts the result of `read()` on rank 0 to every rank. A collective: it sends the sizes
/// first, so that every rank can allocate memory. If `read` throws, the communicator stops the
/// other ranks.
template <shardwise::Communicator C, class Read>
ImageSet read_and_broadcast(C& ranks, Read read) {
  ImageSet set;
  if (ranks.rank() == 0) set = read();

  const std::array fields{&set.count, &set.channels, &set.height, &set.width, &set.classes};
  std::array<std::int64_t, fields.size()> sizes{};
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = static_cast<std::int64_t>(*fields[i]);
  ranks.broadcast(std::span<std::int64_t>(sizes), 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) *fields[i] = static_cast<std::size_t>(sizes[i]);

  set.pixels.resize(set.count * set.image_size());
  set.labels.resize(set.count);
  ranks.broadcast(std::span(set.pixels), 0);
  ranks.broadcast(std::span(set.labels), 0);
  return set;
}

/// The source of a program's images.
struct ImageSource {
  std::filesystem::path folder = fashion_mnist_folder;
  bool synthetic = false;  ///< generated, which needs no files
};

/// One part of the images, on every rank. A collective.
template <shardwise::Communicator C>
ImageSet images_of(C& ranks, const ImageSource& source, shardwise::Seed seed, Part part) {
  return read_and_broadcast(ranks, [&] {
    if (!source.synthetic) return read_fashion_mnist(part, source.folder);
    return make_synthetic_images(seed, part, part == Part::train ? 6000 : 1000);
  });
}

}  // namespace example
