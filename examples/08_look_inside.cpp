// What a model does: as a table, as a graph, and as a trace of its training.
//
//                  the stream, whole on every rank
//     x ── Linear ──┬──────────────────────────────────────────── + ── ... ── Linear ── logits
//                   └─ LayerNorm ─ Linear ─ Gelu ─ Linear ────────┘
//                                  columns         rows   all-reduce
//                                  of each rank    of each rank
//
// Writes two files into a folder: model.dot, which `dot -Tsvg model.dot -o model.svg` draws, and
// trace.json, which ui.perfetto.dev opens: for each rank one row of computation and one of
// communication.
//
// test: look_inside
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "shardwise/observe/write_trace.hpp"
#include "shardwise/shardwise.hpp"

namespace sw = shardwise;

namespace {

struct FeedForward
    : sw::Residual<sw::Sequential<sw::LayerNorm<64>, sw::ColumnParallelLinear<64, 256>, sw::Gelu,
                                  sw::RowParallelLinear<256, 64>>> {};
struct Network : sw::Sequential<sw::Linear<sw::split::none, 32, 64>, sw::Repeat<3, FeedForward>,
                                sw::ColumnParallelLinear<64, 10>> {};

constexpr int world_size = 2;
const sw::Shape input{{sw::Axis::batch, 128}, {sw::Axis::feature, 32}};

// begin: context
// The fourth argument is the observer. Without one, no code for it is compiled.
using Context = sw::Context<float, sw::Reference, sw::ThreadCommunicator, sw::Tracer>;
// end: context

/// Trains three steps, and writes a trace of the last two.
void train(sw::ThreadCommunicator& ranks, const std::filesystem::path& folder) {
  sw::Model<Network, Context> model(ranks, sw::Seed{1});
  sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = 0.01});
  sw::Tensor<float, sw::Invariant> x(input, place_of(ranks));
  sw::Tensor<std::int32_t, sw::Invariant> labels({input[0]}, place_of(ranks));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 101;
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 10);
  // begin: trace
  const auto step = [&] {
    train_step(model, x.view(), labels.view(), sw::CrossEntropy{}, optimizer);
  };
  step();  // allocates memory, which later steps use again
  model.observer().reserve(1000);
  step();
  step();
  sw::write_trace(folder / "trace.json", ranks, model.observer());
  // end: trace
  if (ranks.rank() != 0) return;
  // begin: describe
  std::printf("%s", describe(model, input).c_str());
  std::ofstream(folder / "model.dot") << describe_graph(model, input);
  // end: describe
  std::size_t collectives = 0;
  for (const auto& event : model.observer().events()) {
    collectives += event.work.kind == sw::Work::Kind::collective ? 1 : 0;
  }
  std::printf("rank 0 noted %zu events, %zu of them collectives; %zu had no room\n",
              model.observer().events().size(), collectives, model.observer().dropped());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: 08_look_inside FOLDER    writes model.dot and trace.json there\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  sw::run_ranks(world_size, [&](sw::ThreadCommunicator& ranks) { train(ranks, folder); });
  for (const char* file : {"model.dot", "trace.json"}) {
    std::printf("%s: %ju bytes\n", (folder / file).c_str(),
                std::uintmax_t{std::filesystem::file_size(folder / file)});
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "08_look_inside: %s\n", e.what());
  return 1;
}
