#pragma once
// The convolutional network of the examples as a model, and what it must give.

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "../../examples/support/cnn.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/shardwise.hpp"
#include "support/random_values.hpp"
#include "support/require_equal.hpp"

namespace bench {

namespace sw = shardwise;

inline constexpr std::size_t side = 28;  // grey images, as Fashion-MNIST has them
inline constexpr std::size_t classes = 10;

using Gathered = example::GatheredCnn<1, side>;
using Alternating = example::AlternatingCnn<1, side>;
using Spatial = example::SpatialCnn<1, side>;

/// Images with their classes, and a gradient of the network's output.
struct CnnBatch {
  explicit CnnBatch(std::size_t count_)
      : count(count_),
        images(random_values(count * side * side, 1)),
        labels(count),
        dy(random_values(count * classes, 2)) {
    std::mt19937 generator(3);
    for (std::int32_t& label : labels) label = static_cast<std::int32_t>(generator() % classes);
  }

  std::size_t count;
  std::vector<float> images;
  std::vector<std::int32_t> labels;
  std::vector<float> dy;
};

/// What was computed at three places, each whole: the output for use, the gradients of all
/// parameters, and all parameters before and after a step of training.
struct CnnResults {
  std::vector<float> output, gradients, before, after;
};

/// One of the architectures on some ranks.
template <class Architecture, class C, class Backend>
class Cnn {
 public:
  Cnn(C& ranks, const CnnBatch& batch)
      : place_(sw::place_of(ranks)),
        model_(Architecture{}, ranks, sw::Seed{1}, shape_of(batch.count)),
        optimizer_(model_, sw::Sgd{.learning_rate = 0.01, .momentum = 0.5}),
        images_(batch.images.data(), shape_of(batch.count), place_),
        labels_(batch.labels.data(), {{sw::Axis::batch, batch.count}}, place_),
        dy_(batch.dy.data(), {{sw::Axis::batch, batch.count}, {sw::Axis::feature, classes}},
            place_) {}

  void forward() { model_.evaluate(images_); }
  void train() {
    backward();
    model_.next_step();
  }
  void step() { train_step(model_, images_, labels_, sw::CrossEntropy{}, optimizer_); }

  /// A collective, of a model that has not yet been used. Afterwards its weights have been used
  /// often enough to be packed.
  CnnResults results() {
    CnnResults results;
    const auto y = model_.evaluate(images_);
    results.output.assign(y.data(), y.data() + y.size());
    backward();
    results.gradients =
        whole([&](const std::string& name) { return model_.gather_gradient(name); });
    model_.next_step();
    const auto values = [&](const std::string& name) { return model_.gather(name); };
    results.before = whole(values);
    step();
    results.after = whole(values);
    for (int i = 0; i < 10; ++i) forward();
    return results;
  }

 private:
  using Model = sw::Model<Architecture, sw::Context<float, Backend, C>>;

  static sw::Shape shape_of(std::size_t count) {
    return {{sw::Axis::batch, count},
            {sw::Axis::channel, 1},
            {sw::Axis::height, side},
            {sw::Axis::width, side}};
  }

  void backward() {
    model_.forward(images_);
    model_.backward(dy_);
    model_.settle_gradients();
  }

  /// What `gather` returns for all parameters, one behind the other.
  template <class Gather>
  std::vector<float> whole(Gather gather) {
    std::vector<std::string> names;
    model_.visit_parameters([&](auto& parameter) { names.push_back(parameter.name); });
    std::vector<float> all;
    for (const std::string& name : names) {
      const auto tensor = gather(name);
      all.insert(all.end(), tensor.data(), tensor.data() + tensor.size());
    }
    return all;
  }

  sw::Place place_;
  Model model_;
  sw::Optimizer<sw::Sgd, Model> optimizer_;
  sw::View<const float, sw::Invariant> images_;
  sw::View<const std::int32_t, sw::Invariant> labels_;
  sw::View<const float, sw::Invariant> dy_;
};

/// By readable loops on one rank; the same for all three architectures.
inline CnnResults expected_of_cnn(const CnnBatch& batch) {
  sw::SingleRank alone;
  return Cnn<Alternating, sw::SingleRank, sw::Reference>(alone, batch).results();
}

/// Throws unless a model gives what it must.
inline void require_results(const std::string& who, const CnnResults& exact,
                            const CnnResults& got) {
  const auto require = [&](const char* what, const std::vector<float>& before,
                           const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size() || before.size() != a.size())
      throw std::runtime_error(who + ": " + what + " of another size");
    require_change(who + ": " + what, before.data(), a.data(), b.data(), a.size());
  };
  require("output", std::vector<float>(exact.output.size()), exact.output, got.output);
  require("gradients", std::vector<float>(exact.gradients.size()), exact.gradients, got.gradients);
  require("parameters after a step", exact.before, exact.after, got.after);
}

}  // namespace bench
