// The perceptron 1024 -> 4096 -> 1024 forward in float and in bf16, on one rank, against as many
// multiplications of bf16 in registers alone: the most that a core can do.
//
//     bench_models_mlp_bf16 [--rounds=N]

#include <cstddef>
#include <string>
#include <vector>

#include "models/bf16_registers.hpp"
#include "models/mlp_by_hand.hpp"
#include "models/mlp_model.hpp"
#include "support/one_and_two_ranks.hpp"
#include "support/program.hpp"

namespace {

namespace sw = shardwise;

constexpr std::size_t in = 1024, hidden = 4096, out = 1024;

template <class T>
using Model = bench::Ours<T, T, sw::SingleRank>;

std::vector<bench::Timing> measure(std::size_t rows, int rounds) {
  const bench::MlpProblem<float> in_float(rows, in, hidden, out);
  const bench::MlpProblem<sw::bf16> in_bf16(rows, in, hidden, out);
  sw::SingleRank alone;
  Model<float> of_float(alone, in_float);
  Model<sw::bf16> of_bf16(alone, in_bf16);
  of_float.require_results("float", in_float);
  of_bf16.require_results("bf16", in_bf16);

  std::vector<bench::Candidate> candidates{{"float", [&] { of_float.forward(); }},
                                           {"bf16", [&] { of_bf16.forward(); }}};
  const std::size_t operations = 2 * rows * hidden * (in + out);
  if (bench::bf16_registers_are_the_peak()) {
    candidates.insert(candidates.begin() + 1,
                      {"bf16 in registers", [=] { bench::multiply_in_registers(operations); }});
  }
  auto timings = bench::interleave(candidates, {rounds, 1e-3, bench::Clock::thread});
  for (bench::Timing& timing : timings)
    timing.also.emplace_back("GFLOP/s",
                             1e-9 * static_cast<double>(operations) / timing.seconds.median);
  return timings;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 15);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  const int rounds = program.rounds();
  if (by_hand::multiplies_bf16()) {
    for (const std::size_t rows : program.sizes<std::size_t>({512, 128}))
      program.add("forward/rows:" + std::to_string(rows),
                  [=] { return bench::on_one_rank([=] { return measure(rows, rounds); }); });
  }
  return program.run();
}
