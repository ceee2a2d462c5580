// One program for the host and for GPUs: what computes is chosen when it starts.
//
//     --device cpu           cuda, one GPU           cuda, a GPU for each rank
//
//     rank 0    rank 1       rank 0    rank 1        rank 0    rank 1
//       │         │            └── GPU 0 ┘            GPU 0     GPU 1
//     threads' memory        one GPU's memory           └─ NCCL ─┘
//
// The architecture says nothing of it, and the same weights are drawn everywhere. Built again by
// nvcc, as `./dev gpu build` does, it knows the GPUs; where there is none, `auto` is the host.
//
// test: -s 2 -e 1 --device auto
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>

#include "shardwise/data/sampler.hpp"
#include "shardwise/data/synthetic.hpp"
#include "shardwise/shardwise.hpp"
#include "support/image_batch.hpp"

// begin: devices
#ifdef SHARDWISE_EXAMPLE_CUDA
#include "shardwise/run/cuda_devices.hpp"
using Devices = shardwise::CudaDevices;
using Host = shardwise::Reference;  // so that the program needs NVIDIA's libraries alone
#else
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/run/device.hpp"
using Devices = shardwise::NoDevices;
using Host = shardwise::OneDnn;
#endif
// end: devices

namespace sw = shardwise;

namespace {

// begin: architecture
struct Mlp
    : sw::Sequential<sw::ColumnParallelLinear<784, 512>, sw::Relu, sw::RowParallelLinear<512, 10>> {
};
// end: architecture

struct Options {
  int ranks = 1;
  int epochs = 3;
  std::size_t batch = 64;
  std::string device = "auto";
};

// begin: train
/// What each rank does with whatever talks and computes.
template <class Ranks, class Backend>
void train(Ranks& ranks, Backend& backend, const Options& options) {
  constexpr sw::Seed seed{1};
  const sw::ImageSet images = sw::make_synthetic_images(seed, sw::Part::train, 6000);
  const sw::ImageSet tests = sw::make_synthetic_images(seed, sw::Part::test, 1000);

  sw::Model<Mlp, sw::Context<float, Backend, Ranks>> model(Mlp{}, ranks, seed, {}, backend);
  sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = 0.005, .momentum = 0.9});
  const sw::Place place = sw::place_of(ranks);
  example::ImageBatch<float, sw::Invariant> batch(place);
  sw::DistributedSampler sampler(images.count, place, {.batch_size = options.batch, .seed = seed});
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    double loss = 0;
    for (std::size_t b = 0; b < sampler.batches(); ++b) {
      batch.fill(images, sampler.next());
      const auto x = model.to_device(batch.images());  // on the host this copies nothing
      const auto labels = model.to_device(batch.labels());
      loss = train_step(model, x.view(), labels.view(), sw::CrossEntropy{}, optimizer);
    }
    const double correct = example::accuracy(model, tests);
    if (ranks.rank() == 0)
      std::printf("epoch %d   loss of its last batch %.4f   test accuracy %.1f %%\n", epoch, loss,
                  100 * correct);
  }
}
// end: train

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a perceptron on made-up images, on the host or on GPUs.");
  app.option_defaults()->always_capture_default();
  app.add_option("-s,--ranks", options.ranks, "over how many ranks the weights are split");
  app.add_option("-e,--epochs", options.epochs, "how often all images are seen")
      ->check(CLI::Range(1, 1000000));
  app.add_option("-b,--batch", options.batch, "images in one step")->check(CLI::Range(1, 6000));
  app.add_option("--device", options.device, "what computes")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  CLI11_PARSE(app, argc, argv);

  // begin: choose
  sw::run_ranks(options.ranks, [&](sw::ThreadCommunicator& threads) {
    sw::with_device<Host, Devices>(
        sw::device_choice(options.device), threads,
        [&](auto& ranks, auto& backend) { train(ranks, backend, options); });
  });
  // end: choose
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "12_on_the_host_or_a_device: %s\n", e.what());
  return 1;
}
