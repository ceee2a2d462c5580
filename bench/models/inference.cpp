// Forward-only perceptrons at few rows: latency against the time of reading all weights once, a
// sum over the same bytes by the same threads. On one rank (time of the thread) and on two
// thread ranks (wall time), each of which reads its half. Speed 1 is that of the sum.
//
//     bench_models_inference [--rounds=N] [--benchmark_filter=4096-4096-4096/bf16]

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "kernels/by_hand.hpp"
#include "models/mlp_model.hpp"
#include "support/one_and_two_ranks.hpp"
#include "support/program.hpp"
#include "support/read_all.hpp"

namespace {

namespace sw = shardwise;

/// Long enough for several calls, so that caches hold what they hold when a model is used again
/// and again.
constexpr double sample_seconds = 20e-3;

/// Features in front of, between and behind the two layers.
using Sizes = std::array<std::size_t, 3>;

template <class T, class C>
using Model = bench::Ours<T, T, C, sw::ForwardOnly>;

/// Reads all weights of a model, or of the rank's part of them.
template <class M>
void read_weights(M& model) {
  bench::read_all(model.model.values());
}

template <class T>
std::vector<bench::Timing> on_one_rank(const bench::MlpProblem<T>& problem, int rounds) {
  sw::SingleRank alone;
  Model<T, sw::SingleRank> model(alone, problem);
  model.require_results("model", problem);
  return bench::with_speed(bench::interleave({{"read all weights", [&] { read_weights(model); }},
                                              {"model", [&] { model.forward(); }}},
                                             {rounds, sample_seconds, bench::Clock::thread}),
                           "GB/s", 1e-9 * static_cast<double>(model.model.values().size_bytes()));
}

template <class T>
std::vector<bench::Timing> on_two_ranks(sw::ThreadCommunicator& ranks,
                                        const bench::MlpProblem<T>& problem, int rounds) {
  sw::SingleRank alone;
  Model<T, sw::SingleRank> one(alone, problem);
  Model<T, sw::ThreadCommunicator> two(ranks, problem);
  one.require_results("one rank", problem);
  two.require_results("two ranks", problem);
  return bench::with_speed(
      bench::interleave(ranks,
                        {{"read all weights, each its half", [&] { read_weights(two); }},
                         bench::on_first(ranks, "one rank on one core", [&] { one.forward(); }),
                         {"two ranks", [&] { two.forward(); }}},
                        rounds, sample_seconds),
      "GB/s", 1e-9 * static_cast<double>(one.model.values().size_bytes()));
}

template <class T>
void add(bench::Program& program, const Sizes& sizes, const std::string& dtype) {
  const auto [in, hidden, out] = sizes;
  const std::string name = "inference/" + std::to_string(in) + '-' + std::to_string(hidden) + '-' +
                           std::to_string(out) + '/' + dtype;
  for (const std::size_t rows : program.sizes<std::size_t>({1, 2, 4, 8, 16}))
    bench::add_one_and_two(
        program, name + "/rows:" + std::to_string(rows),
        [=, &program] {
          return on_one_rank<T>({rows, sizes[0], sizes[1], sizes[2]}, program.rounds());
        },
        [=, &program](sw::ThreadCommunicator& ranks) {
          return on_two_ranks<T>(ranks, {rows, sizes[0], sizes[1], sizes[2]}, program.rounds());
        });
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 15);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  for (const Sizes& sizes : program.sizes<Sizes>({{1024, 4096, 1024}, {4096, 4096, 4096}})) {
    add<float>(program, sizes, "float");
    if (by_hand::multiplies_bf16()) add<sw::bf16>(program, sizes, "bf16");
  }
  return program.run();
}
