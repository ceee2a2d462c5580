#pragma once
// The products of the convolutional network as oneDNN calls written by hand. What is left out:
// pooling, the ReLU behind the convolutions, dropout, batch normalisation, loss and update.

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "models/cnn_model.hpp"
#include "models/mlp_by_hand.hpp"

namespace by_hand {

/// The two convolutions and the two linear layers, each on numbers of its own.
class CnnProducts {
 public:
  CnnProducts(Library& library, std::size_t images, Images layout)
      : problem_(images, example::pooled_features(bench::side), 128, bench::classes),
        first_shape_(convolution(images, 1, bench::side)),
        second_shape_(convolution(images, 32, bench::side - 2)),
        first_(library, first_shape_, layout),
        second_(library, second_shape_, layout),
        linear_(library, problem_, By::matmul),
        dx_(problem_.x.size()),
        input_gradient_(matmul(library, dim(images), 128, dim(problem_.in), linear_.dh.data(),
                               linear_.w1.data(), false, dx_.data(), nullptr, false,
                               Weights::plain)) {}

  void forward() { first_.forward(), second_.forward(), linear_.forward_packed(); }

  /// Forward and backward; nobody asks for the gradient of the images.
  void train() {
    first_.train_without_dx(), second_.train();
    linear_.train(), input_gradient_();
  }

  /// Throws unless the products are right, the convolutions' by readable loops.
  void check() {
    train();
    require(first_shape_, first_);
    require(second_shape_, second_);
    problem_.require_output("by hand", linear_.y.data());
    problem_.require_gradients("by hand", linear_.dw1.data(), linear_.dw2.data());
    forward();
    problem_.require_output("by hand, packed", linear_.y.data());
  }

 private:
  static dnnl_dim_t dim(std::size_t n) { return static_cast<dnnl_dim_t>(n); }

  /// 3x3 to 32 channels, without padding.
  static bench::ConvolutionShard convolution(std::size_t images, std::size_t in,
                                             std::size_t extent) {
    const shardwise::SpatialAxis axis{.input = extent, .output = extent - 2, .kernel = 3};
    return {{1, in, 32}, {images, {shardwise::SpatialAxis{}, axis, axis}}};
  }

  /// Of y, the first image only.
  static void require(bench::ConvolutionShard shape, Convolution& hand) {
    shape.call.images = 1;
    shardwise::Reference reference;
    shardwise::Reference::Convolution<float> loops(reference, shape.channels);
    std::vector<float> y(shape.y_size());
    loops.forward(shape.call, hand.x.data(), {hand.w.data(), 1}, hand.bias.data(),
                  shardwise::Activation::none, y.data());
    bench::require_near<float>("convolution by hand", {y.begin(), y.end()},
                               [&](std::size_t i) { return hand.y[i]; });
  }

  bench::MlpProblem<float> problem_;
  bench::ConvolutionShard first_shape_, second_shape_;
  Convolution first_, second_;
  Mlp<float> linear_;
  std::vector<float> dx_;
  Product input_gradient_;
};

}  // namespace by_hand
