#pragma once
// The products of the convolutional network as oneDNN calls written by hand. What is left out:
// pooling, the ReLU behind the convolutions, dropout, batch normalisation, loss and update.

#include <cstddef>
#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "kernels/convolution_oracle.hpp"
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
        input_gradient_(Linear<float>{static_cast<Dim>(images), static_cast<Dim>(problem_.in), 128,
                                      dx_.data(), linear_.w1.data(), nullptr, linear_.dh.data()}
                            .matmul(library, Pass::backward_input)) {}

  void forward() { first_.forward(), second_.forward(), linear_.forward_packed(); }

  /// Forward and backward; nobody asks for the gradient of the images.
  void train() {
    first_.train_without_dx(), second_.train();
    linear_.train(), input_gradient_();
  }

  /// Throws unless the products are right, the convolutions' by readable loops.
  void check() {
    first_.train(), second_.train();
    require(first_shape_, first_);
    require(second_shape_, second_);
    linear_.check(problem_);
    input_gradient_();
    require_input_gradient();
  }

 private:
  /// 3x3 to 32 channels, without padding.
  static bench::ConvolutionShard convolution(std::size_t images, std::size_t in,
                                             std::size_t extent) {
    const shardwise::SpatialAxis axis{.input = extent, .output = extent - 2, .kernel = 3};
    return {{1, in, 32}, {images, {shardwise::SpatialAxis{}, axis, axis}}};
  }

  static void require(const bench::ConvolutionShard& shape, const Convolution& hand) {
    bench::ConvolutionOracle<float>(hand, shape, true).require("convolution by hand", hand);
  }

  /// Of the linear layers, for the last image.
  void require_input_gradient() const {
    const std::size_t row = problem_.rows - 1;
    std::vector<double> exact(problem_.in);
    for (std::size_t j = 0; j < problem_.hidden; ++j) {
      const double dh = linear_.dh[row * problem_.hidden + j];
      for (std::size_t i = 0; i < exact.size(); ++i)
        exact[i] += dh * linear_.w1[j * exact.size() + i];
    }
    bench::require_near<float>("gradient of the input by hand", exact,
                               [&](std::size_t i) { return dx_[row * exact.size() + i]; });
  }

  bench::MlpProblem<float> problem_;
  bench::ConvolutionShard first_shape_, second_shape_;
  Convolution first_, second_;
  Mlp<float> linear_;
  std::vector<float> dx_;
  Product input_gradient_;
};

}  // namespace by_hand
