// A convolutional network learns to classify images, split over ranks in one of three ways.
//
//              --way gathered         --way alternating       --way spatial
//              rank 0    rank 1       rank 0    rank 1        rank 0    rank 1
//     conv 1   16 of 32 channels      16 of 32 channels       rows 0-12  13-25
//              └ all-gather ┘                                 ↕ halos of a row or two
//     conv 2   16 of 32 channels      sums over 16 of 32      rows 0-11  12-23
//              └ all-gather ┘         └ all-reduce ┘
//     pool     whole     whole        whole     whole         rows 0-5   6-11
//                                                             └ all-gather ┘
//     linear   64 of 128 features     64 of 128 features      64 of 128 features
//              └ all-gather ┘
//     linear   5 of 10 classes        sums over 64 of 128     sums over 64 of 128
//              └ all-gather ┘         └ all-reduce ┘          └ all-reduce ┘
//
// The three types are in support/cnn.hpp. They begin with the same weights, drop the same elements,
// and their losses agree at any number of ranks. Also built by nvcc as gpu_train_cnn, which
// computes on GPUs: gpu_train_cnn -s 2 --device cuda
//
// test: --data synthetic -s 2 -e 1 --samples 384
#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "shardwise/shardwise.hpp"
#include "support/cnn.hpp"
#include "support/cnn_data.hpp"
#include "support/device.hpp"
#include "support/launch.hpp"
#include "support/log.hpp"
#include "support/print_plan.hpp"
#include "support/progress_bar.hpp"
#include "support/training_options.hpp"

namespace sw = shardwise;

namespace {

struct Options : example::TrainingOptions {
  std::string log{};
  bool counts = false;
};

using Batches = example::BroadcastBatches<float, example::Ranks>;

/// Prints a line with one number of every rank.
void print_of_each(example::Ranks& ranks, const char* what, std::size_t mine) {
  const std::array<std::int64_t, 1> number{static_cast<std::int64_t>(mine)};
  std::vector<std::int64_t> all(static_cast<std::size_t>(ranks.size()));
  const std::vector<std::size_t> counts(all.size(), 1);
  ranks.all_gather(std::span<const std::int64_t>(number), std::span(all), counts);
  if (ranks.rank() != 0) return;
  std::printf("%s", what);
  for (const std::int64_t of_rank : all) std::printf(" %10lld", static_cast<long long>(of_rank));
  std::printf("\n");
}

/// What each rank does with its part of an architecture. `ranks` distribute the images; the model
/// communicates over `group` and computes with `backend`.
template <class Architecture, class Group, class Backend>
void train(example::Ranks& ranks, Group& group, Backend& backend, const Options& options) {
  constexpr sw::Seed seed{1};  // of weights, of masks and of the order of images
  const bool speaks = ranks.rank() == 0;
  Batches batches(ranks, options.data, example::Part::train,
                  {.batch_size = options.batch, .seed = seed, .drops_last = true});
  Batches test_batches(ranks, options.data, example::Part::test,
                       {.batch_size = 500, .shuffles = false});
  example::Log log(options.log, options.way, "images,what,value", ranks);

  using Counted = sw::CountingCommunicator<Group>;
  Counted counted(group);  // counts what the model sends
  const sw::Shape in = Batches::shape_of(options.batch, options.data.form());
  sw::Model<Architecture, sw::Context<float, Backend, Counted>> model(Architecture{}, counted, seed,
                                                                      in, backend);
  sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = 0.01, .momentum = 0.5});
  const sw::CrossEntropy loss;
  const sw::Plan plan = plan_step(model, in, loss);
  const std::size_t before = model.run().pool.reserved();
  if (speaks) example::print_plan(plan);

  std::size_t seen = 0;
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    double sum_of_losses = 0;
    {
      example::ProgressBar bar("epoch " + std::to_string(epoch), batches.batches(), speaks);
      for (std::size_t b = 0; b < batches.batches(); ++b) {
        counted.clear();
        batches.next();
        const auto images = model.to_device(batches.images());  // on the host this copies nothing
        const auto labels = model.to_device(batches.labels());
        const double mean = train_step(model, images.view(), labels.view(), loss, optimizer);
        sum_of_losses += mean;
        seen += batches.size();
        log.write(seen, "loss", mean);
        bar.show(b + 1);
        if (seen > options.batch) continue;
        example::compare_with_plan(plan, ranks, counted, options.counts);
        if (!options.counts) continue;
        print_of_each(ranks, "parameters of each rank           ", model.values().size());
        print_of_each(ranks, "activations of each rank, in bytes",
                      model.run().pool.reserved() - before);
      }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const double correct = example::accuracy(model, test_batches);
    log.write(seen, "accuracy", correct);
    if (!speaks) continue;
    const auto steps = static_cast<double>(batches.batches());
    std::printf("epoch %d   loss %.6f   test accuracy %.2f %%   %.0f images/s\n", epoch,
                sum_of_losses / steps, 100 * correct,
                steps * static_cast<double>(options.batch) / seconds.count());
    std::fflush(stdout);
  }
}

template <class Architecture>
void train_on_device(example::Ranks& ranks, const Options& options) {
  example::on_device<float>(options.device, ranks, [&](auto& group, auto& backend) {
    train<Architecture>(ranks, group, backend, options);
  });
}

using Trainer = void (*)(example::Ranks&, const Options&);

/// The three ways to split the network, for images of one form.
template <std::size_t Channels, std::size_t Side>
const std::map<std::string, Trainer> ways{
    {"gathered", train_on_device<example::GatheredCnn<Channels, Side>>},
    {"alternating", train_on_device<example::AlternatingCnn<Channels, Side>>},
    {"spatial", train_on_device<example::SpatialCnn<Channels, Side>>}};

}  // namespace

int main(int argc, char** argv) try {
  Options options{{.way = "alternating"}};
  CLI::App app("Trains a convolutional network, split over ranks in one of three ways.");
  example::add_training_options(app, options, {"gathered", "alternating", "spatial"},
                                {"fashion-mnist", "cifar10", "synthetic"});
  app.add_option("--log", options.log, "file for losses and accuracies as CSV");
  app.add_flag("--counts", options.counts,
               "print what a step sends, as planned and as counted, and what each rank holds");
  CLI11_PARSE(app, argc, argv);

  const auto& of_form = options.data.name == "cifar10"
                            ? ways<example::colour.channels, example::colour.side>
                            : ways<example::grey.channels, example::grey.side>;
  example::launch(options.ranks,
                  [&](example::Ranks& ranks) { of_form.at(options.way)(ranks, options); });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "07_train_cnn: %s\n", e.what());
  return 1;
}
