// The perceptron 1024 -> 4096 -> 1024 as a model: against the same oneDNN calls written by hand on
// one rank (time of the thread), and on two thread ranks (wall time) against two independent halves
// of it, which is the most that two cores can give. Also bf16 against float, and against as many
// multiplications of bf16 in registers alone, the most that a core can do; and what one more layer
// call costs.
//
//     bench_models_mlp [--rounds=N] [--benchmark_filter=forward/bf16]

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "models/mlp_by_hand.hpp"
#include "models/mlp_model.hpp"
#include "support/one_and_two_ranks.hpp"
#include "support/program.hpp"
#include "support/registers.hpp"

namespace {

namespace sw = shardwise;

constexpr std::size_t in = 1024, hidden = 4096, out = 1024;
constexpr double sample_seconds = 1e-3;

template <class T>
std::vector<bench::Timing> on_one_rank(std::size_t rows, bool training, int rounds) {
  const bench::MlpProblem<T> problem(rows, in, hidden, out);
  by_hand::Library library;
  by_hand::Mlp<T> matmul(library, problem);
  sw::SingleRank alone;
  bench::Ours<T, T, sw::SingleRank> ours(alone, problem);
  matmul.check(problem);
  ours.require_results("model", problem);
  const bench::Effort effort{rounds, sample_seconds, bench::Clock::thread};
  if (!training) {
    return bench::interleave({{"oneDNN by hand, packed", [&] { matmul.forward_packed(); }},
                              {"model", [&] { ours.forward(); }}},
                             effort);
  }
  std::vector<bench::Candidate> candidates{{"oneDNN by hand, matmul", [&] { matmul.train(); }}};
  std::optional<by_hand::Mlp<T>> inner;
  if (std::same_as<T, float>) {
    inner.emplace(library, problem, by_hand::By::inner_product);
    inner->check(problem);
    candidates.push_back({"oneDNN by hand, inner product", [&] { inner->train(); }});
  }
  candidates.push_back({"model", [&] { ours.train(); }});
  return bench::interleave(candidates, effort);
}

/// One rank on one core, two halves without any communication, and two ranks.
template <class T>
std::vector<bench::Timing> on_two_ranks(sw::ThreadCommunicator& ranks, std::size_t rows,
                                        bool training, int rounds) {
  const bench::MlpProblem<T> problem(rows, in, hidden, out);
  const bench::MlpProblem<T> half_problem(rows, in, hidden / 2, out);
  by_hand::Library library;
  by_hand::Mlp<T> half(library, half_problem);
  half.check(half_problem);
  sw::SingleRank alone;
  bench::Ours<T, T, sw::SingleRank> one(alone, problem);
  bench::Ours<T, T, sw::ThreadCommunicator> two(ranks, problem);
  one.require_results("one rank", problem);
  two.require_results("two ranks", problem);
  const auto run = [training](auto& ours) { training ? ours.train() : ours.forward(); };
  return bench::interleave(
      ranks,
      {bench::on_first(ranks, "one rank on one core", [&] { run(one); }),
       {"two free halves, by hand", [&] { training ? half.train() : half.forward_packed(); }},
       {"two ranks", [&] { run(two); }}},
      rounds, sample_seconds);
}

/// Forward on one rank.
std::vector<bench::Timing> bf16_and_float(std::size_t rows, int rounds) {
  const bench::MlpProblem<float> in_float(rows, in, hidden, out);
  const bench::MlpProblem<sw::bf16> in_bf16(rows, in, hidden, out);
  sw::SingleRank alone;
  bench::Ours<float, float, sw::SingleRank> of_float(alone, in_float);
  bench::Ours<sw::bf16, sw::bf16, sw::SingleRank> of_bf16(alone, in_bf16);
  of_float.require_results("float", in_float);
  of_bf16.require_results("bf16", in_bf16);
  std::vector<bench::Candidate> candidates{{"float", [&] { of_float.forward(); }}};
  const std::size_t operations = 2 * rows * hidden * (in + out);
  if (bench::registers_are_the_peak<sw::bf16>())
    candidates.push_back(
        {"bf16 in registers", [=] { bench::multiply_in_registers<sw::bf16>(operations); }});
  candidates.push_back({"bf16", [&] { of_bf16.forward(); }});
  return bench::with_speed(
      bench::interleave(candidates, {rounds, sample_seconds, bench::Clock::thread}), "GFLOP/s",
      1e-9 * static_cast<double>(operations));
}

/// A layer so small that little but the call is left, against its primitive called alone.
std::vector<bench::Timing> layer_call(int rounds) {
  constexpr std::size_t rows = 4, features = 16;
  struct Layer : sw::Linear<sw::split::none, features, features> {};
  sw::SingleRank alone;
  sw::Model<Layer, sw::Context<float, sw::OneDnn, sw::SingleRank>> model(alone, sw::Seed{1});
  std::vector<float> x = bench::random_values(rows * features), y(x.size());
  const auto weights = model.values();
  by_hand::Library library;
  const by_hand::Linear<float> matrices{
      rows,    features, features, x.data(), weights.data(), weights.data() + features * features,
      y.data()};
  const auto hand =
      matrices.matmul(library, by_hand::Pass::forward, false, by_hand::Weights::packed);
  const sw::View<const float, sw::Invariant> input(x.data(), bench::batch_of(rows, features),
                                                   sw::place_of(alone));
  hand();
  for (int i = 0; i < 10; ++i) {
    const auto got = model.evaluate(input);
    bench::require_near<float>("layer", {y.begin(), y.end()},
                               [&](std::size_t e) { return got.data()[e]; });
  }
  auto timings =
      bench::interleave({{"matmul by hand", hand}, {"layer", [&] { model.evaluate(input); }}},
                        {rounds, sample_seconds, bench::Clock::thread});
  timings[1].also.emplace_back("ns more than by hand",
                               (timings[1].seconds.median - timings[0].seconds.median) * 1e9);
  return timings;
}

template <class T>
void add(bench::Program& program, const std::string& dtype) {
  for (const std::size_t rows : program.sizes<std::size_t>({16, 128, 512})) {
    for (const bool training : {false, true}) {
      const std::string name = std::string(training ? "forward and backward/" : "forward/") +
                               dtype + "/rows:" + std::to_string(rows);
      bench::add_one_and_two(
          program, name, [=, &program] { return on_one_rank<T>(rows, training, program.rounds()); },
          [=, &program](sw::ThreadCommunicator& ranks) {
            return on_two_ranks<T>(ranks, rows, training, program.rounds());
          });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 11);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  const int rounds = program.rounds();
  program.add("layer call/rows:4/16 -> 16", [=] {  // takes next to nothing
    return bench::on_one_rank([=] { return layer_call(10 * rounds); });
  });
  add<float>(program, "float");
  if (by_hand::multiplies_bf16()) {
    add<sw::bf16>(program, "bf16");
    for (const std::size_t rows : program.sizes<std::size_t>({512, 128}))
      program.add("bf16 and float, forward/rows:" + std::to_string(rows),
                  [=] { return bench::on_one_rank([=] { return bf16_and_float(rows, rounds); }); });
  }
  return program.run();
}
