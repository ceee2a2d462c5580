#pragma once
// The perceptron in -> hidden -> out with ReLU, as a sequence of oneDNN calls written by hand.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/by_hand.hpp"
#include "support/random_values.hpp"

namespace by_hand {

/// All matrices of the perceptron, and what runs on them. Forward with weights packed beforehand,
/// as for use; training with weights as they lie, since they change in every step.
class Mlp {
 public:
  Mlp(Library& library, std::size_t rows, std::size_t in, std::size_t hidden, std::size_t out)
      : x(bench::random_values(rows * in)),
        w1(bench::random_values(hidden * in)),
        b1(bench::random_values(hidden)),
        h(rows * hidden),
        w2(bench::random_values(out * hidden)),
        b2(bench::random_values(out)),
        y(rows * out),
        dy(bench::random_values(rows * out)),
        dh(rows * hidden),
        dw1(w1.size()),
        db1(hidden),
        dw2(w2.size()),
        db2(out) {
    const auto m = static_cast<dnnl_dim_t>(rows);
    const auto i = static_cast<dnnl_dim_t>(in);
    const auto n = static_cast<dnnl_dim_t>(hidden);
    const auto o = static_cast<dnnl_dim_t>(out);
    for (const Weights weights : {Weights::packed, Weights::plain}) {
      auto& products = weights == Weights::packed ? packed_ : matmul_;
      products.push_back(
          matmul(library, m, i, n, x.data(), w1.data(), true, h.data(), b1.data(), true, weights));
      products.push_back(
          matmul(library, m, n, o, h.data(), w2.data(), true, y.data(), b2.data(), false, weights));
    }
    inner_.push_back(
        inner_product(library, m, i, n, x.data(), w1.data(), h.data(), b1.data(), true));
    inner_.push_back(
        inner_product(library, m, n, o, h.data(), w2.data(), y.data(), b2.data(), false));
    weight2_.push_back(inner_product_backward(library, m, n, o, h.data(), w2.data(), dy.data(),
                                              dw2.data(), db2.data()));
    weight1_.push_back(inner_product_backward(library, m, i, n, x.data(), w1.data(), dh.data(),
                                              dw1.data(), db1.data()));
    matmul_.push_back(matmul(library, m, o, n, dy.data(), w2.data(), false, dh.data(), nullptr,
                             false, Weights::plain));
    inner_.push_back(inner_product_backward(library, m, n, o, dh.data(), w2.data(), dy.data(),
                                            nullptr, nullptr));
  }

  void forward_packed() { packed_[0](), packed_[1](); }
  void train_by_matmul() { train(matmul_); }
  void train_by_inner_product() { train(inner_); }

  std::vector<float> x, w1, b1, h, w2, b2, y, dy, dh, dw1, db1, dw2, db2;

 private:
  void train(std::vector<Product>& products) {
    products[0](), products[1]();
    weight2_[0](), products[2]();
    for (std::size_t i = 0; i < dh.size(); ++i) dh[i] = h[i] > 0 ? dh[i] : 0.0F;
    weight1_[0]();
  }

  std::vector<Product> packed_, matmul_, inner_, weight1_, weight2_;
};

}  // namespace by_hand
