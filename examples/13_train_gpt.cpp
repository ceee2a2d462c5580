// A GPT learns to write, character by character. It is written once; `--way` chooses how ranks
// share the work.
//
//                --way tensor             --way sequence            --way context
//     stream     whole on each rank       each rank its tokens      each rank its tokens
//                                         └ all-gather ┐
//     q, k, v    each rank its heads      each rank its heads       each rank its tokens
//                                                                   └ keys are gathered ┐
//     attention  each rank its heads      each rank its heads       each rank its tokens
//     output     summands                 summands                  each rank its tokens
//                └ all-reduce ┐           └ reduce-scatter ┐
//     stream     whole on each rank       each rank its tokens      each rank its tokens
//
// The perceptron of a block is split likewise. The losses agree in all ways, at any number of
// ranks.
//
// test: --text /usr/share/common-licenses/Apache-2.0 -s 2 --steps 4 --write 8
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/generate/generator.hpp"
#include "shardwise/shardwise.hpp"
#include "support/checkpoints.hpp"
#include "support/launch.hpp"
#include "support/log.hpp"
#include "support/print_plan.hpp"
#include "support/progress_bar.hpp"
#include "support/text.hpp"

namespace sw = shardwise;

namespace {

constexpr std::size_t length = 64, width = 96, heads = 6, head = width / heads, blocks = 3;

// begin: network
template <class Parallel>
using Heads = sw::HeadLinear<width, heads, head, true, typename Parallel::first>;

template <class Parallel>
using Attention =
    sw::Sequential<sw::LayerNorm<width>,
                   sw::Join<sw::Attend<>, Heads<Parallel>, Heads<Parallel>, Heads<Parallel>>,
                   sw::Linear<typename Parallel::second, width, width>, sw::Dropout<1, 20>>;

template <class Parallel>
using Perceptron =
    sw::Sequential<sw::LayerNorm<width>, sw::Linear<typename Parallel::first, width, 4 * width>,
                   sw::GeluTanh, sw::Linear<typename Parallel::second, 4 * width, width>,
                   sw::Dropout<1, 20>>;

template <class Parallel>
struct Block
    : sw::Sequential<sw::Residual<Attention<Parallel>>, sw::Residual<Perceptron<Parallel>>> {};

template <class Parallel>
struct Gpt
    : sw::Sequential<sw::Embedding<example::characters, width, typename Parallel::first>,
                     sw::PositionEmbedding<length, width>, sw::To<typename Parallel::stream>,
                     sw::Repeat<blocks, Block<Parallel>>, sw::LayerNorm<width>,
                     sw::Linear<typename Parallel::first, width, example::characters, false>> {};
// end: network

struct Options {
  std::string way = "tensor";
  int ranks = 1;
  std::string text = "/usr/share/doc/jargon-text/jargon.txt.gz";
  std::size_t batch = 16;
  int steps = 300;
  std::size_t characters = 200;  // to write at the end
  std::string log;               // a line for each step, for curves
  example::CheckpointOptions checkpoints;
};

// begin: write
/// Writes `count` characters behind "The ". There are positions for `length` characters; from then
/// on the second half of these is the prompt for the next ones.
template <class M>
std::string write_text(M& model, std::size_t count) {
  sw::Generator generator(model, {.sequences = 1, .tokens = length},
                          {.temperature = 0.8, .seed = sw::Seed{2}});
  std::vector<std::int32_t> text{'T', 'h', 'e', ' '};
  std::size_t number = generator.add(text);
  for (; count > 0; --count) {
    if (generator.tokens(number).size() == length) {
      generator.end(number);
      number = generator.add(std::span(text).last(length / 2));
    }
    text.push_back(generator.step()[0].id);
  }
  return {text.begin(), text.end()};
}
// end: write

template <class Parallel>
void train(example::Ranks& ranks, const Options& options, example::Checkpoints& checkpoints) {
  const bool speaks = ranks.rank() == 0;
  const std::string text = example::broadcast_text(ranks, options.text);
  example::TextBatches batches(text, options.batch, length, sw::place_of(ranks));
  const sw::Shape in{{sw::Axis::batch, sw::dynamic}, {sw::Axis::sequence, sw::dynamic}};
  sw::OneDnn backend;
  sw::Model<Gpt<Parallel>, sw::Context<float, sw::OneDnn, example::Ranks>,
            sw::Ends<sw::Invariant, typename Parallel::logits>>
      model(Gpt<Parallel>{}, ranks, sw::Seed{1}, in, backend);
  sw::Optimizer optimizer(model, sw::AdamW{.learning_rate = 3e-3, .decay = sw::Decay::chosen});
  const sw::CrossEntropy loss;
  if (speaks) example::print_plan(plan_step(model, batches.ids().global(), loss));

  const bool goes_on = checkpoints.resume(model, optimizer).has_value();
  example::Log log(options.log, options.way, "step,loss", ranks, goes_on);
  {
    example::ProgressBar bar(options.way, static_cast<std::size_t>(options.steps), speaks);
    for (int step = static_cast<int>(model.step()) - 1; step < options.steps; ++step) {
      batches.choose(sw::RandomStream(sw::Seed{3}, 0, static_cast<std::uint64_t>(step)));
      const double value =
          train_step(model, batches.ids(), batches.labels(), loss, optimizer, {.clip_norm = 1.0});
      log.write(step, value);
      bar.show(static_cast<std::size_t>(step) + 1);
      const bool is_last = step + 1 == options.steps;
      if (speaks && (is_last || (step + 1) % 50 == 0))
        std::printf("step %d   loss %.6f nats a character\n", step + 1, value);
      if (checkpoints.save(model, optimizer, {})) return;
    }
  }
  if (options.characters == 0) return;
  const std::string written = write_text(model, options.characters);
  if (speaks) std::printf("%s\n", written.c_str());
}

using Trainer = void (*)(example::Ranks&, const Options&, example::Checkpoints&);
const std::map<std::string, Trainer> ways{{"tensor", train<sw::TensorParallel>},
                                          {"sequence", train<sw::SequenceParallel>},
                                          {"context", train<sw::ContextParallel>}};

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a GPT on a text, split over ranks in one of three ways.");
  app.option_defaults()->always_capture_default();
  app.add_option("--way", options.way, "how the network is split")
      ->check(CLI::IsMember({"tensor", "sequence", "context"}));
  app.add_option("-s,--split", options.ranks, "over how many ranks");
  app.add_option("--text", options.text,
                 "a file to learn from, plain or gzip'd; the default is in Debian's jargon-text");
  app.add_option("-b,--batch", options.batch, "pieces of the text in one step")
      ->check(CLI::Range(1, 100000));
  app.add_option("--steps", options.steps, "steps of training")->check(CLI::Range(1, 10000000));
  app.add_option("--write", options.characters, "characters to write at the end, 0 for none");
  app.add_option("--log", options.log, "a file for the loss of each step");
  example::add_checkpoint_options(app, options.checkpoints);
  CLI11_PARSE(app, argc, argv);

  example::Checkpoints checkpoints(options.checkpoints);
  example::launch(options.ranks, [&](example::Ranks& ranks) {
    ways.at(options.way)(ranks, options, checkpoints);
  });
  return checkpoints.exit_code();
} catch (const std::exception& e) {
  std::fprintf(stderr, "13_train_gpt: %s\n", e.what());
  return 1;
}
