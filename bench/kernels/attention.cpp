// The kernel of attention, without projections: its useful operations against as many in registers
// alone, the most that a core can do, on one rank (time of the thread); and its heads split over
// two thread ranks against all of them on one (wall time). Cores that share a cache, a clock or a
// host do less than twice what one does alone: two threads that each compute all heads, and never
// meet, say how much two ranks can reach. Where a mask leaves out half of the scores, half of the
// operations are useful. Speed 1 is that of the registers, or of one rank.
//
//     bench_kernels_attention [--rounds=N] [--benchmark_filter=float/full]

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/attention_call.hpp"
#include "kernels/by_hand.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "support/one_and_two_ranks.hpp"
#include "support/program.hpp"
#include "support/random_values.hpp"
#include "support/registers.hpp"

namespace {

namespace sw = shardwise;

constexpr std::size_t heads = 8;
constexpr double sample_seconds = 20e-3;

/// Forward, or forward and backward, of so many heads.
template <class T>
class Kernel {
 public:
  Kernel(std::size_t rows, bool causal, std::size_t some_heads)
      : call_({rows, causal, some_heads, some_heads}, [&](std::size_t i, std::size_t of) {
          const std::size_t count = rows * of * bench::AttentionSizes::head;
          return bench::random_values(count, static_cast<unsigned>(i));
        }) {}

  void run(bool training) {
    typename sw::OneDnn::Attention<T> kernel(backend_);
    kernel.forward(call_.operands(), call_.y.data());
    if (training)
      kernel.backward(call_.operands(), call_.dy(), call_.dq.data(), call_.dk.data(),
                      call_.dv.data());
  }

 private:
  sw::OneDnn backend_;
  bench::AttentionCall<T> call_;
};

/// Multiplications and additions of the products that the mask leaves: two forward, and five
/// backward.
std::size_t useful_operations(std::size_t rows, bool causal, bool training) {
  const std::size_t scores = causal ? rows * (rows + 1) / 2 : rows * rows;
  return 2 * scores * bench::AttentionSizes::head * heads * (training ? 7 : 2);
}

template <class T>
std::vector<bench::Timing> on_one_rank(std::size_t rows, bool causal, bool training, int rounds) {
  Kernel<T> kernel(rows, causal, heads);
  const std::size_t operations = useful_operations(rows, causal, training);
  std::vector<bench::Candidate> candidates;
  if (bench::registers_are_the_peak<T>())
    candidates.push_back({"registers", [=] { bench::multiply_in_registers<T>(operations); }});
  candidates.push_back({"attention", [&] { kernel.run(training); }});
  return bench::with_speed(
      bench::interleave(candidates, {rounds, sample_seconds, bench::Clock::thread}), "GFLOP/s",
      1e-9 * static_cast<double>(operations));
}

template <class T>
std::vector<bench::Timing> on_two_ranks(sw::ThreadCommunicator& ranks, std::size_t rows,
                                        bool causal, bool training, int rounds) {
  Kernel<T> all(rows, causal, heads), half(rows, causal, heads / 2);
  const bench::Run whole = [&] { all.run(training); };
  auto timings = bench::interleave(ranks,
                                   {bench::on_first(ranks, "one rank on one core", whole),
                                    {"two threads, all heads each", whole},
                                    {"two ranks", [&] { half.run(training); }}},
                                   rounds, sample_seconds);
  timings.back().also.emplace_back("of the two threads' speed", timings[1].ours_over.median / 2);
  return timings;
}

template <class T>
void add(bench::Program& program, const std::string& dtype) {
  for (const std::size_t rows : program.sizes<std::size_t>({1024, 2048}))
    for (const bool causal : {false, true})
      for (const bool training : {false, true}) {
        const std::string name =
            std::string("attention/") + dtype + (causal ? "/causal/" : "/full/") +
            (training ? "forward and backward" : "forward") + "/rows:" + std::to_string(rows);
        bench::add_one_and_two(
            program, name,
            [=, &program] { return on_one_rank<T>(rows, causal, training, program.rounds()); },
            [=, &program](sw::ThreadCommunicator& ranks) {
              return on_two_ranks<T>(ranks, rows, causal, training, program.rounds());
            });
      }
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 11);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  add<float>(program, "float");
  if (by_hand::multiplies_bf16()) add<sw::bf16>(program, "bf16");
  return program.run();
}
