// The convolutional network of the examples on 64 grey images of 28x28, float. One rank (time of
// the thread) against its convolutions and matrix products alone, called by hand. Each of its three
// splits on two thread ranks (wall time) against one rank, and against two free halves: two
// networks of half the batch each, that never communicate.
//
//     bench_models_cnn [--rounds=N] [--benchmark_filter=spatial]

#include <string>
#include <vector>

#include "models/cnn_by_hand.hpp"
#include "models/cnn_model.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "support/one_and_two_ranks.hpp"
#include "support/program.hpp"

namespace {

namespace sw = shardwise;

constexpr std::size_t images = 64;
constexpr double sample_seconds = 1e-3;

template <class Architecture, class C>
using Network = bench::Cnn<Architecture, C, sw::OneDnn>;
using Alone = Network<bench::Alternating, sw::SingleRank>;  // alike for all three splits

/// How much of a training step.
enum class Part { forward, backward, step };

template <class N>
void run(N& network, Part part) {
  if (part == Part::forward) network.forward();
  if (part == Part::backward) network.train();
  if (part == Part::step) network.step();
}

const bench::CnnBatch& batch() {
  static const bench::CnnBatch batch(images);
  return batch;
}

const bench::CnnResults& expected() {
  static const bench::CnnResults results = bench::expected_of_cnn(batch());
  return results;
}

std::vector<bench::Timing> on_one_rank(Part part, int rounds) {
  sw::SingleRank alone;
  Alone network(alone, batch());
  bench::require_results("model", expected(), network.results());
  by_hand::Library library;
  by_hand::CnnProducts lie(library, images, by_hand::Images::as_they_lie);
  by_hand::CnnProducts copied(library, images, by_hand::Images::as_the_library_likes);
  lie.check();
  copied.check();
  const auto products = [part](by_hand::CnnProducts& hand) {
    part == Part::forward ? hand.forward() : hand.train();
  };
  return bench::interleave({{"products by hand, images copied", [&] { products(copied); }},
                            {"products by hand, as they lie", [&] { products(lie); }},
                            {"model, all layers", [&] { run(network, part); }}},
                           {rounds, sample_seconds, bench::Clock::thread});
}

template <class Architecture>
std::vector<bench::Timing> on_two_ranks(sw::ThreadCommunicator& ranks, Part part, int rounds) {
  sw::SingleRank alone;
  Alone one(alone, batch());
  bench::require_results("one rank", expected(), one.results());
  Network<Architecture, sw::ThreadCommunicator> two(ranks, batch());
  bench::require_results("two ranks", expected(), two.results());
  const bench::CnnBatch half_batch(images / 2);
  Alone half(alone, half_batch);
  half.results();  // to be as warm as the others
  return bench::interleave(ranks,
                           {bench::on_first(ranks, "one rank on one core", [&] { run(one, part); }),
                            {"two free halves of the batch", [&] { run(half, part); }},
                            {"two ranks", [&] { run(two, part); }}},
                           rounds, sample_seconds);
}

template <class Architecture>
void add_split(bench::Program& program, const std::string& name, Part part) {
  const int rounds = program.rounds();
  program.add(name, [=] {
    expected();
    return bench::on_two_ranks([=](sw::ThreadCommunicator& ranks) {
      return on_two_ranks<Architecture>(ranks, part, rounds);
    });
  });
}

void add(bench::Program& program, Part part) {
  const std::string name = std::string("cnn/") + (part == Part::forward    ? "forward"
                                                  : part == Part::backward ? "forward and backward"
                                                                           : "step");
  const int rounds = program.rounds();
  program.add(name + "/one rank",
              [=] { return bench::on_one_rank([=] { return on_one_rank(part, rounds); }); });
  add_split<bench::Gathered>(program, name + "/two ranks, gathered", part);
  add_split<bench::Alternating>(program, name + "/two ranks, alternating", part);
  add_split<bench::Spatial>(program, name + "/two ranks, spatial", part);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  for (const Part part : program.sizes<Part>({Part::step, Part::backward, Part::forward}))
    add(program, part);
  return program.run();
}
