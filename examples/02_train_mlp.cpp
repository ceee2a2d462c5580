// A multilayer perceptron learns to tell clothes apart, each weight matrix split over the ranks.
//
//                rank 0            rank 1
//     images   [      784       |      784       ]   the same on every rank
//                 │ W1[0:256]       │ W1[256:512]    column-parallel: each rank makes some features
//                [ 256 features  |  256 features ]
//                 relu              relu             nothing moves
//                 │ W2[:, 0:256]    │ W2[:, 256:512] row-parallel: each rank adds up its features
//                [ 10 summands   |  10 summands  ]
//                 └────── all-reduce ──────┘         the only exchange of a step
//     logits   [       10       |       10       ]   the same on every rank
//
// test: --synthetic -s 2 -e 1
#include <CLI/CLI.hpp>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/data/fashion_mnist.hpp"
#include "shardwise/data/sampler.hpp"
#include "shardwise/data/synthetic.hpp"
#include "shardwise/shardwise.hpp"
#include "shardwise/train/accuracy.hpp"
#include "support/broadcast_images.hpp"
#include "support/print_plan.hpp"
#include "support/progress_bar.hpp"

namespace sw = shardwise;

namespace {

// The architecture, and nothing else: no rank count, no dtype, no device.
struct Mlp
    : sw::Sequential<sw::ColumnParallelLinear<784, 512>, sw::Relu, sw::RowParallelLinear<512, 10>> {
};

struct Options {
  int ranks = 1;
  std::size_t batch = 64;
  int epochs = 5;
  double learning_rate = 0.008;
  std::string dtype = "float";
  std::uint64_t seed = 1;
  std::filesystem::path data_folder = sw::fashion_mnist_folder;
  bool synthetic = false;
};

sw::ImageSet read_images(const Options& options, sw::Part part) {
  if (!options.synthetic) return sw::read_fashion_mnist(part, options.data_folder);
  return sw::make_synthetic_images(sw::Seed{options.seed}, part,
                                   part == sw::Part::train ? 6000 : 1000);
}

/// Memory for one batch at a time.
template <class T>
class Batch {
 public:
  explicit Batch(sw::Place place) : place_(place) {}

  void fill(const sw::ImageSet& set, std::span<const std::uint32_t> chosen) {
    size_ = chosen.size();
    images_.resize(size_ * set.image_size());
    labels_.resize(size_);
    sw::copy_batch(set, chosen, sw::fashion_mnist_normalisation, std::span(images_),
                   std::span(labels_));
  }
  std::size_t size() const { return size_; }

  sw::View<const T, sw::Invariant> images() const {
    return {images_.data(), {{sw::Axis::batch, size_}, {sw::Axis::feature, 784}}, place_};
  }
  sw::View<const std::int32_t, sw::Invariant> labels() const {
    return {labels_.data(), {{sw::Axis::batch, size_}}, place_};
  }

 private:
  sw::Place place_;
  std::size_t size_ = 0;
  std::vector<T> images_;
  std::vector<std::int32_t> labels_;
};

/// The share of images that the model gets right.
template <class M, class T>
double accuracy(M& model, const sw::ImageSet& set, Batch<T>& batch) {
  sw::DistributedSampler sampler(set.count, sw::place_of(model.ranks()),
                                 {.batch_size = 500, .order = sw::SampleOrder::stored});
  std::size_t correct = 0;
  for (std::size_t b = 0; b < sampler.batches(); ++b) {
    batch.fill(set, sampler.next().whole);
    correct += count_correct(model, batch.images(), batch.labels());
  }
  return static_cast<double>(correct) / static_cast<double>(set.count);
}

/// What each rank does. The dtype chooses the backend: oneDNN multiplies no double.
template <class T>
void train(sw::ThreadCommunicator& ranks, const Options& options) {
  using Backend = std::conditional_t<std::same_as<T, double>, sw::Reference, sw::OneDnn>;
  const bool speaks = ranks.rank() == 0;
  const auto images_of = [&](sw::Part part) {
    return example::read_and_broadcast(ranks, [&] { return read_images(options, part); });
  };
  const sw::ImageSet train_set = images_of(sw::Part::train);
  const sw::ImageSet test_set = images_of(sw::Part::test);

  sw::Model<Mlp, sw::Context<T, Backend, sw::ThreadCommunicator>> model(ranks,
                                                                        sw::Seed{options.seed});
  const sw::CrossEntropy loss;
  sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = options.learning_rate, .momentum = 0.9});
  if (speaks) {
    const sw::Shape in{{sw::Axis::batch, options.batch}, {sw::Axis::feature, 784}};
    example::print_plan(plan_step(model, in, loss));
  }

  Batch<T> batch(sw::place_of(ranks));
  sw::DistributedSampler sampler(train_set.count, sw::place_of(ranks),
                                 {.batch_size = options.batch, .seed = sw::Seed{options.seed}});
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    double sum_of_losses = 0;
    {
      example::ProgressBar bar("epoch " + std::to_string(epoch), sampler.batches(), speaks);
      for (std::size_t b = 0; b < sampler.batches(); ++b) {
        batch.fill(train_set, sampler.next().whole);
        const double steps = static_cast<double>(sampler.batches()) * options.epochs;
        optimizer.set_learning_rate(options.learning_rate *
                                    (1 - static_cast<double>(optimizer.steps()) / steps));
        const double mean = train_step(model, batch.images(), batch.labels(), loss, optimizer);
        sum_of_losses += mean * static_cast<double>(batch.size());
        bar.show(b + 1);
      }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const double correct = accuracy(model, test_set, batch);
    if (speaks) {
      const auto images = static_cast<double>(train_set.count);
      std::printf("epoch %d   loss %.6f   test accuracy %.2f %%   %.0f images/s\n", epoch,
                  sum_of_losses / images, 100 * correct, images / seconds.count());
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  const std::map<std::string, void (*)(sw::ThreadCommunicator&, const Options&)> train_in{
      {"float", train<float>}, {"double", train<double>}, {"bf16", train<sw::bf16>}};

  CLI::App app("Trains a multilayer perceptron, split over ranks, on Fashion-MNIST.");
  app.option_defaults()->always_capture_default();
  app.add_option("-s,--ranks", options.ranks, "over how many ranks the weights are split");
  app.add_option("-b,--batch", options.batch, "images in one step");
  app.add_option("-e,--epochs", options.epochs, "how often all images are seen");
  app.add_option("--lr", options.learning_rate,
                 "learning rate of the first step; falls to 0 until the last");
  app.add_option("--dtype", options.dtype, "number type")->check(CLI::IsMember(train_in));
  app.add_option("--seed", options.seed, "of weights and of the order of images");
  app.add_option("--data-dir", options.data_folder, "folder of the four Fashion-MNIST files");
  app.add_flag("--synthetic", options.synthetic, "use made-up images, which need no files");
  CLI11_PARSE(app, argc, argv);

  sw::run_ranks(options.ranks,
                [&](sw::ThreadCommunicator& ranks) { train_in.at(options.dtype)(ranks, options); });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "02_train_mlp: %s\n", e.what());
  return 1;
}
