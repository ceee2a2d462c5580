#pragma once
// Batches of images for a model, and the accuracy of the model.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fashion_mnist.hpp"
#include "image_set.hpp"
#include "shardwise/data/sampler.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/redistribute/run.hpp"
#include "shardwise/train/accuracy.hpp"

namespace example {

/// Memory for one batch: the whole batch if L is Invariant, the rank's samples if L is
/// Sharded<batch>.
template <shardwise::Real T, shardwise::Layout L>
class ImageBatch {
 public:
  explicit ImageBatch(shardwise::Place place) : place_(place) {}

  void fill(const ImageSet& set, const shardwise::SampleBatch& batch) {
    const auto chosen = std::same_as<L, shardwise::Invariant> ? batch.whole : batch.mine;
    size_ = batch.whole.size();
    features_ = set.image_size();
    images_.resize(chosen.size() * features_);
    labels_.resize(chosen.size());
    copy_batch(set, chosen, fashion_mnist_normalisation, std::span(images_), std::span(labels_));
  }

  /// Images over all ranks.
  std::size_t size() const { return size_; }

  shardwise::View<const T, L> images() const {
    return {images_.data(),
            {{shardwise::Axis::batch, size_}, {shardwise::Axis::feature, features_}},
            place_};
  }
  shardwise::View<const std::int32_t, L> labels() const {
    return {labels_.data(), {{shardwise::Axis::batch, size_}}, place_};
  }

 private:
  shardwise::Place place_;
  std::size_t size_ = 0;
  std::size_t features_ = 0;
  std::vector<T> images_;
  std::vector<std::int32_t> labels_;
};

/// The share of images that the model classifies correctly, the same on every rank.
template <class M>
double accuracy(M& model, const ImageSet& set) {
  const shardwise::Place place = shardwise::place_of(model.ranks());
  ImageBatch<typename M::dtype, typename M::input_layout> batch(place);
  shardwise::DistributedSampler sampler(set.count, place, {.batch_size = 500, .shuffles = false});
  std::size_t correct = 0;
  while (sampler.epoch() == 0) {
    batch.fill(set, sampler.next());
    const auto images = model.to_device(batch.images());
    const auto labels = model.to_device(batch.labels());
    correct += count_correct(model, images.view(), labels.view());
  }
  return static_cast<double>(correct) / static_cast<double>(set.count);
}

}  // namespace example
