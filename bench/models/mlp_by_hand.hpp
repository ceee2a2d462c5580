#pragma once
// The perceptron in -> hidden -> out with ReLU, as a sequence of oneDNN calls written by hand.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/by_hand.hpp"
#include "kernels/column_sums.hpp"
#include "models/mlp_problem.hpp"

namespace by_hand {

/// Which of oneDNN's primitives training multiplies with. `inner_product` is there for float only:
/// in bf16 it is two to four times as slow on weights as they lie.
enum class By { inner_product, matmul };

/// A copy of a problem's numbers, and what runs on them. Forward with weights packed beforehand,
/// as for use; training with weights as they lie, since they change in every step.
template <class T>
class Mlp {
 public:
  Mlp(Library& library, const bench::MlpProblem<T>& problem, By by = By::matmul)
      : x(problem.x),
        w1(problem.w1),
        b1(problem.b1),
        h(problem.rows * problem.hidden),
        w2(problem.w2),
        b2(problem.b2),
        y(problem.rows * problem.out),
        dy(problem.dy),
        dh(h.size()),
        dw1(w1.size()),
        db1(b1.size()),
        dw2(w2.size()),
        db2(b2.size()) {
    const auto dim = [](std::size_t n) { return static_cast<Dim>(n); };
    const Dim m = dim(problem.rows), i = dim(problem.in), n = dim(problem.hidden),
              o = dim(problem.out);
    // The matrices of each of the two layers.
    using Layers = std::array<Linear<T>, 2>;
    const Layers values{{{m, i, n, x.data(), w1.data(), b1.data(), h.data()},
                         {m, n, o, h.data(), w2.data(), b2.data(), y.data()}}};
    const Layers gradients{{{m, i, n, x.data(), dw1.data(), db1.data(), dh.data()},
                            {m, n, o, h.data(), dw2.data(), db2.data(), dy.data()}}};
    for (std::size_t k = 0; k < 2; ++k) {
      const bool relu = k == 0;
      packed_[k] = values[k].matmul(library, Pass::forward, relu, Weights::packed);
      forward_[k] = by == By::inner_product ? values[k].inner_product(library, Pass::forward, relu)
                                            : values[k].matmul(library, Pass::forward, relu);
      weight_[k] = std::same_as<T, float>
                       ? gradients[k].inner_product(library, Pass::backward_weight)
                       : gradients[k].matmul(library, Pass::backward_weight);
    }
    const Linear<T> input{m, n, o, dh.data(), w2.data(), nullptr, dy.data()};
    input_ = by == By::inner_product ? input.inner_product(library, Pass::backward_input)
                                     : input.matmul(library, Pass::backward_input);
  }

  /// y, with weights that were packed when this was made.
  void forward_packed() { packed_[0](), packed_[1](); }

  void forward() { forward_[0](), forward_[1](); }

  /// All gradients of the last forward but that of x.
  void backward() {
    weight_[1](), input_();
    take_slope(dh.size(), h.data(), dh.data());
    weight_[0]();
    if constexpr (!std::same_as<T, float>) {  // oneDNN's layer, for float, has summed these
      add_up_(dy, db2);
      add_up_(dh, db1);
    }
  }

  void train() { forward(), backward(); }

  /// Runs all of it, on the numbers of `problem`, and throws unless it gives what it must.
  void check(const bench::MlpProblem<T>& problem) {
    forward_packed();
    problem.require_output("by hand, packed", y.data());
    train();
    problem.require_output("by hand", y.data());
    problem.require_gradients("by hand", dw1.data(), db1.data(), dw2.data(), db2.data());
  }

  /// dh = 0 where ReLU gave h = 0. In a form that compilers vectorise: bf16 is compared by its
  /// bits, of which the first is the sign.
  static void take_slope(std::size_t n, const T* h, T* dh) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (std::same_as<T, float>) {
        dh[i] = h[i] > 0 ? dh[i] : 0;
      } else {
        const bool grows = static_cast<std::int16_t>(h[i].bits) > 0;
        dh[i].bits = grows ? dh[i].bits : std::uint16_t{0};
      }
    }
  }

  std::vector<T> x, w1, b1, h, w2, b2, y, dy, dh, dw1, db1, dw2, db2;

 private:
  std::array<Product, 2> packed_, forward_, weight_;
  Product input_;
  ColumnSums<T> add_up_;
};

}  // namespace by_hand
