// A whole training step of the perceptron 1024 -> 4096 -> 1024: forward, mean of squared
// differences, backward, and SGD or AdamW. Against the same by hand on one rank (time of the
// thread), and on two thread ranks (wall time) against two independent halves. In bf16 layers
// multiply bf16, and weights and optimizer are float.
//
//     bench_models_mlp_step [--rounds=N] [--benchmark_filter=adamw/float]

#include <cmath>
#include <concepts>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "models/mlp_model.hpp"
#include "models/mlp_step_by_hand.hpp"
#include "support/one_and_two_ranks.hpp"
#include "support/program.hpp"

namespace {

namespace sw = shardwise;

constexpr std::size_t in = 1024, hidden = 4096, out = 1024;
constexpr double sample_seconds = 1e-3;

/// A model with its optimizer and the target.
template <class T, class Rule, class C>
class Trained {
 public:
  using Precision = std::conditional_t<std::same_as<T, float>, float, sw::Precision<T, float>>;

  Trained(C& ranks, const bench::MlpProblem<T>& problem, const std::vector<T>& target)
      : ours(ranks, problem),
        optimizer_(ours.model, rule()),
        target_(target.data(), bench::batch_of(problem.rows, problem.out), sw::place_of(ranks)) {}

  double operator()() {
    return train_step(ours.model, ours.x, target_, sw::MeanSquaredError{}, optimizer_);
  }

  bench::Ours<Precision, T, C> ours;

 private:
  /// The library's with the options of the one by hand.
  static auto rule() {
    const Rule r;
    if constexpr (std::same_as<Rule, by_hand::Sgd>)
      return sw::Sgd{.learning_rate = r.rate};
    else
      return sw::AdamW{.learning_rate = r.rate,
                       .beta1 = r.beta1,
                       .beta2 = r.beta2,
                       .epsilon = r.epsilon,
                       .weight_decay = r.decay};
  }

  sw::Optimizer<decltype(rule()), typename bench::Ours<Precision, T, C>::Model> optimizer_;
  sw::View<const T, sw::Invariant> target_;
};

/// Three steps of both, which must give the same losses and weights.
template <class T, class Hand, class Model>
void check(const std::string& who, const bench::MlpProblem<T>& problem, Hand& hand, Model& model) {
  for (int step = 0; step < 3; ++step) {
    const double exact = hand(), got = model();
    if (std::abs(got - exact) <= 1e-2 * exact) continue;
    throw std::runtime_error(who + ": the loss is " + std::to_string(got) + ", by hand " +
                             std::to_string(exact));
  }
  const auto require = [&](const char* name, const std::vector<T>& before, std::size_t number) {
    const auto got = model.ours.model.gather(name);
    bench::require_change(who + ": " + name, before.data(), hand.weight(number).data(), got.data(),
                          before.size(), std::same_as<T, float> ? 1e-3 : 5e-2);
  };
  require("0.weight", problem.w1, 0);
  require("2.weight", problem.w2, 2);
}

template <class T, class Rule>
std::vector<bench::Timing> on_one_rank(std::size_t rows, int rounds) {
  const bench::MlpProblem<T> problem(rows, in, hidden, out);
  const auto target = bench::random_values<T>(rows * out, 8);
  by_hand::Library library;
  sw::SingleRank alone;
  Trained<T, Rule, sw::SingleRank> ours(alone, problem, target);
  by_hand::Step<T, Rule> matmul(library, problem, target);
  matmul.mlp.check(problem);
  check("model", problem, matmul, ours);
  std::vector<bench::Candidate> candidates{{"by hand, matmul", [&] { matmul(); }}};
  std::optional<by_hand::Step<T, Rule>> inner;
  if (std::same_as<T, float>) {
    inner.emplace(library, problem, target, by_hand::By::inner_product);
    inner->mlp.check(problem);
    candidates.push_back({"by hand, inner product", [&] { (*inner)(); }});
  }
  candidates.push_back({"model", [&] { ours(); }});
  return bench::interleave(candidates, {rounds, sample_seconds, bench::Clock::thread});
}

template <class T, class Rule>
std::vector<bench::Timing> on_two_ranks(sw::ThreadCommunicator& ranks, std::size_t rows,
                                        int rounds) {
  const bench::MlpProblem<T> problem(rows, in, hidden, out), half(rows, in, hidden / 2, out);
  const auto target = bench::random_values<T>(rows * out, 8);
  by_hand::Library library;
  sw::SingleRank alone;
  Trained<T, Rule, sw::SingleRank> one(alone, problem, target);
  Trained<T, Rule, sw::ThreadCommunicator> two(ranks, problem, target);
  {
    by_hand::Step<T, Rule> whole(library, problem, target), again(library, problem, target);
    check("one rank", problem, whole, one);
    check("two ranks", problem, again, two);
  }
  by_hand::Step<T, Rule> half_by_hand(library, half, target);
  half_by_hand.mlp.check(half);
  return bench::interleave(ranks,
                           {bench::on_first(ranks, "one rank on one core", [&] { one(); }),
                            {"two free halves, by hand", [&] { half_by_hand(); }},
                            {"two ranks", [&] { two(); }}},
                           rounds, sample_seconds);
}

template <class T, class Rule>
void add(bench::Program& program, const std::string& name) {
  for (const std::size_t rows : program.sizes<std::size_t>({16, 128, 512})) {
    bench::add_one_and_two(
        program, name + "/rows:" + std::to_string(rows),
        [=, &program] { return on_one_rank<T, Rule>(rows, program.rounds()); },
        [=, &program](sw::ThreadCommunicator& ranks) {
          return on_two_ranks<T, Rule>(ranks, rows, program.rounds());
        });
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 7);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  add<float, by_hand::Sgd>(program, "step/sgd/float");
  add<float, by_hand::AdamW>(program, "step/adamw/float");
  if (by_hand::multiplies_bf16()) {
    add<sw::bf16, by_hand::Sgd>(program, "step/sgd/bf16");
    add<sw::bf16, by_hand::AdamW>(program, "step/adamw/bf16");
  }
  return program.run();
}
