// A multilayer perceptron learns to classify clothes; its weight matrices are split over the ranks.
//
//                rank 0            rank 1
//     images   [      784       |      784       ]   the same on every rank
//                 │ W1[0:256]       │ W1[256:512]    column-parallel: each rank has some features
//                [ 256 features  |  256 features ]
//                 relu              relu             sends nothing
//                 │ W2[:, 0:256]    │ W2[:, 256:512] row-parallel: each rank adds up its features
//                [ 10 summands   |  10 summands  ]
//                 └────── all-reduce ──────┘         the only exchange of a step
//     logits   [       10       |       10       ]   the same on every rank
//
// Also built as 02_train_mlp_mpi, whose ranks are processes: mpiexec -n 2 02_train_mlp_mpi -s 2
// Also built by nvcc as gpu_train_mlp, which computes on one GPU per rank or a shared one:
// gpu_train_mlp -s 2 --device cuda
//
// test: --synthetic -s 2 -e 1
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "shardwise/data/sampler.hpp"
#include "shardwise/shardwise.hpp"
#include "support/broadcast_images.hpp"
#include "support/checkpoints.hpp"
#include "support/device.hpp"
#include "support/image_batch.hpp"
#include "support/launch.hpp"
#include "support/print_plan.hpp"
#include "support/progress_bar.hpp"

namespace sw = shardwise;

namespace {

// The architecture only: no rank count, no dtype, no device.
struct Mlp
    : sw::Sequential<sw::ColumnParallelLinear<784, 512>, sw::Relu, sw::RowParallelLinear<512, 10>> {
};

struct Options {
  int ranks = 1;
  std::size_t batch = 64;
  int epochs = 5;
  double learning_rate = 0.0055;
  std::string dtype = "float";
  std::string device = "auto";
  std::uint64_t seed = 1;
  example::ImageSource images;
  example::CheckpointOptions checkpoints;
};

struct Images {
  example::ImageSet train, test;
};

// begin: train
/// What each rank does, with any communicator and backend.
template <class T, class Ranks, class Backend>
void train(Ranks& ranks, Backend& backend, const Images& images, const Options& options,
           example::Checkpoints& checkpoints) {
  const bool speaks = ranks.rank() == 0;
  const sw::Seed seed{options.seed};
  sw::Model<Mlp, sw::Context<T, Backend, Ranks>> model(Mlp{}, ranks, seed, {}, backend);
  const sw::CrossEntropy loss;
  sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = options.learning_rate, .momentum = 0.9});
  if (speaks) {
    const sw::Shape in{{sw::Axis::batch, options.batch}, {sw::Axis::feature, 784}};
    example::print_plan(plan_step(model, in, loss));
  }

  example::ImageBatch<T, sw::Invariant> batch(sw::place_of(ranks));
  sw::DistributedSampler sampler(images.train.count, sw::place_of(ranks),
                                 {.batch_size = options.batch, .seed = seed});
  if (const auto position = checkpoints.resume(model, optimizer))
    sampler.set_state(position->sampler);
  for (int epoch = static_cast<int>(sampler.state().epoch) + 1; epoch <= options.epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    const auto count = static_cast<double>(sampler.samples_left());
    double sum_of_losses = 0;
    {
      const std::size_t batches = sampler.batches_left();
      example::ProgressBar bar("epoch " + std::to_string(epoch), batches, speaks);
      for (std::size_t b = 0; b < batches; ++b) {
        batch.fill(images.train, sampler.next());
        const auto x = model.to_device(batch.images());  // on the host this copies nothing
        const auto labels = model.to_device(batch.labels());
        const double steps = static_cast<double>(sampler.batches()) * options.epochs;
        optimizer.set_learning_rate(options.learning_rate *
                                    (1 - static_cast<double>(optimizer.steps()) / steps));
        const double mean = train_step(model, x.view(), labels.view(), loss, optimizer);
        sum_of_losses += mean * static_cast<double>(batch.size());
        bar.show(b + 1);
        if (checkpoints.save(model, optimizer, {.sampler = sampler.state()})) return;
      }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const double correct = example::accuracy(model, images.test);
    if (speaks) {
      std::printf("epoch %d   loss %.6f   test accuracy %.2f %%   %.0f images/s\n", epoch,
                  sum_of_losses / count, 100 * correct, count / seconds.count());
      std::fflush(stdout);
    }
  }
}
// end: train

// begin: choose
/// Reads the images, and trains on the chosen device.
template <class T>
void train_in(example::Ranks& ranks, const Options& options, example::Checkpoints& checkpoints) {
  example::on_device<T>(options.device, ranks, [&](auto& group, auto& backend) {
    const sw::Seed seed{options.seed};
    const Images images{example::images_of(ranks, options.images, seed, example::Part::train),
                        example::images_of(ranks, options.images, seed, example::Part::test)};
    train<T>(group, backend, images, options, checkpoints);
  });
}
// end: choose

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  using Trainer = void (*)(example::Ranks&, const Options&, example::Checkpoints&);
  const std::map<std::string, Trainer> dtypes{
      {"float", train_in<float>}, {"double", train_in<double>}, {"bf16", train_in<sw::bf16>}};

  CLI::App app("Trains a multilayer perceptron, split over ranks, on Fashion-MNIST.");
  app.option_defaults()->always_capture_default();
  app.add_option("-s,--ranks", options.ranks, "over how many ranks the weights are split");
  app.add_option("-b,--batch", options.batch, "images in one step")->check(CLI::Range(1, 1000000));
  app.add_option("-e,--epochs", options.epochs, "how often all images are seen")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--lr", options.learning_rate,
                 "learning rate of the first step; falls to 0 until the last");
  app.add_option("--dtype", options.dtype, "number type")->check(CLI::IsMember(dtypes));
  example::add_device_option(app, options.device);
  app.add_option("--seed", options.seed, "of weights and of the order of images");
  app.add_option("--data-dir", options.images.folder, "folder of the four Fashion-MNIST files");
  app.add_flag("--synthetic", options.images.synthetic, "use made-up images, which need no files");
  example::add_checkpoint_options(app, options.checkpoints);
  CLI11_PARSE(app, argc, argv);

  example::Checkpoints checkpoints(options.checkpoints);
  example::launch(options.ranks, [&](example::Ranks& ranks) {
    dtypes.at(options.dtype)(ranks, options, checkpoints);
  });
  return checkpoints.exit_code();
} catch (const std::exception& e) {
  std::fprintf(stderr, "02_train_mlp: %s\n", e.what());
  return 1;
}
