// A whole training step of a perceptron on one GPU: forward, mean of squared differences, backward,
// and SGD or AdamW; in bf16 over parameters of float, and in float. Beside it forward and backward
// alone, and the step as a CUDA graph. The host reads the loss of each other step, so this is wall
// time, from an idle device to an idle device, around many steps.
//
//     bench_gpu_step [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...

#include <cmath>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/linear_model.hpp"
#include "gpu/on_stream.hpp"
#include "gpu/program.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "shardwise/train/training_graph.hpp"

namespace {

namespace sw = shardwise;

struct Perceptron : sw::Sequential<bench::Column, sw::Relu, bench::Row> {
  Perceptron(std::size_t narrow, std::size_t wide)
      : Sequential(bench::Column(narrow, wide), {}, bench::Row(wide, narrow)) {}
};

struct Sizes {
  std::size_t rows, narrow, wide;

  std::string name() const {
    return std::to_string(narrow) + "->" + std::to_string(wide) + "->" + std::to_string(narrow) +
           "/rows:" + std::to_string(rows);
  }
};

/// A model with its optimizer, an input, a target, and a gradient of the output.
template <class P, class Rule, class Backend>
class Trained {
  using Model = sw::Model<Perceptron, sw::Context<P, Backend, sw::SingleRank>>;
  using T = typename Model::dtype;
  using Rows = sw::View<const T, sw::Invariant>;

 public:
  Trained(Backend& backend, const Sizes& sizes, const Rule& rule)
      : shape_{{sw::Axis::batch, sizes.rows}, {sw::Axis::feature, sizes.narrow}},
        pool_(sw::detail::memory_of(backend)),
        x_(backend, pool_, sizes.rows * sizes.narrow, 1),
        target_(backend, pool_, sizes.rows * sizes.narrow, 2),
        dy_(backend, pool_, sizes.rows * sizes.narrow, 3),
        model_(Perceptron(sizes.narrow, sizes.wide), alone_, sw::Seed{1}, {}, backend),
        optimizer_(model_, rule) {}

  double step() {
    return train_step(model_, rows(x_), rows(target_), sw::MeanSquaredError{}, optimizer_);
  }

  /// The same step as a CUDA graph, which leaves its loss on the device.
  auto recorded() {
    return sw::TrainingGraph(model_, optimizer_, sw::MeanSquaredError{}, rows(x_), rows(target_));
  }

  void products() {
    model_.forward(rows(x_));
    model_.backward(rows(dy_));
  }

  /// What the host does not wait for: all but the loss.
  void all_but_loss() {
    products();
    model_.settle_owing();
    optimizer_.end_step();
  }

  void forget() { model_.discard_step(); }

 private:
  Rows rows(const bench::Numbers<T>& numbers) const { return {numbers.data(), shape_, {}}; }

  sw::Shape shape_;
  sw::Pool pool_;
  bench::Numbers<T> x_, target_, dy_;
  sw::SingleRank alone_;
  Model model_;
  sw::Optimizer<Rule, Model> optimizer_;
};

/// Throws std::runtime_error unless five steps of a small model lose what plain loops lose.
template <class P, class Rule>
void require_losses(sw::Cuda& backend, const Rule& rule) {
  const Sizes small{32, 64, 256};
  sw::Reference loops;
  Trained<P, Rule, sw::Reference> expected(loops, small, rule);
  Trained<P, Rule, sw::Cuda> ours(backend, small, rule), other(backend, small, rule);
  auto graph = other.recorded();
  for (int step = 1; step <= 5; ++step) {
    const double exact = expected.step();
    graph.launch();
    for (const double got : {ours.step(), graph.loss()}) {
      if (std::abs(got - exact) <= 1e-2 * exact) continue;
      throw std::runtime_error("the loss of step " + std::to_string(step) + " is " +
                               std::to_string(got) + ", by plain loops " + std::to_string(exact));
    }
  }
}

template <class P, class Rule>
std::vector<bench::Timing> measure(sw::Cuda& backend, const Sizes& sizes, const Rule& rule,
                                   int rounds) {
  require_losses<P>(backend, rule);
  Trained<P, Rule, sw::Cuda> ours(backend, sizes, rule), other(backend, sizes, rule);
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
  return timings;
}

template <class P>
void add(bench::Program& program, sw::Cuda& backend, const std::string& dtype) {
  const sw::Sgd sgd{.learning_rate = 1e-3};
  const sw::AdamW adamw{.learning_rate = 1e-5};
  for (const std::size_t rows : program.sizes<std::size_t>({16, 2048})) {
    const Sizes sizes{rows, 4096, 14336};
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
