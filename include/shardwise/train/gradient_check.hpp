#pragma once
// Compares a layer's backward with differences of its forward. For your own layers.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/span_of.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/redistribute/number.hpp"

namespace shardwise {

/// The result of `check_gradients`; the same on every rank.
struct GradientReport {
  /// Rounding and curvature cause errors of about 1e-9 in double; a wrong backward causes 1e-3 and
  /// more.
  static constexpr double bound = 1e-6;

  /// The largest |analytic - numeric| / max(1, |analytic|, |numeric|).
  double largest_error = 0;
  /// Its place: "0.weight, element 7: backward gives 0.5, differences of forward give 0.25".
  std::string where;
  std::size_t checked = 0;  ///< elements of input and parameters

  /// Whether any element was checked, and no error was above `bound`.
  bool passed() const { return checked > 0 && largest_error <= bound; }
};

namespace detail {

/// The error for ranks that are a mesh.
template <class C>
consteval bool must_be_one_axis() {
  static_assert(
      !MeshCommunicator<C>,
      "check_layer, check_loss and check_gradients compare the ranks of one axis, and C is a mesh: "
      "give them ranks.along(MeshAxis::tensor), the ranks that share a layer. Compare a "
      "model on a mesh with a model on one rank.");
  return true;
}

/// A tensor filled with numbers in [-1, 1) by global element.
template <Layout L>
void fill_uniform(View<double, L> tensor, const RandomStream& stream) {
  for_each_global_run(tensor, [&](std::size_t global, std::size_t local, std::size_t length) {
    stream.for_each_uniform(global, global + length, [&](std::uint64_t i, float u) {
      tensor[local + (i - global)] = 2.0 * static_cast<double>(u) - 1.0;
    });
  });
}

/// The memory of element `global` of the tensor on this rank, or null.
template <Layout L>
double* element(View<double, L> tensor, std::size_t global) {
  double* found = nullptr;
  for_each_global_run(tensor, [&](std::size_t first, std::size_t local, std::size_t length) {
    if (global >= first && global < first + length) found = &tensor[local + (global - first)];
  });
  return found;
}

/// (f(v + h) - f(v - h)) / 2h.
template <class F>
double central_difference(double v, const F& f) {
  constexpr double h = 0x1p-17;
  const double above = f(v + h);
  const double below = f(v - h);
  return (above - below) / (2 * h);
}

/// A model of the layer, and f = <output, r> with a random r, as a function of input and
/// parameters.
template <class L, Communicator C, class E>
class GradientChecker {
  using M = Model<L, Context<double, Reference, C>, E, TrainWithInputGradient>;
  using In = typename M::input_layout;
  using Out = typename M::output_layout;

 public:
  GradientChecker(C& ranks, const L& layer, const Shape& in, Seed seed, std::size_t per_tensor)
      : model_(layer, ranks, seed, in),
        input_(in, place_of(ranks)),
        r_(layer.output_shape(in), place_of(ranks)),
        chosen_(seed, data_ordinal, 0, 2),
        per_tensor_(per_tensor) {
    fill_uniform(input_.view(), RandomStream(seed, data_ordinal, 0, 0));
    fill_uniform(r_.view(), RandomStream(seed, data_ordinal, 0, 1));
  }

  GradientReport run() {
    model_.forward(input_.view());
    const auto dx = whole(model_.backward(r_.view()));
    model_.settle_gradients();
    compare("input", input_.view(), dx);
    model_.visit_parameters([&](auto& parameter) {
      using Gradient = typename decltype(parameter.gradient)::layout;
      compare(parameter.name, parameter.value,
              whole(View<const double, Gradient>(parameter.gradient)));
    });
    agree();
    return report_;
  }

 private:
  /// Ranks may find different errors, since each computes its own gradients of replicated tensors.
  /// All ranks get the report of the first rank with the largest error.
  void agree() {
    C& ranks = model_.ranks();
    const auto reduced = [&](auto number, Reduction reduction) {
      return all_reduced(model_.run().backend, model_.run().pool, ranks, number, reduction);
    };
    const double mine = report_.largest_error;
    report_.largest_error = reduced(mine, Reduction::max);
    const bool found_here = mine == report_.largest_error || std::isnan(mine);
    const int first = reduced(found_here ? ranks.rank() : ranks.size(), Reduction::min);
    const auto length = static_cast<std::int64_t>(report_.where.size());
    report_.where.resize(
        static_cast<std::size_t>(reduced(first == ranks.rank() ? length : 0, Reduction::max)));
    auto* const text = reinterpret_cast<std::uint8_t*>(report_.where.data());
    ranks.broadcast(span_of(text, report_.where.size()), first);
  }

