// A residual network with projections in its shortcuts learns to classify images. It is written
// once; `--way` chooses whether channels or rows of images are split over ranks.
//
//              --way channels                           --way rows
//     x        its own channels                         its own rows
//              ├ all-gather ┬─ conv 1x1, stride 2 ──┐   ├────────────┬─ conv 1x1, stride 2 ──┐
//              │            └─ conv, conv ─ reduce- │   │            └─ conv, conv, each     │
//              │                            scatter │   │               with halos of a row  │
//     sum      its own channels ──────────────────+─┘   its own rows ────────────────────────+
//
// x is redistributed to one layout for both branches, and their gradients are added before they are
// redistributed back. The losses agree in both ways, at any number of ranks.
//
// test: --data synthetic -s 2 -e 1 --samples 320
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "shardwise/shardwise.hpp"
#include "support/cnn_data.hpp"
#include "support/device.hpp"
#include "support/launch.hpp"
#include "support/print_plan.hpp"
#include "support/train_epochs.hpp"
#include "support/training_options.hpp"

namespace sw = shardwise;

namespace {

constexpr sw::Kernel three = sw::kernel(3, {.padding = 1});
constexpr sw::Kernel half = sw::kernel(3, {.stride = 2, .padding = 1});
constexpr sw::Kernel short_half = sw::kernel(1, {.stride = 2});

/// Of two consecutive convolutions, the first is split by A and the second by B.
// begin: network
template <class A, class B, std::size_t In, std::size_t Out, sw::Kernel First>
using Convolutions = sw::Sequential<sw::Conv2d<A, In, Out, First>, sw::BatchNorm<Out>, sw::Relu,
                                    sw::Conv2d<B, Out, Out, three>, sw::BatchNorm<Out>>;

/// Halves the rows and columns, so the shortcut has a convolution too.
template <class A, class B, std::size_t In, std::size_t Out>
using Wider =
    sw::Join<sw::Sum, sw::Sequential<sw::Conv2d<A, In, Out, short_half>, sw::BatchNorm<Out>>,
             Convolutions<A, B, In, Out, half>>;

template <class A, class B>
struct ResNet
    : sw::Sequential<sw::Conv2d<A, 1, 16, three>, sw::BatchNorm<16>, sw::Relu,
                     sw::Residual<Convolutions<A, B, 16, 16, three>>, sw::Relu, Wider<A, B, 16, 32>,
                     sw::Relu, Wider<A, B, 32, 64>, sw::Relu, sw::GlobalAveragePool, sw::Flatten,
                     sw::Linear<sw::split::none, 64, 10>> {};

struct ByChannels : ResNet<sw::split::output, sw::split::input> {};
struct ByRows : ResNet<sw::split::height, sw::split::height> {};
// end: network

using Batches = example::BroadcastBatches<float, example::Ranks>;

/// `ranks` distribute the images; the model communicates over `group`.
template <class Network, class Group, class Backend>
void train(example::Ranks& ranks, Group& group, Backend& backend,
           const example::TrainingOptions& options) {
  constexpr sw::Seed seed{1};  // of weights and of the order of images
  Batches batches(ranks, options.data, example::Part::train,
                  {.batch_size = options.batch, .seed = seed, .drops_last = true});
  Batches test_batches(ranks, options.data, example::Part::test,
                       {.batch_size = 500, .shuffles = false});
  const sw::Shape in = Batches::shape_of(options.batch, options.data.form());
  using Ends = sw::Ends<sw::Invariant, sw::Invariant>;
  sw::Model<Network, sw::Context<float, Backend, Group>, Ends> model(Network{}, group, seed, in,
                                                                     backend);
  sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = 0.05, .momentum = 0.9});
  if (ranks.rank() == 0) example::print_plan(plan_step(model, in, sw::CrossEntropy{}));
  example::train_epochs(model, optimizer, batches, test_batches, options.epochs);
}

template <class Network>
void train_on_device(example::Ranks& ranks, const example::TrainingOptions& options) {
  example::on_device<float>(options.device, ranks, [&](auto& group, auto& backend) {
    train<Network>(ranks, group, backend, options);
  });
}

using Trainer = void (*)(example::Ranks&, const example::TrainingOptions&);
const std::map<std::string, Trainer> ways{{"channels", train_on_device<ByChannels>},
                                          {"rows", train_on_device<ByRows>}};

}  // namespace

int main(int argc, char** argv) try {
  example::TrainingOptions options{.way = "channels"};
  CLI::App app("Trains a residual network, split over ranks in one of two ways.");
  example::add_training_options(app, options, {"channels", "rows"}, {"fashion-mnist", "synthetic"});
  CLI11_PARSE(app, argc, argv);

  example::launch(options.ranks,
                  [&](example::Ranks& ranks) { ways.at(options.way)(ranks, options); });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "14_train_resnet: %s\n", e.what());
  return 1;
}
