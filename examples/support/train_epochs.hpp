#pragma once
// Epochs of training on images.

#include <cstddef>
#include <cstdio>
#include <string>

#include "cnn_data.hpp"
#include "progress_bar.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/step.hpp"

namespace example {

/// Trains on all batches in each epoch. Rank 0 prints the mean loss of each epoch, and the accuracy
/// on the test batches after it. A collective.
template <class M, class O, class Batches>
void train_epochs(M& model, O& optimizer, Batches& batches, Batches& test_batches, int epochs) {
  const bool speaks = model.ranks().rank() == 0;
  const shardwise::CrossEntropy loss;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    double sum_of_losses = 0;
    {
      ProgressBar bar("epoch " + std::to_string(epoch), batches.batches(), speaks);
      for (std::size_t b = 0; b < batches.batches(); ++b) {
        batches.next();
        const auto images = model.to_device(batches.images());
        const auto labels = model.to_device(batches.labels());
        sum_of_losses += train_step(model, images.view(), labels.view(), loss, optimizer);
        bar.show(b + 1);
      }
    }
    const double correct = accuracy(model, test_batches);
    if (speaks) {
      std::printf("epoch %d   loss %.6f   test accuracy %.2f %%\n", epoch,
                  sum_of_losses / static_cast<double>(batches.batches()), 100 * correct);
      std::fflush(stdout);
    }
  }
}

}  // namespace example