  template <Layout Part>
  Tensor<double, Invariant> whole(View<const double, Part> part) {
    Tensor<double, Invariant> all(part.global(), part.place());
    redistribute(model_.ranks(), model_.run().pool, part, all.view());
    return all;
  }

  double f() {
    model_.discard_step();  // runs the same step again, so that dropout draws the same mask
    const auto y = model_.forward(input_.view());
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * r_[i];
    if constexpr (ShardedLayout<Out>) {
      const View<double, Partial> number(&sum, Shape{}, y.place());
      redistribute(model_.ranks(), model_.run().pool, View<const double, Partial>(number),
                   View<double, Invariant>(&sum, Shape{}, y.place()));
    }
    return sum;
  }

  /// The central difference of f for the element at `held`, on the ranks that hold it.
  double difference(double* held) {
    const double kept = held == nullptr ? 0 : *held;
    const double slope = central_difference(kept, [&](double value) {
      if (held != nullptr) *held = value;
      model_.values_changed();
      return f();
    });
    if (held != nullptr) *held = kept;
    model_.values_changed();
    return slope;
  }

  template <Layout Part>
  void compare(const std::string& name, View<double, Part> values,
               const Tensor<double, Invariant>& analytic) {
    const std::size_t size = analytic.size();
    for (std::size_t k = 0; k < std::min(size, per_tensor_); ++k) {
      const std::size_t i = size <= per_tensor_ ? k : chosen_.bits(k) % size;
      note(name, i, analytic[i], difference(element(values, i)));
    }
  }

  void note(const std::string& name, std::size_t i, double analytic, double numeric) {
    ++report_.checked;
    const double scale = std::max({1.0, std::abs(analytic), std::abs(numeric)});
    const double error = std::abs(analytic - numeric) / scale;
    if (error <= report_.largest_error || std::isnan(report_.largest_error)) return;
    char numbers[128];
    std::snprintf(numbers, sizeof numbers, "backward gives %.9g, differences of forward give %.9g",
                  analytic, numeric);
    report_.largest_error = error;
    report_.where = name + ", element " + std::to_string(i) + ": " + numbers;
  }

  M model_;
  Tensor<double, In> input_;
  Tensor<double, Out> r_;
  RandomStream chosen_;
  std::size_t per_tensor_;
  GradientReport report_;
};

}  // namespace detail

/// Compares backward with central differences of f = <layer(x), r>, an inner product on the
/// *global* tensor, for random x and r in double. It checks the input and every parameter: all
/// elements, or `per_tensor` of them if there are more. A composition may be the layer; dropout is
/// checked in training, with one mask.
///
///     const GradientReport report = check_gradients(ranks, MyLayer{}, shape);
///     if (!report.passed()) std::puts(report.where.c_str());
///
/// `Offered` and `Wanted` are the layouts of x and the output; each is Invariant or Sharded. Near a
/// kink, such as ReLU's at 0, differences are wrong within 1e-5 of it; then another seed passes.
///
/// A collective: every rank of one axis calls it with equal arguments, and all get the same report;
/// on a mesh these are `ranks.along(MeshAxis::tensor)`. It is for small layers: it stores whole
/// tensors and runs two forwards for each element.
/// sends    the collectives of the layer, forward and backward, and the sums of the report
/// throws   as the layer
template <Layout Offered = Invariant, Layout Wanted = Invariant, class L, Communicator C>
GradientReport check_gradients(C& ranks, const L& layer, const Shape& in, Seed seed = Seed{1},
                               std::size_t per_tensor = 40) {
  static_assert(detail::must_be_one_axis<C>());
  static_assert(
      (std::same_as<Offered, Invariant> ||
       ShardedLayout<Offered>)&&(std::same_as<Wanted, Invariant> || ShardedLayout<Wanted>),
      "check_gradients sets and reads whole tensors or shards: Offered and Wanted must be "
      "Invariant or Sharded. What a layer takes inside is its own affair.");
  return detail::GradientChecker<L, C, Ends<Offered, Wanted>>(ranks, layer, in, seed, per_tensor)
      .run();
}

}  // namespace shardwise
