#pragma once
// A perceptron that is trained on random numbers, on one rank, and whether its steps make the loss
// fall as they should.

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/linear_model.hpp"
#include "gpu/uniform.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/step.hpp"
#include "shardwise/train/training_graph.hpp"

namespace bench {

/// Two linear layers with ReLU between them.
struct Perceptron : sw::Sequential<Column, sw::Relu, Row> {
  Perceptron(std::size_t narrow, std::size_t wide)
      : Sequential(Column(narrow, wide), {}, Row(wide, narrow)) {}
};

/// x [rows, narrow], which is the output's shape too.
struct PerceptronSizes {
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
  Trained(Backend& backend, const PerceptronSizes& sizes, const Rule& rule)
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
    sw::detail::settle(model_.run());
    optimizer_.end_step();
  }

  void forget() { model_.discard_step(); }

 private:
  Rows rows(const Numbers<T>& numbers) const { return {numbers.data(), shape_, {}}; }

  sw::Shape shape_;
  sw::Pool pool_;
  Numbers<T> x_, target_, dy_;
  sw::SingleRank alone_;
  Model model_;
  sw::Optimizer<Rule, Model> optimizer_;
};

/// The losses of five steps.
template <class Step>
std::vector<double> losses_of(Step step) {
  std::vector<double> losses(5);
  for (double& loss : losses) loss = step();
  return losses;
}

/// Throws std::runtime_error unless losses fall as much as the exact ones, to a tenth.
inline void require_same_fall(const std::string& who, const std::vector<double>& losses,
                              const std::vector<double>& exact) {
  const double fall = losses.front() - losses.back();
  const double exact_fall = exact.front() - exact.back();
  if (std::abs(fall - exact_fall) <= 0.1 * exact_fall) return;  // a NaN is not
  throw std::runtime_error(who + ": the loss falls by " + std::to_string(fall) +
                           ", and by plain loops from " + std::to_string(exact.front()) + " to " +
                           std::to_string(exact.back()));
}

/// Throws std::runtime_error unless steps of a small model, called and as a graph, lose what plain
/// loops lose. Steps of `rule` are to be large: what gradients do must be seen in five of them.
template <class P, class Rule, class Backend>
void require_losses(Backend& backend, const Rule& rule) {
  const PerceptronSizes small{32, 64, 256};
  sw::Reference loops;
  Trained<P, Rule, sw::Reference> expected(loops, small, rule);
  Trained<P, Rule, Backend> called(backend, small, rule), launched(backend, small, rule);
  auto graph = launched.recorded();
  const std::vector<double> exact = losses_of([&] { return expected.step(); });
  require_same_fall("step", losses_of([&] { return called.step(); }), exact);
  require_same_fall("step, graph", losses_of([&] {
                      graph.launch();
                      return graph.loss();
                    }),
                    exact);
}

}  // namespace bench
