#pragma once
// The perceptron 1024 -> 4096 -> 1024 as one would write it without any library of layers: its
// numbers, and oneDNN's products of them.

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <vector>

#include "models/mlp_by_hand.hpp"
#include "peers/results.hpp"

namespace peers {

using Values = std::vector<float>;

/// What one of some ranks has of a problem: an equal part of the hidden features. y is a summand.
class Part {
 public:
  static constexpr std::size_t in = 1024, hidden = 4096, out = 1024;

  Part(int rank, int ranks, const std::filesystem::path& problem)
      : folder_(problem),
        place_{rank, ranks},
        count_(shape_of_x(folder_)[0].extent()),
        by_onednn(library_, problem_here(), by_hand::By::inner_product) {}

  std::size_t count() const { return count_; }

  /// Forward for use has its weights packed once; in training they are used as they lie.
  void forward(bool training) { training ? by_onednn.forward() : by_onednn.forward_packed(); }

  /// Throws unless run(training) leaves the folder's results: in y the sum over all ranks.
  template <class Run>
  void require_results(Run run, bool speaks) const {
    const Values exact_y = load("y", matrix(count_, out));
    const auto& m = by_onednn;
    const auto require = [&](const char* name, const Values& got, const Values& exact) {
      require_exact<float>(name, got, exact, speaks);
    };
    run(false);
    require("y of evaluate", m.y, exact_y);
    run(true);
    require("y", m.y, exact_y);
    require("grad.0.weight", m.dw1, load<Outputs>("grad.0.weight", matrix(hidden, in)));
    require("grad.0.bias", m.db1, load<Outputs>("grad.0.bias", vector(hidden)));
    require("grad.2.weight", m.dw2, load<Inputs>("grad.2.weight", matrix(out, hidden)));
    require("grad.2.bias", m.db2, load("grad.2.bias", vector(out)));
  }

 private:
  using Outputs = sw::Sharded<sw::Axis::output>;
  using Inputs = sw::Sharded<sw::Axis::input>;

  static sw::Shape vector(std::size_t extent) { return {{sw::Axis::output, extent}}; }
  static sw::Shape matrix(std::size_t rows, std::size_t columns) {
    return {{sw::Axis::output, rows}, {sw::Axis::input, columns}};
  }

  template <class L = sw::Invariant>
  Values load(const char* name, const sw::Shape& shape) const {
    return peers::load<L>(folder_, name, shape, place_);
  }

  bench::MlpProblem<float> problem_here() const {
    bench::MlpProblem<float> p(count_, in, hidden / static_cast<std::size_t>(place_.size), out);
    p.x = load("x", matrix(count_, in));
    p.dy = load("dy", matrix(count_, out));
    p.w1 = load<Outputs>("0.weight", matrix(hidden, in));
    p.b1 = load<Outputs>("0.bias", vector(hidden));
    p.w2 = load<Inputs>("2.weight", matrix(out, hidden));
    p.b2 = load("2.bias", vector(out));
    if (place_.rank != 0) std::fill(p.b2.begin(), p.b2.end(), 0.0F);  // the sum has it once
    return p;
  }

  std::filesystem::path folder_;
  sw::Place place_;
  std::size_t count_;
  by_hand::Library library_;

 public:
  by_hand::Mlp<float> by_onednn;
};

}  // namespace peers
