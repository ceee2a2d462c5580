#pragma once
// A linear layer as a model on one rank, with random numbers made where the backend keeps tensors,
// and whether it computes what it should.

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu/sampled_product.hpp"
#include "gpu/uniform.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"

namespace bench {

namespace sw = shardwise;

using Column = sw::ColumnParallelLinear<sw::dynamic, sw::dynamic>;
using Row = sw::RowParallelLinear<sw::dynamic, sw::dynamic>;

/// The first half of a perceptron, ReLU(x wᵀ + b), split by column.
struct Expand : sw::Sequential<Column, sw::Relu> {
  static constexpr bool relu = true;
  static constexpr const char* title = "column, ReLU";
  Expand(std::size_t in, std::size_t out) : Sequential(Column(in, out), sw::Relu{}) {}
};
/// The second half, x wᵀ + b, split by row.
struct Contract : sw::Sequential<Row> {
  static constexpr bool relu = false;
  static constexpr const char* title = "row";
  Contract(std::size_t in, std::size_t out) : Sequential(Row(in, out)) {}
};

/// x [rows, in], w [out, in], y [rows, out].
struct LinearSizes {
  std::size_t rows, in, out;

  std::string name() const {
    return std::to_string(in) + "->" + std::to_string(out) + "/rows:" + std::to_string(rows);
  }
  /// Of one product; forward and backward are three.
  double operations() const {
    return 2 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  }
};

/// Where the matrices of a linear layer lie, all row-major.
template <class T>
struct LinearPointers {
  const T *x, *w, *bias, *dy;
  T *y, *dx, *dw, *db;
};

/// Which results of a layer are looked at.
template <class T>
struct LinearProducts {
  LinearSizes sizes;
  LinearPointers<T> at;
  const T* open;  ///< y, where ReLU stands behind the product; else null

  SampledProduct<T> y() const {
    return {
        sizes.rows, sizes.out,       sizes.in, {at.x, sizes.in, 1}, {at.w, sizes.in, 1}, nullptr,
        at.bias,    open != nullptr, at.y};
  }
  SampledProduct<T> dx() const {
    return {sizes.rows, sizes.in, sizes.out, {at.dy, sizes.out, 1}, {at.w, 1, sizes.in}, open,
            nullptr,    false,    at.dx};
  }
  SampledProduct<T> dw() const {
    return {sizes.out, sizes.in, sizes.rows, {at.dy, 1, sizes.out}, {at.x, 1, sizes.in}, open,
            nullptr,   false,    at.dw};
  }
  SampledProduct<T> db() const {
    return {sizes.out, 1, sizes.rows, {at.dy, 1, sizes.out}, {}, open, nullptr, false, at.db};
  }

  /// Calls f(name, product) for each gradient.
  template <class F>
  void each_gradient(F f) const {
    f("grad.x", dx());
    f("grad.weight", dw());
    f("grad.bias", db());
  }
};

/// What may be done with a result: throws std::runtime_error unless the product of `who` is right.
template <class Backend>
auto required(Backend& backend, const std::string& who, double factor_epsilon) {
  return
      [&backend, who, factor_epsilon]<class T>(const char* name, const SampledProduct<T>& product) {
        require_right<T>(who + name, samples_of(backend, product), product.terms, factor_epsilon);
      };
}

/// One layer, its input and the gradient of its output.
template <class Architecture, class Backend, class T>
class LinearModel {
 public:
  LinearModel(Backend& backend, const LinearSizes& sizes)
      : backend_(backend),
        sizes_(sizes),
        pool_(backend.memory()),
        x_(backend, pool_, sizes.rows * sizes.in, 1),
        dy_(backend, pool_, sizes.rows * sizes.out, 2),
        kept_y_(pool_, sizes.rows * sizes.out),
        model_(Architecture(sizes.in, sizes.out), alone_, sw::Seed{1}, {}, backend) {
    std::uint32_t tensor = 3;  // the weight, and then the bias
    model_.visit_parameters([&](auto& parameter) {
      backend.for_each(parameter.value.size(), Uniform<T>{parameter.value.data(), tensor++});
    });
    model_.values_changed();
  }

  /// For use.
  void forward() { y_ = model_.evaluate(x()).data(); }

  /// Forward, the gradients of all parameters and of the input.
  void train() {
    y_ = model_.forward(x()).data();
    dx_ = model_.backward(dy()).data();
    model_.next_step();
  }

  /// Where the model's matrices lie, and its last results.
  LinearPointers<T> pointers() {
    LinearPointers<T> all{};
    all.x = x_.data();
    all.dy = dy_.data();
    all.y = const_cast<T*>(y_);
    all.dx = const_cast<T*>(dx_);
    model_.visit_parameters([&](auto& parameter) {
      const bool is_weight = parameter.spec.shape.rank() == 2;
      (is_weight ? all.w : all.bias) = parameter.value.data();
      (is_weight ? all.dw : all.db) = parameter.gradient.data();
    });
    return all;
  }

  /// Calls f(name, product) for each result of the model: of forward, and with `training` those of
  /// backward. What they are written to held NaNs before.
  template <class F>
  void each_result(bool training, F f) {
    forward();
    result_of_forward([&] { forward(); }, f);
    if (!training) return;
    sw::detail::copy(backend_, y_, kept_y_.size(), kept_y_.data());
    train();
    results_of_training([&] { train(); }, f);
  }

  /// The same for forward by run(), which writes where the last forward() did: what a graph holds
  /// that has just recorded it.
  template <class Run, class F>
  void result_of_forward(Run run, F f) {
    poison(backend_, const_cast<T*>(y_), kept_y_.size());
    run();
    f("y", products().y());
  }

  /// The same for gradients by run(), which writes where the last train() did. each_result() has
  /// kept the output that they are of.
  template <class Run, class F>
  void results_of_training(Run run, F f) {
    poison(backend_, const_cast<T*>(dx_), x_.size());
    poison(backend_, model_.gradients().data(), model_.gradients().size());
    run();
    products().each_gradient(f);
  }

  /// Throws std::runtime_error unless the model computes what it should.
  void require_right(bool training, double factor_epsilon) {
    each_result(training, required(backend_, "", factor_epsilon));
  }

 private:
  using Model = sw::Model<Architecture, sw::Context<T, Backend, sw::SingleRank>,
                          sw::Ends<sw::Invariant, sw::Invariant>, sw::TrainWithInputGradient>;
  using Rows = sw::View<const T, sw::Invariant>;

  sw::Shape shape(std::size_t features) const {
    return {{sw::Axis::batch, sizes_.rows}, {sw::Axis::feature, features}};
  }
  Rows x() const { return {x_.data(), shape(sizes_.in), {}}; }
  Rows dy() const { return {dy_.data(), shape(sizes_.out), {}}; }

  LinearProducts<T> products() {
    return {sizes_, pointers(), Architecture::relu ? kept_y_.data() : nullptr};
  }

  Backend& backend_;
  LinearSizes sizes_;
  sw::Pool pool_;
  Numbers<T> x_, dy_;
  Numbers<T> kept_y_;  ///< the output, while backward may take its memory
  sw::SingleRank alone_;
  Model model_;
  const T* y_ = nullptr;
  const T* dx_ = nullptr;
};

}  // namespace bench
