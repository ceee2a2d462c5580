#pragma once
// Images for a convolutional network: rank 0 has all of them, and broadcasts every batch.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cifar10.hpp"
#include "fashion_mnist.hpp"
#include "image_set.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/data/sampler.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/train/accuracy.hpp"
#include "synthetic_images.hpp"

namespace example {

namespace sw = shardwise;

/// Square images of a data set.
struct ImageForm {
  std::size_t channels;
  std::size_t side;
  Normalisation normalisation;
};
inline constexpr ImageForm grey{1, 28, fashion_mnist_normalisation};
inline constexpr ImageForm colour{3, 32, cifar10_normalisation};

struct CnnData {
  std::string name = "fashion-mnist";  ///< or cifar10, synthetic
  std::filesystem::path folder;        ///< empty: the folder where the data set is installed
  std::size_t samples = 0;             ///< training images to use; 0: all

  const ImageForm& form() const { return name == "cifar10" ? colour : grey; }
};

/// The first images of a part: `samples` for training, and a sixth as many, but at least one, for
/// testing; all of them if `samples` is 0.
/// throws   data_error for files that are missing or damaged, and if there are fewer images
inline ImageSet read_images(const CnnData& data, Part part) {
  const bool trains = part == Part::train;
  const std::size_t wanted =
      trains || data.samples == 0 ? data.samples : std::max<std::size_t>(data.samples / 6, 1);
  if (data.name == "synthetic") {
    const std::size_t all = trains ? 6000 : 1000;
    return make_synthetic_images(sw::Seed{1}, part, wanted == 0 ? all : wanted);
  }
  const bool is_cifar = data.name == "cifar10";
  const std::filesystem::path installed = is_cifar ? "cifar-10-batches-bin" : fashion_mnist_folder;
  const std::filesystem::path& folder = data.folder.empty() ? installed : data.folder;
  ImageSet set = is_cifar ? read_cifar10(part, folder) : read_fashion_mnist(part, folder);
  if (wanted > set.count) {
    throw sw::data_error(data.name + " in " + folder.string() + ": " + std::to_string(wanted) +
                         (trains ? " training" : " test") +
                         " images were asked for, but there are " + std::to_string(set.count) +
                         "; ask for fewer samples");
  }
  if (wanted != 0) {
    set.count = wanted;
    set.pixels.resize(wanted * set.image_size());
    set.labels.resize(wanted);
  }
  return set;
}

/// Batches of one part of a data set, on every rank. Rank 0 reads and shuffles; for each batch it
/// broadcasts the size, the images and the labels. All members are collectives; if rank 0 fails,
/// the communicator stops the others.
template <sw::Real T, sw::Communicator C>
class BroadcastBatches {
 public:
  BroadcastBatches(C& ranks, const CnnData& data, Part part,
                   sw::DistributedSampler::Options options)
      : ranks_(ranks), form_(data.form()) {
    if (ranks.rank() == 0) {
      set_ = read_images(data, part);
      sampler_.emplace(set_.count, sw::Place{}, options);
    }
    std::array<std::int64_t, 1> batches{};
    if (ranks.rank() == 0) batches[0] = static_cast<std::int64_t>(sampler_->batches());
    ranks.broadcast(std::span<std::int64_t>(batches), 0);
    batches_ = static_cast<std::size_t>(batches[0]);
  }

  /// Of an epoch.
  std::size_t batches() const { return batches_; }

  void next() {
    const bool reads = ranks_.rank() == 0;
    sw::SampleBatch chosen{};
    if (reads) chosen = sampler_->next();
    std::array<std::int64_t, 1> size{static_cast<std::int64_t>(chosen.whole.size())};
    ranks_.broadcast(std::span<std::int64_t>(size), 0);
    size_ = static_cast<std::size_t>(size[0]);
    images_.resize(size_ * form_.channels * form_.side * form_.side);
    labels_.resize(size_);
    if (reads) {
      copy_batch(set_, chosen.whole, form_.normalisation, std::span(images_), std::span(labels_));
    }
    ranks_.broadcast(std::span(images_), 0);
    ranks_.broadcast(std::span(labels_), 0);
  }

  /// Of the batch.
  std::size_t size() const { return size_; }
  sw::View<const T, sw::Invariant> images() const {
    return {images_.data(), shape_of(size_, form_), sw::place_of(ranks_)};
  }
  sw::View<const std::int32_t, sw::Invariant> labels() const {
    return {labels_.data(), {{sw::Axis::batch, size_}}, sw::place_of(ranks_)};
  }

  static sw::Shape shape_of(std::size_t batch, const ImageForm& form) {
    return {{sw::Axis::batch, batch},
            {sw::Axis::channel, form.channels},
            {sw::Axis::height, form.side},
            {sw::Axis::width, form.side}};
  }

 private:
  C& ranks_;
  ImageForm form_;
  ImageSet set_;                                   // on rank 0
  std::optional<sw::DistributedSampler> sampler_;  // on rank 0
  std::size_t batches_ = 0;
  std::size_t size_ = 0;
  std::vector<T> images_;
  std::vector<std::int32_t> labels_;
};

/// The share of one epoch's images that the model classifies correctly, the same on every rank.
template <class M, sw::Real T, sw::Communicator C>
double accuracy(M& model, BroadcastBatches<T, C>& batches) {
  std::size_t correct = 0, count = 0;
  for (std::size_t b = 0; b < batches.batches(); ++b) {
    batches.next();
    const auto images = model.to_device(batches.images());
    const auto labels = model.to_device(batches.labels());
    correct += count_correct(model, images.view(), labels.view());
    count += batches.size();
  }
  return static_cast<double>(correct) / static_cast<double>(count);
}

}  // namespace example
