// A vision transformer learns to classify images. It is written once; `--way` chooses how ranks
// share the work.
//
//                --way tensor             --way sequence            --way context
//     patches    each rank its features   each rank its features    whole on each rank
//                └ all-gather ┐           └ all-to-all ┐
//     stream     whole on each rank       each rank its tokens      each rank its tokens
//                                         └ all-gather ┐
//     q, k, v    each rank its heads      each rank its heads       each rank its tokens
//                                                                   └ keys are gathered ┐
//     attention  each rank its heads      each rank its heads       each rank its tokens
//     output     summands                 summands                  each rank its tokens
//                └ all-reduce ┐           └ reduce-scatter ┐
//     stream     whole on each rank       each rank its tokens      each rank its tokens
//                                         └ first tokens: all-reduce ┐
//     logits     each rank its classes    each rank its classes     whole on each rank
//
// A token is a patch of 4 x 4 pixels; one more, which is learned, stands in front and gives the
// logits. The losses agree in all ways, at any number of ranks.
//
// test: --data synthetic -s 2 -e 1 --samples 64
#include <CLI/CLI.hpp>
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

// begin: network
constexpr sw::VitForm form{.patch = 4};

template <class Parallel>
auto network() {
  return sw::vit<Parallel, form>({.channels = 1,
                                  .side = 28,
                                  .patch = 4,
                                  .features = 64,
                                  .hidden = 128,
                                  .heads = 4,
                                  .layers = 3,
                                  .classes = 10});
}
// end: network

using Batches = example::BroadcastBatches<float, example::Ranks>;

/// `ranks` distribute the images; the model communicates over `group`.
template <class Parallel, class Group, class Backend>
void train(example::Ranks& ranks, Group& group, Backend& backend,
           const example::TrainingOptions& options) {
  constexpr sw::Seed seed{1};  // of weights and of the order of images
  Batches batches(ranks, options.data, example::Part::train,
                  {.batch_size = options.batch, .seed = seed, .drops_last = true});
  Batches test_batches(ranks, options.data, example::Part::test,
                       {.batch_size = 500, .shuffles = false});
  const sw::Shape in = Batches::shape_of(options.batch, options.data.form());
  const auto net = network<Parallel>();
  sw::Model<decltype(net), sw::Context<float, Backend, Group>,
            sw::Ends<sw::Invariant, sw::Invariant>>
      model(net, group, seed, in, backend);
  sw::Optimizer optimizer(model, sw::AdamW{.learning_rate = 1e-3, .decay = sw::Decay::chosen});
  if (ranks.rank() == 0) example::print_plan(plan_step(model, in, sw::CrossEntropy{}));
  example::train_epochs(model, optimizer, batches, test_batches, options.epochs);
}

template <class Parallel>
void train_on_device(example::Ranks& ranks, const example::TrainingOptions& options) {
  example::on_device<float>(options.device, ranks, [&](auto& group, auto& backend) {
    train<Parallel>(ranks, group, backend, options);
  });
}

using Trainer = void (*)(example::Ranks&, const example::TrainingOptions&);
const std::map<std::string, Trainer> ways{{"tensor", train_on_device<sw::TensorParallel>},
                                          {"sequence", train_on_device<sw::SequenceParallel>},
                                          {"context", train_on_device<sw::ContextParallel>}};

}  // namespace

int main(int argc, char** argv) try {
  example::TrainingOptions options{.way = "tensor"};
  CLI::App app("Trains a vision transformer, split over ranks in one of three ways.");
  example::add_training_options(app, options, {"tensor", "sequence", "context"},
                                {"fashion-mnist", "synthetic"});
  CLI11_PARSE(app, argc, argv);

  example::launch(options.ranks,
                  [&](example::Ranks& ranks) { ways.at(options.way)(ranks, options); });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "17_train_vit: %s\n", e.what());
  return 1;
}
