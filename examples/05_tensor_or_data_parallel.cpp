// The same perceptron and the same batches, split over ranks in one of two ways.
//
//     --parallel tensor                           --parallel data
//                rank 0     rank 1                             rank 0     rank 1
//     images   [   64    |   64       ]           images     [  32 of  |  32 of 64  ]
//     W1       [ 256 of  | 256 of 512 ]           W1         [   512   |   512      ]
//     logits       └ all-reduce ┘                 logits     [  32 of  |  32 of 64  ]
//                of 64 x 10 summands              gradients      └ all-reduce ┘
//                                                              of all 407,050
//
// What a tensor-parallel step sends grows with the batch, what a data-parallel step sends grows
// with the weights. Their losses agree. Also built by nvcc as gpu_tensor_or_data_parallel, which
// computes on GPUs: gpu_tensor_or_data_parallel -s 2 --device cuda
//
// test: --synthetic -s 3 -e 1 --parallel data
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/data/sampler.hpp"
#include "shardwise/shardwise.hpp"
#include "support/broadcast_images.hpp"
#include "support/device.hpp"
#include "support/image_batch.hpp"
#include "support/print_plan.hpp"

namespace sw = shardwise;

namespace {

// begin: ways
template <class First, class Second>
struct Mlp : sw::Sequential<sw::Linear<First, 784, 512>, sw::Relu, sw::Linear<Second, 512, 10>> {};

// The only differences: the split of weights, and the layout of images, logits and labels.
struct TensorParallel {
  static constexpr const char* name = "tensor";
  using Architecture = Mlp<sw::split::output, sw::split::input>;
  using Layout = sw::Invariant;
};
struct DataParallel {
  static constexpr const char* name = "data";
  using Architecture = Mlp<sw::split::none, sw::split::none>;
  using Layout = sw::Sharded<sw::Axis::batch>;
};
// end: ways

constexpr sw::Seed seed{1};  // of weights and of the order of images

struct Options {
  std::string parallel = "tensor";
  int ranks = 2;
  std::size_t batch = 64;
  int epochs = 1;
  std::string device = "auto";
  example::ImageSource images;
};

// begin: training
/// A rank's model and its data; the code is the same for both ways. The model computes with
/// `backend`, and communicates over `group`.
template <class Way, class Group, class Backend>
struct Training {
  using Ranks = sw::CountingCommunicator<Group>;
  using Architecture = typename Way::Architecture;
  using Ends = sw::Ends<typename Way::Layout, typename Way::Layout>;
  using Model = sw::Model<Architecture, sw::Context<float, Backend, Ranks>, Ends>;

  double step() {
    ranks.clear();
    batch.fill(set, sampler.next());
    const auto images = model.to_device(batch.images());  // on the host this copies nothing
    const auto labels = model.to_device(batch.labels());
    return train_step(model, images.view(), labels.view(), loss, optimizer);
  }

  sw::ThreadCommunicator& threads;
  Group& group;
  Backend& backend;
  const example::ImageSet& set;
  const Options& options;
  const sw::Place place = sw::place_of(threads);
  Ranks ranks{group};
  Model model{Architecture{}, ranks, seed, {}, backend};
  sw::CrossEntropy loss{};
  sw::Optimizer<sw::Sgd, Model> optimizer{model, {.learning_rate = 0.008, .momentum = 0.9}};
  sw::DistributedSampler sampler{set.count, place, {.batch_size = options.batch, .seed = seed}};
  example::ImageBatch<float, typename Way::Layout> batch{place};
};
// end: training

/// The losses of the first steps; prints what a step sends, as planned and as counted.
template <class Way, class Group, class Backend>
std::vector<double> first_losses(Training<Way, Group, Backend> training) {
  std::vector<double> losses{training.step()};
  const sw::Shape in = training.batch.images().global();
  if (training.threads.rank() == 0) {
    const auto& layers = training.model.layers();
    using Ends = typename Training<Way, Group, Backend>::Ends;
    std::printf("%s-parallel: rank 0 holds %zu of %zu parameters; in one step, all ranks pass in\n",
                Way::name, sw::parameters_of_rank<Ends>(layers, training.place, in),
                sw::parameters_of_rank<Ends>(layers, {0, 1}, in));
  }
  const sw::Plan plan = plan_step(training.model, in, training.loss);
  example::compare_with_plan(plan, training.threads, training.ranks, true);
  while (losses.size() < 8) losses.push_back(training.step());
  return losses;
}

void compare(const std::vector<double>& tensor, const std::vector<double>& data, bool speaks) {
  double largest = 0;
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const double difference = std::abs(tensor[i] - data[i]) / tensor[i];
    if (difference > largest || std::isnan(difference)) largest = difference;
    if (speaks) {
      std::printf("loss of step %zu   tensor %.7f   data %.7f   relative difference %.1e\n", i + 1,
                  tensor[i], data[i], difference);
    }
  }
  if (!(largest <= 1e-5)) throw std::runtime_error("the two ways do not learn the same");
}

template <class Way, class Group, class Backend>
void train(sw::ThreadCommunicator& threads, Group& group, Backend& backend,
           const Options& options) {
  const auto train_set = example::images_of(threads, options.images, seed, example::Part::train);
  const auto test_set = example::images_of(threads, options.images, seed, example::Part::test);
  const auto tensor = first_losses(
      Training<TensorParallel, Group, Backend>{threads, group, backend, train_set, options});
  const auto data = first_losses(
      Training<DataParallel, Group, Backend>{threads, group, backend, train_set, options});
  compare(tensor, data, threads.rank() == 0);
  Training<Way, Group, Backend> training{threads, group, backend, train_set, options};
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t left = training.sampler.batches(); left > 0; --left) training.step();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const double right = example::accuracy(training.model, test_set);
    if (threads.rank() != 0) continue;
    std::printf("%s-parallel on %d ranks, epoch %d   test accuracy %.2f %%   %.0f images/s\n",
                Way::name, threads.size(), epoch, 100 * right,
                static_cast<double>(train_set.count) / seconds.count());
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a perceptron whose weights, or whose images, are shared out over ranks.");
  app.option_defaults()->always_capture_default();
  app.add_option("--parallel", options.parallel, "what is shared out: weights or images")
      ->check(CLI::IsMember({"tensor", "data"}));
  app.add_option("-s,--ranks", options.ranks, "over how many ranks");
  app.add_option("-b,--batch", options.batch, "images in one step, over all ranks")
      ->check(CLI::Range(1, 1000000));
  app.add_option("-e,--epochs", options.epochs, "how often all images are seen")
      ->check(CLI::Range(1, 1000000));
  example::add_device_option(app, options.device);
  app.add_option("--data-dir", options.images.folder, "folder of the four Fashion-MNIST files");
  app.add_flag("--synthetic", options.images.synthetic, "use made-up images, which need no files");
  CLI11_PARSE(app, argc, argv);

  sw::run_ranks(options.ranks, [&](sw::ThreadCommunicator& threads) {
    example::on_device<float>(options.device, threads, [&](auto& group, auto& backend) {
      if (options.parallel == "data") return train<DataParallel>(threads, group, backend, options);
      train<TensorParallel>(threads, group, backend, options);
    });
  });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "05_tensor_or_data_parallel: %s\n", e.what());
  return 1;
}
