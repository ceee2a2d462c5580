// A whole training step of a GPT of 6 blocks, 6 heads and 384 features with 256 characters, on 8
// pieces of text of 256 tokens: forward, cross-entropy, backward and AdamW, in float. One rank
// (time of the thread) against a loop by hand over the same kernels. Two thread ranks (wall time)
// against one.
//
//     bench_models_gpt_step [--rounds=N] [--benchmark_filter=one]

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/gpt_model.hpp"
#include "models/gpt_step_by_hand.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "support/one_and_two_ranks.hpp"
#include "support/program.hpp"
#include "support/require_equal.hpp"

namespace {

namespace sw = shardwise;

constexpr double sample_seconds = 1e-3;
constexpr bench::GptSizes sizes;

const bench::GptBatch& batch() {
  static const bench::GptBatch batch(sizes);
  return batch;
}

/// Three steps of both, which must give the same losses and parameters.
template <class Exact, class Model>
void check(const std::string& who, Exact& exact, Model& model) {
  const std::vector<float> before = exact.parameters();
  for (int step = 0; step < 3; ++step) {
    const double loss = exact(), got = model();
    if (std::abs(got - loss) <= 1e-5 * loss) continue;
    throw std::runtime_error(who + ": the loss is " + std::to_string(got) + ", not " +
                             std::to_string(loss));
  }
  const std::vector<float> after = exact.parameters(), got = model.parameters();
  bench::require_change(who, before.data(), after.data(), got.data(), before.size(), 1e-2);
}

std::vector<bench::Timing> on_one_rank(int rounds) {
  sw::SingleRank alone;
  bench::Gpt<sw::SingleRank> model(alone, sizes, batch());
  by_hand::GptStep hand(sizes, batch(), model);
  check("model", hand, model);
  return bench::interleave({{"by hand", [&] { hand(); }}, {"model", [&] { model(); }}},
                           {rounds, sample_seconds, bench::Clock::thread});
}

std::vector<bench::Timing> on_two_ranks(sw::ThreadCommunicator& ranks, int rounds) {
  sw::SingleRank alone;
  bench::Gpt<sw::SingleRank> one(alone, sizes, batch());
  bench::Gpt<sw::ThreadCommunicator> two(ranks, sizes, batch());
  check("two ranks", one, two);
  return bench::interleave(ranks,
                           {bench::on_first(ranks, "one rank on one core", [&] { one(); }),
                            {"two ranks", [&] { two(); }}},
                           rounds, sample_seconds);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 7);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  bench::add_one_and_two(
      program, "gpt_step", [&] { return on_one_rank(program.rounds()); },
      [&](sw::ThreadCommunicator& ranks) { return on_two_ranks(ranks, program.rounds()); });
  return program.run();
}
