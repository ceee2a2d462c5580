#pragma once
// A convolution as the only layer of a model on one rank, on the tensors of one that is written by
// hand.

#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/model/model.hpp"
#include "support/resnet50.hpp"

namespace bench {

template <class T, shardwise::Kernel Form>
class ConvolutionInModel {
 public:
  ConvolutionInModel(const by_hand::ConvolutionOf<T>& given, const ConvolutionShard& shard)
      : in_{{shardwise::Axis::batch, shard.call.images},
            {shardwise::Axis::channel, shard.inputs()},
            {shardwise::Axis::height, shard.call.space[1].input},
            {shardwise::Axis::width, shard.call.space[2].input}},
        model_(Layer(shard.inputs(), shard.outputs()), alone_, shardwise::Seed{1}, in_),
        x_(given.x.data(), in_, place()),
        dy_(given.dy.data(), model_.layers().output_shape(in_), place()) {
    const auto specs = model_.layers().parameter_specs(in_);
    model_.set("weight", {given.w.data(), specs[0].shape, place()});
    model_.set("bias", {given.bias.data(), specs[1].shape, place()});
  }

  void forward() { model_.evaluate(x_); }
  void train() {
    model_.forward(x_);
    model_.backward(dy_);
    model_.next_step();
  }

  struct Results {
    std::vector<T> y, dx, dw, db;
  };
  /// Of a step.
  Results trained() {
    Results all;
    all.y = copy_of(model_.forward(x_));
    all.dx = copy_of(model_.backward(dy_));
    model_.settle_gradients();
    all.dw = copy_of(model_.gather_gradient("weight"));
    all.db = copy_of(model_.gather_gradient("bias"));
    model_.next_step();
    return all;
  }
  /// Of forward alone, used so often that its weights are packed; without gradients.
  Results evaluated() {
    for (int i = 0; i < 10; ++i) forward();
    return {copy_of(model_.evaluate(x_)), {}, {}, {}};
  }

 private:
  using Layer =
      shardwise::Conv2d<shardwise::split::none, shardwise::dynamic, shardwise::dynamic, Form>;
  using Model =
      shardwise::Model<Layer, shardwise::Context<T, shardwise::OneDnn, shardwise::SingleRank>,
                       shardwise::Ends<shardwise::Invariant, shardwise::Invariant>,
                       shardwise::TrainWithInputGradient>;
  using Images = shardwise::View<const T, shardwise::Invariant>;

  static std::vector<T> copy_of(const auto& tensor) {
    return {tensor.data(), tensor.data() + tensor.size()};
  }

  shardwise::Place place() { return shardwise::place_of(alone_); }

  shardwise::SingleRank alone_;
  shardwise::Shape in_;
  Model model_;
  Images x_, dy_;
};

}  // namespace bench
