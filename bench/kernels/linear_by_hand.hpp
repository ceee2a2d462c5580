#pragma once
// The products of one linear layer as calls of oneDNN written by hand.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/by_hand.hpp"
#include "kernels/column_sums.hpp"
#include "kernels/linear_layer.hpp"
#include "shardwise/backend/onednn/onednn.hpp"

namespace by_hand {

/// The ways to compute the products of a layer from its matrices, all of which have to outlive what
/// they return.
template <class T>
class Linear {
 public:
  using Layer = bench::LinearLayer<shardwise::OneDnn, T>;

  Linear(Library& library, Layer& layer) : library_(&library), layer_(&layer) {}

  /// With a weight that stays: packed beforehand.
  std::vector<bench::Candidate> with_packed_weight(bench::LinearProduct product) const {
    return {{"matmul by hand", call(matmul(product, Weights::packed))}};
  }

  /// With a weight that changes before each call: used as it lies, or packed in each.
  std::vector<bench::Candidate> with_plain_weight(bench::LinearProduct product) const {
    if (product == bench::LinearProduct::backward_weight)
      return {{"inner product by hand", call(inner_product(product))},
              {"matmul and sums by hand", weight_by_matmul()}};
    return {{"matmul by hand", call(matmul(product, Weights::plain))},
            {"inner product by hand", call(inner_product(product))},
            {"pack and matmul by hand", call(matmul(product, Weights::packed_each_time))}};
  }

 private:
  static std::function<void()> call(Product product) {
    return [shared = std::make_shared<Product>(std::move(product))] { (*shared)(); };
  }

  std::function<void()> weight_by_matmul() const {
    Layer& l = *layer_;
    return
        [&l, add_up = ColumnSums<T>(),
         product = call(transposed_matmul(*library_, rows(), in(), out(), l.x.data(), l.dy.data(),
                                          l.results.dw.data(), type_of<T>))]() mutable {
          product();
          add_up(l.dy, l.results.db);
        };
  }

  Product matmul(bench::LinearProduct product, Weights weights) const {
    Layer& l = *layer_;
    if (product == bench::LinearProduct::forward)
      return by_hand::matmul(*library_, rows(), in(), out(), l.x.data(), l.w.data(), true,
                             l.results.y.data(), l.bias.data(), relu(), weights, type_of<T>);
    return by_hand::matmul(*library_, rows(), out(), in(), l.dy.data(), l.w.data(), false,
                           l.results.dx.data(), nullptr, false, weights, type_of<T>);
  }

  Product inner_product(bench::LinearProduct product) const {
    Layer& l = *layer_;
    if (product == bench::LinearProduct::forward)
      return by_hand::inner_product(*library_, rows(), in(), out(), l.x.data(), l.w.data(),
                                    l.results.y.data(), l.bias.data(), relu(), type_of<T>);
    const bool of_weight = product == bench::LinearProduct::backward_weight;
    return inner_product_backward(*library_, rows(), in(), out(),
                                  of_weight ? l.x.data() : l.results.dx.data(), l.w.data(),
                                  l.dy.data(), of_weight ? l.results.dw.data() : nullptr,
                                  of_weight ? l.results.db.data() : nullptr, type_of<T>);
  }

  bool relu() const { return layer_->activation == shardwise::Activation::relu; }
  dnnl_dim_t rows() const { return static_cast<dnnl_dim_t>(layer_->shape.rows); }
  dnnl_dim_t in() const { return static_cast<dnnl_dim_t>(layer_->shape.in); }
  dnnl_dim_t out() const { return static_cast<dnnl_dim_t>(layer_->shape.out); }

  Library* library_;
  Layer* layer_;
};

}  // namespace by_hand
