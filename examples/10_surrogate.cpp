// A network that answers in place of a simulation.
//
//     rank 0            rank 1            rank 2
//     runs 0 to 666     667 to 1333       1334 to 1999      each rank has simulated its own
//     └───────────────── all-gather ────────────────┘       now all have all runs
//     22 features       21 features       21 features       one network, split over the ranks
//     └───────────────── all-reduce ────────────────┘
//                  surrogate.safetensors                    the best of all epochs
//     whole network     whole network     whole network     each rank asks its own copy
//
// Also built as 10_surrogate_mpi, whose ranks are processes: mpiexec -n 2 10_surrogate_mpi -s 2
//
// test: -s 3 --runs 300 -e 20 --save surrogate_10.safetensors
#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/shardwise.hpp"
#include "support/launch.hpp"
#include "support/scale.hpp"
#include "support/thrown_ball.hpp"

namespace sw = shardwise;
using example::columns, example::Runs, example::Scale;

namespace {

struct Options {
  int ranks = 1;
  std::size_t runs = 2000;
  int epochs = 200;
  int patience = 20;
  std::string file = "surrogate.safetensors";
};

// begin: gather
using Rows = sw::Sharded<sw::Axis::batch>;

sw::Shape shape_of(std::size_t rows, std::size_t width) {
  return {{sw::Axis::batch, rows}, {sw::Axis::feature, width}};
}

/// The rows of all ranks, on every rank.
template <class Ranks>
std::vector<double> of_all(Ranks& ranks, std::span<const double> mine, const sw::Shape& shape) {
  const sw::Place place = sw::place_of(ranks);
  std::vector<double> all(shape.elements());
  sw::Pool pool;
  redistribute(ranks, pool, sw::View<const double, Rows>(mine, shape, place),
               sw::View<double, sw::Invariant>(std::span(all), shape, place));
  return all;
}
// end: gather

// begin: model
struct Surrogate : sw::Sequential<sw::ColumnParallelLinear<columns, 64>, sw::Gelu,
                                  sw::RowParallelLinear<64, 1>> {};

template <class Ranks>
using Model = sw::Model<Surrogate, sw::Context<double, sw::Reference, Ranks>>;

/// Rows in the program's own memory, the same on every rank.
sw::View<const double, sw::Invariant> view_of(std::span<const double> rows, std::size_t width,
                                              sw::Place place) {
  return {rows, shape_of(rows.size() / width, width), place};
}
// end: model

/// The root of the mean squared difference.
double distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(a[i] - b[i], 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// begin: train
/// Learns from the first `learnt` runs until the error of the others no longer falls. Returns the
/// smallest error, in metres; the network that had it is in the file.
template <class Ranks>
double train(Ranks& ranks, Runs runs, std::size_t learnt, const Options& options) {
  const Scale in(std::span(runs.in).first(learnt * columns), columns);
  const Scale out(std::span(runs.out).first(learnt), 1);
  in.apply(runs.in);
  out.apply(runs.out);
  const auto kept_in = std::span(runs.in).subspan(learnt * columns);
  const auto kept_out = std::span(runs.out).subspan(learnt);

  const sw::Place place = sw::place_of(ranks);
  Model<Ranks> model(ranks, sw::Seed{1});
  sw::Optimizer optimizer(model, sw::AdamW{.learning_rate = 0.01});
  sw::RowBatch<double> x(std::span(runs.in).first(learnt * columns), {{sw::Axis::feature, columns}},
                         place);
  sw::RowBatch<double> y(std::span(runs.out).first(learnt), {{sw::Axis::feature, 1}}, place);
  sw::DistributedSampler sampler(x.count(), place, {.batch_size = 32, .seed = sw::Seed{1}});
  double best = std::numeric_limits<double>::infinity();
  for (int epoch = 1, best_epoch = 0;
       epoch <= options.epochs && epoch - best_epoch <= options.patience; ++epoch) {
    sw::RunningMean loss;
    for (const auto& [batch, answers] : sw::EpochBatches(sampler, x, y)) {
      loss.add(train_step(model, batch, answers, sw::MeanSquaredError{}, optimizer),
               answers.global()[0].units);
    }
    const double error =
        distance(model.evaluate(view_of(kept_in, columns, place)).span(), kept_out);
    if (error < best) {  // on every rank, as all have the same numbers
      best = error;
      best_epoch = epoch;
      sw::save_weights(options.file, model, {.metadata = {{"in", in.text()}, {"out", out.text()}}});
    }
    if (ranks.rank() == 0 && (epoch == 1 || epoch % 10 == 0))
      std::printf("epoch %d   loss %.6f   error %.4f m\n", epoch, loss.value(),
                  error * out.deviation[0]);
  }
  return best * out.deviation[0];
}
// end: train

// begin: ask
/// What the network of a file answers, whole, on a rank that asks no other.
std::vector<double> ask(const std::string& file, std::span<const double> rows) {
  sw::SingleRank alone;
  Model<sw::SingleRank> model(alone, sw::Seed{1});
  auto texts = sw::load_weights(file, model);
  std::vector<double> in(rows.begin(), rows.end());
  Scale(texts["in"], columns).apply(in);
  const auto answers = model.evaluate(view_of(in, columns, {})).span();
  std::vector<double> out(answers.begin(), answers.end());
  Scale(texts["out"], 1).undo(out);
  return out;
}
// end: ask

// begin: rank
/// What each rank does, with the communicator of the simulation.
template <class Ranks>
void simulate_and_learn(Ranks& ranks, const Options& options) {
  const std::size_t learnt = options.runs * 4 / 5;
  const Runs mine = example::simulate_own(options.runs, sw::place_of(ranks));
  const Runs runs{of_all(ranks, mine.in, shape_of(options.runs, columns)),
                  of_all(ranks, mine.out, shape_of(options.runs, 1))};
  const double best = train(ranks, runs, learnt, options);

  const auto answers = ask(options.file, std::span(runs.in).subspan(learnt * columns));
  const double error = distance(answers, std::span(runs.out).subspan(learnt));
  if (!(std::abs(error - best) < 1e-9 * best))
    throw std::runtime_error("the network that was loaded is another one");
  if (ranks.rank() != 0) return;
  std::printf("best error on %d rank(s) %.6f m, loaded on one %.6f m\n", ranks.size(), best, error);
  const std::array one{20.0, 0.8, 0.05};
  std::printf("20 m/s, 0.8 rad, drag 0.05: simulated %.2f m, answered %.2f m\n",
              example::simulate(one), ask(options.file, one)[0]);
}
// end: rank

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a network that answers in place of a simulation.");
  app.option_defaults()->always_capture_default();
  app.add_option("-s,--ranks", options.ranks, "over how many ranks the network is split");
  app.add_option("--runs", options.runs, "of the simulation")->check(CLI::Range(100, 1000000));
  app.add_option("-e,--epochs", options.epochs, "at most")->check(CLI::Range(1, 1000000));
  app.add_option("--patience", options.patience, "epochs to wait for a smaller error")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--save", options.file, "file of the best network, which ends in .safetensors");
  CLI11_PARSE(app, argc, argv);

  example::launch(options.ranks,
                  [&](example::Ranks& ranks) { simulate_and_learn(ranks, options); });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "10_surrogate: %s\n", e.what());
  return 1;
}
