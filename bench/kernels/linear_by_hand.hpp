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
  std::vector<bench::Candidate> with_packed_weight(Pass product) const {
    return {{"matmul by hand", call(matmul(product, Weights::packed))}};
  }

  /// With a weight that changes before each call: used as it lies, or packed in each.
  std::vector<bench::Candidate> with_plain_weight(Pass product) const {
    if (product == Pass::backward_weight)
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
    Product product = by_hand::matmul(
        *library_, {l.dy.data(), out(), rows(), true}, {l.x.data(), rows(), in()},
        {l.results.dw.data(), out(), in()}, nullptr, false, Weights::plain, type_of<T>);
    return [&l, add_up = ColumnSums<T>(), product = call(std::move(product))]() mutable {
      product();
      add_up(l.dy, l.results.db);
    };
  }

  Product matmul(Pass product, Weights weights) const {
    Layer& l = *layer_;
    if (product == Pass::forward)
      return by_hand::matmul(*library_, {l.x.data(), rows(), in()}, {l.w.data(), in(), out(), true},
                             {l.results.y.data(), rows(), out()}, l.bias.data(), relu(), weights,
                             type_of<T>);
    return by_hand::matmul(*library_, {l.dy.data(), rows(), out()}, {l.w.data(), out(), in()},
                           {l.results.dx.data(), rows(), in()}, nullptr, false, weights,
                           type_of<T>);
  }

  Product inner_product(Pass product) const {
    Layer& l = *layer_;
    auto& [y, dx, dw, db] = l.results;
    const bool is_forward = product == Pass::forward, of_weight = product == Pass::backward_weight;
    const InnerProduct layer{rows(),
                             in(),
                             out(),
                             product == Pass::backward_input ? dx.data() : l.x.data(),
                             of_weight ? dw.data() : l.w.data(),
                             of_weight ? db.data() : l.bias.data(),
                             is_forward ? y.data() : l.dy.data()};
    return layer.product(*library_, product, is_forward && relu(), type_of<T>);
  }

  bool relu() const { return layer_->activation == shardwise::Activation::relu; }
  dnnl_dim_t rows() const { return static_cast<dnnl_dim_t>(layer_->shape.rows); }
  dnnl_dim_t in() const { return static_cast<dnnl_dim_t>(layer_->shape.in); }
  dnnl_dim_t out() const { return static_cast<dnnl_dim_t>(layer_->shape.out); }

  Library* library_;
  Layer* layer_;
};

}  // namespace by_hand
