#pragma once
// The perceptron of a problem as a model.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "models/mlp_problem.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"

namespace bench {

namespace sw = shardwise;

inline sw::Shape batch_of(std::size_t rows, std::size_t features) {
  return {{sw::Axis::batch, rows}, {sw::Axis::feature, features}};
}

using Column = sw::ColumnParallelLinear<sw::dynamic, sw::dynamic>;
using Row = sw::RowParallelLinear<sw::dynamic, sw::dynamic>;
struct Perceptron : sw::Sequential<Column, sw::Relu, Row> {
  using Sequential::Sequential;
};

/// A model with the weights of a problem, or with the rank's part of them. `P` is a dtype or a
/// Precision, and T the dtype of its layers.
template <class P, class T, class C, class Use = sw::Train>
class Ours {
 public:
  using Model = sw::Model<Perceptron, sw::Context<P, sw::OneDnn, C>,
                          sw::Ends<sw::Invariant, sw::Invariant>, Use>;

  Ours(C& ranks, const MlpProblem<T>& problem)
      : model(Perceptron(Column(problem.in, problem.hidden), {}, Row(problem.hidden, problem.out)),
              ranks, sw::Seed{1}),
        x(problem.x.data(), batch_of(problem.rows, problem.in), sw::place_of(ranks)),
        dy(problem.dy.data(), batch_of(problem.rows, problem.out), sw::place_of(ranks)),
        place_(sw::place_of(ranks)) {
    const sw::Dim hidden{sw::Axis::output, problem.hidden};
    const sw::Dim out{sw::Axis::output, problem.out};
    set("0.weight", problem.w1, {hidden, {sw::Axis::input, problem.in}});
    set("0.bias", problem.b1, {hidden});
    set("2.weight", problem.w2, {out, {sw::Axis::input, problem.hidden}});
    set("2.bias", problem.b2, {out});
  }

  void forward() { y = model.evaluate(x); }

  void train() {
    model.forward(x);
    model.backward(dy);
    model.next_step();
  }

  /// Throws unless forward gives what it must, and where there are gradients, backward. Afterwards
  /// weights have been used often enough to be packed.
  void require_results(const std::string& who, const MlpProblem<T>& problem) {
    if constexpr (Use::trains) {
      model.forward(x);
      model.backward(dy);
      const auto dw1 = model.gather_gradient("0.weight"), db1 = model.gather_gradient("0.bias");
      const auto dw2 = model.gather_gradient("2.weight"), db2 = model.gather_gradient("2.bias");
      problem.require_gradients(who, dw1.data(), db1.data(), dw2.data(), db2.data());
      model.next_step();
    }
    forward();
    problem.require_output(who, y.data());
    for (int i = 0; i < 10; ++i) forward();
    problem.require_output(who + ", packed", y.data());
  }

  Model model;
  sw::View<const T, sw::Invariant> x, dy, y;

 private:
  void set(const std::string& name, const std::vector<T>& values, const sw::Shape& shape) {
    using Parameter = typename Model::parameter_dtype;
    std::vector<Parameter> whole(values.size());
    std::transform(values.begin(), values.end(), whole.begin(),
                   [](T value) { return static_cast<Parameter>(static_cast<float>(value)); });
    model.set(name, {whole.data(), shape, place_});
  }

  sw::Place place_;
};

}  // namespace bench
