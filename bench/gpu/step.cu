// A whole training step of a perceptron on one GPU: forward, mean of squared differences, backward,
// and SGD or AdamW; in bf16 over parameters of float, and in float. Beside it forward and backward
// alone, and the step as a CUDA graph. The host reads the loss of each other step, so this is wall
// time, from an idle device to an idle device, around many steps.
//
//     bench_gpu_step [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "gpu/program.hpp"
#include "gpu/trained_perceptron.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/sgd.hpp"

namespace {

namespace sw = shardwise;

template <class P, class Rule>
std::vector<bench::Timing> measure(sw::Cuda& backend, const bench::PerceptronSizes& sizes,
                                   const Rule& rule, int rounds) {
  Rule steep = rule;  // the timed rate changes the loss less than rounding does
  steep.learning_rate *= 1000;
  bench::require_losses<P>(backend, steep);
  bench::Trained<P, Rule, sw::Cuda> ours(backend, sizes, rule), other(backend, sizes, rule);
  auto graph = other.recorded();
  for (int launch = 0; launch < 3; ++launch) graph.launch();  // the first two record nothing
  const std::vector<bench::Candidate> candidates{{"forward and backward",
                                                  [&] {
                                                    ours.products();
                                                    ours.forget();
                                                  }},
                                                 {"step", [&] { ours.step(); }},
                                                 {"step, graph", [&] { graph.launch(); }}};
  auto timings = bench::interleave(candidates, {rounds, 20e-3, bench::Clock::wall},
                                   [&](const std::function<void()>& run, int calls) {
                                     backend.synchronize();
                                     const double begin = bench::now();
                                     for (int i = 0; i < calls; ++i) run();
                                     backend.synchronize();
                                     return (bench::now() - begin) / calls;
                                   });
  if (const auto launches = bench::launches_of(backend.stream(), [&] { ours.all_but_loss(); }))
    timings[1].also.emplace_back("launches but for the loss", static_cast<double>(*launches));
  if (const auto launches = bench::launches_of(backend.stream(), [&] { graph.launch(); }))
    timings[2].also.emplace_back("launches", static_cast<double>(*launches));
  return timings;
}

template <class P>
void add(bench::Program& program, sw::Cuda& backend, const std::string& dtype) {
  const sw::Sgd sgd{.learning_rate = 1e-3};
  const sw::AdamW adamw{.learning_rate = 1e-5};
  for (const std::size_t rows : program.sizes<std::size_t>({16, 2048})) {
    const bench::PerceptronSizes sizes{rows, 4096, 14336};
    program.add(dtype + "/sgd/" + sizes.name(), [=, &program, &backend] {
      return measure<P>(backend, sizes, sgd, program.rounds());
    });
    program.add(dtype + "/adamw/" + sizes.name(), [=, &program, &backend] {
      return measure<P>(backend, sizes, adamw, program.rounds());
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_on_gpu(argc, argv, 11, [](bench::Program& program) {
    sw::Cuda backend(sw::CudaOptions{.time_candidates = true});
    add<sw::Precision<sw::bf16, float>>(program, backend, "bf16 over float");
    add<float>(program, backend, "float");
    return program.run();
  });
}
