#pragma once
// Compares a layer's backward with differences of its forward. For your own layers.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/growing_list.hpp"
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
      "give them ranks.along(MeshAxis::tensor), the ranks that share a layer. For a mesh give "
      "check_layer its sizes behind ranks of one axis, or without ranks.");
  return true;
}

/// Adds numbers in [-range, range) to the elements of a tensor, by global element.
template <Real T, Layout L>
void add_uniform(View<T, L> tensor, double range, const RandomStream& stream) {
  for_each_global_run(tensor, [&](std::size_t global, std::size_t local, std::size_t length) {
    stream.for_each_uniform(global, global + length, [&](std::uint64_t i, float u) {
      T& element = tensor[local + (i - global)];
      element = static_cast<T>(static_cast<double>(element) +
                               range * (2.0 * static_cast<double>(u) - 1.0));
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

/// The elements of a model's buffers on this rank.
class KeptBuffers {
 public:
  KeptBuffers() = default;
  template <class M>
  explicit KeptBuffers(M& model) {
    model.visit_buffers([&](auto& buffer) {
      for (std::size_t i = 0; i < buffer.value.size(); ++i)
        elements_.add(static_cast<double>(buffer.value[i]));
    });
  }

  /// Gives them to the model again.
  template <class M>
  void put_back(M& model) const {
    const double* next = elements_.begin();
    model.visit_buffers([&](auto& buffer) {
      using T = typename decltype(buffer.value)::value_type;
      for (std::size_t i = 0; i < buffer.value.size(); ++i)
        buffer.value[i] = static_cast<T>(*next++);
    });
  }

 private:
  GrowingList<double> elements_;
};

/// A model of the layer, and f = Σ <output, r> over the batches of a step, with a random r for
/// each, as a function of inputs and parameters.
template <class L, Communicator C, class E, class Use>
class GradientChecker {
  using M = Model<L, Context<double, Reference, C>, E, Use>;
  using In = typename M::input_layout;
  using Out = typename M::output_layout;

  struct Batch {
    Tensor<double, In> x;
    Tensor<double, Out> r;
  };

 public:
  GradientChecker(C& ranks, const L& layer, const Shape& in, Seed seed, std::size_t per_tensor)
      : model_(layer, ranks, seed, in),
        seed_(seed),
        batches_{batch_of(ranks, layer, in), batch_of(ranks, layer, in)},
        dx_(in, place_of(ranks)),
        chosen_(next_stream()),
        per_tensor_(per_tensor) {
    for (Batch& batch : batches_) {
      add_uniform(batch.x.view(), 1, next_stream());
      add_uniform(batch.r.view(), 1, next_stream());
    }
    // Where a parameter begins at 0 or 1, many wrong gradients are right. A variance, which begins
    // at 1, stays above 0.
    model_.visit_parameters([&](auto& p) { add_uniform(p.value, 0.5, next_stream()); });
    model_.values_changed();
    model_.visit_buffers([&](auto& b) { add_uniform(b.value, 0.5, next_stream()); });
    buffers_ = KeptBuffers(model_);
  }

  GradientReport run() {
    f();
    model_.settle_gradients();
    GrowingList<double> gradients;  // of all parameters, one behind the other
    model_.visit_parameters([&](auto& parameter) {
      using Gradient = typename decltype(parameter.gradient)::layout;
      const auto all = whole(View<const double, Gradient>(parameter.gradient));
      for (std::size_t i = 0; i < all.size(); ++i) gradients.add(all[i]);
    });
    if constexpr (Use::input_gradient) {
      const Tensor<double, Invariant> dx = dx_;  // the next f() overwrites it, as all gradients
      compare("input", batches_.back().x.view(), dx.data(), dx.size());
    }
    const double* next = gradients.begin();
    model_.visit_parameters([&](auto& p) {
      const std::size_t size = p.value.global().elements();
      compare(p.name, p.value, next, size);
      next += size;
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

  /// Runs the step, each time with the same masks. Buffers, which have no gradients, are the same
  /// for each batch.
  double f() {
    model_.discard_step();
    double sum = 0;
    for (Batch& batch : batches_) {
      buffers_.put_back(model_);
      const auto y = model_.forward(batch.x.view());
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * batch.r[i];
      if constexpr (Use::input_gradient) {
        dx_ = whole(model_.backward(batch.r.view()));
      } else {
        model_.backward(batch.r.view());
      }
    }
    if constexpr (ShardedLayout<Out>) {
      const Place place = place_of(model_.ranks());
      const View<double, Partial> number(&sum, Shape{}, place);
      redistribute(model_.ranks(), model_.run().pool, View<const double, Partial>(number),
                   View<double, Invariant>(&sum, Shape{}, place));
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
  void compare(const std::string& name, View<double, Part> values, const double* analytic,
               std::size_t size) {
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

  static Batch batch_of(C& ranks, const L& layer, const Shape& in) {
    const Place place = place_of(ranks);
    return {Tensor<double, In>(in, place), Tensor<double, Out>(layer.output_shape(in), place)};
  }

  RandomStream next_stream() { return RandomStream(seed_, data_ordinal, streams_++); }

  M model_;
  Seed seed_;
  std::uint64_t streams_ = 0;
  std::array<Batch, 2> batches_;
  Tensor<double, Invariant> dx_;  ///< of the last one
  KeptBuffers buffers_;
  RandomStream chosen_;
  std::size_t per_tensor_;
  GradientReport report_;
};

}  // namespace detail

/// Compares backward with central differences of f = Σ <layer(x), r> over the two batches of a
/// step, inner products on the *global* tensor, for random x and r in double. It checks the input
/// of the second batch and every parameter: all elements, or `per_tensor` of them if there are
/// more. Parameters and buffers are not what they begin as, but differ from it by up to 1/2. A
/// composition may be the layer; dropout is checked in training, with one mask for each batch.
///
///     const GradientReport report = check_gradients(ranks, MyLayer{}, shape);
///     if (!report.passed()) std::puts(report.where.c_str());
///
/// `Offered` and `Wanted` are the layouts of x and the output; each is Invariant or Sharded. With
/// `Train` for `Use` there is no gradient of the input, and parameters alone are checked. Near a
/// kink, such as ReLU's at 0, differences are wrong within 1e-5 of it; then another seed passes.
///
/// A collective: every rank of one axis calls it with equal arguments, and all get the same report;
/// on a mesh these are `ranks.along(MeshAxis::tensor)`. It is for small layers: it stores whole
/// tensors and runs four forwards and backwards for each element.
/// sends    the collectives of the layer, forward and backward, and the sums of the report
/// throws   as the layer
template <Layout Offered = Invariant, Layout Wanted = Invariant, class Use = TrainWithInputGradient,
          class L, Communicator C>
GradientReport check_gradients(C& ranks, const L& layer, const Shape& in, Seed seed = Seed{1},
                               std::size_t per_tensor = 40) {
  static_assert(detail::must_be_one_axis<C>());
  static_assert(
      (std::same_as<Offered, Invariant> ||
       ShardedLayout<Offered>)&&(std::same_as<Wanted, Invariant> || ShardedLayout<Wanted>),
      "check_gradients sets and reads whole tensors or shards: Offered and Wanted must be "
      "Invariant or Sharded. What a layer takes inside is its own affair.");
  return detail::GradientChecker<L, C, Ends<Offered, Wanted>, Use>(ranks, layer, in, seed,
                                                                   per_tensor)
      .run();
}

}  // namespace shardwise
