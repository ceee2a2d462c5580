#pragma once
// ResNet-50's convolutions as the only layer of a model that is split over ranks, and what they
// send. float.

#include <concepts>
#include <cstddef>
#include <vector>

#include "kernels/convolution_kernel.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"
#include "support/require_equal.hpp"
#include "support/resnet50.hpp"

namespace bench {

namespace sw = shardwise;
using Ranks = sw::ThreadCommunicator;
using Exact = ConvolutionKernel<sw::Reference, float>;

constexpr std::size_t image_count = 4;

/// How a layer is split: its split, the layouts of images at its ends, and this rank's part.
template <class S, sw::Layout In, sw::Layout Out>
struct SplitWay {
  using split = S;
  using in = In;
  using out = Out;
};
using ByOutput = SplitWay<sw::split::output, sw::Invariant, sw::Sharded<sw::Axis::channel>>;
using ByInput = SplitWay<sw::split::input, sw::Sharded<sw::Axis::channel>, sw::Invariant>;
using ByBatch =
    SplitWay<sw::split::none, sw::Sharded<sw::Axis::batch>, sw::Sharded<sw::Axis::batch>>;
using ByHeight =
    SplitWay<sw::split::height, sw::Sharded<sw::Axis::height>, sw::Sharded<sw::Axis::height>>;

template <class W>
ConvolutionShard shard_of(const ConvolutionShape& shape, sw::Place place) {
  const auto share = [&](std::size_t units) {
    return sw::block_of({sw::Axis::channel, units}, place).size;
  };
  ConvolutionShard shard = whole(shape, image_count);
  if constexpr (std::same_as<W, ByOutput>) shard.channels.out = share(shape.out);
  if constexpr (std::same_as<W, ByInput>) shard.channels.in = share(shape.in);
  if constexpr (std::same_as<W, ByBatch>) shard.call.images = share(image_count);
  if constexpr (std::same_as<W, ByHeight>) {
    const sw::Window window{
        .kernel = shape.kernel, .before = shape.padding(), .after = shape.padding()};
    sw::SpatialAxis& rows = shard.call.space[1];
    rows.input = window.held_by(place, shape.extent).size;
    rows.output = share(shape.outputs());
    rows.before = place.rank == 0 ? shape.padding() : 0;
  }
  return shard;
}

/// The layer on some ranks, with the weights and images of `whole`.
template <class W, sw::Kernel Form>
struct SplitConvolution {
  using Layer = sw::Conv2d<typename W::split, sw::dynamic, sw::dynamic, Form>;
  using Model = sw::Model<Layer, sw::Context<float, sw::OneDnn, Ranks>,
                          sw::Ends<typename W::in, typename W::out>, sw::TrainWithInputGradient>;

  SplitConvolution(Ranks& ranks, const ConvolutionShape& shape, const by_hand::Convolution& whole)
      : place(sw::place_of(ranks)),
        in{{sw::Axis::batch, image_count},
           {sw::Axis::channel, shape.in},
           {sw::Axis::height, shape.extent},
           {sw::Axis::width, shape.extent}},
        model(Layer(shape.in, shape.out), ranks, sw::Seed{1}, in),
        out(model.layers().output_shape(in)),
        x(in, place),
        dy(out, place) {
    slice(ranks, whole.x, x);
    slice(ranks, whole.dy, dy);
    const auto specs = model.layers().parameter_specs(in);
    model.set("weight", {whole.w.data(), specs[0].shape, place});
    model.set("bias", {whole.bias.data(), specs[1].shape, place});
  }

  /// This rank's part of a whole tensor.
  template <sw::Layout L>
  void slice(Ranks& ranks, const std::vector<float>& from, sw::Tensor<float, L>& to) {
    const sw::View<const float, sw::Invariant> view(from.data(), to.global(), place);
    sw::redistribute(ranks, pool, view, to.view());
  }

  void forward() { model.evaluate(x_view()); }
  void train() {
    model.forward(x_view());
    model.backward(dy_view());
    model.settle_gradients();
    model.next_step();
  }

  /// Throws unless forward, and with `training` a step, gives what the loops of `Reference` give of
  /// all of it.
  void require_results(Ranks& ranks, const Exact& exact, const ConvolutionShard& whole,
                       bool training) {
    sw::Tensor<float, typename W::out> y(out, place);
    slice(ranks, exact.y, y);
    const auto require_y = [&](const char* what, const float* got) {
      require_equal(what, y.data(), got, y.size(), whole.y_terms());
    };
    require_y("y for use", model.evaluate(x_view()).data());
    if (!training) return;
    sw::Tensor<float, typename W::in> dx(in, place);
    slice(ranks, exact.dx, dx);
    require_y("y", model.forward(x_view()).data());
    require_equal("dx", dx.data(), model.backward(dy_view()).data(), dx.size(), whole.dx_terms());
    model.settle_gradients();
    const auto dw = model.gather_gradient("weight"), db = model.gather_gradient("bias");
    require_equal("dw", exact.dw.data(), dw.data(), exact.dw.size(), whole.dw_terms());
    require_equal("db", exact.db.data(), db.data(), exact.db.size(), whole.dw_terms());
    model.next_step();
  }

  sw::View<const float, typename W::in> x_view() const { return x.view(); }
  sw::View<const float, sw::dual_t<typename W::out>> dy_view() const {
    return {dy.data(), out, place};
  }

  sw::Place place;
  sw::Shape in;
  Model model;
  sw::Shape out;
  sw::Tensor<float, typename W::in> x;
  sw::Tensor<float, sw::dual_t<typename W::out>> dy;
  sw::Pool pool;
};

/// What a layer on two ranks sends, and nothing else.
template <class W, sw::Kernel Form>
class Sent {
 public:
  Sent(Ranks& ranks, const SplitConvolution<W, Form>& layer)
      : ranks_(&ranks),
        x_(layer.in, layer.place),
        y_(layer.out, layer.place),
        dw_(layer.model.layers().parameter_specs(layer.in)[0].shape, layer.place) {}

  void forward() {
    if constexpr (std::same_as<W, ByInput>) sum(y_);
    if constexpr (exchanges) move(block_, haloed_);
  }
  void train() {
    forward();
    if constexpr (std::same_as<W, ByOutput>) sum(x_);
    if constexpr (exchanges) move(partial_, block_);
    if constexpr (std::same_as<W, ByBatch> || std::same_as<W, ByHeight>) sum(dw_);
  }

 private:
  static constexpr sw::Window window{.kernel = static_cast<std::size_t>(Form.size.values[0]),
                                     .before = static_cast<std::size_t>(Form.size.values[0] / 2),
                                     .after = static_cast<std::size_t>(Form.size.values[0] / 2)};
  static constexpr bool exchanges = std::same_as<W, ByHeight> && !window.is_pointwise();

  void sum(sw::Tensor<float, sw::Invariant>& all) {
    const sw::View<const float, sw::Partial> part(all.data(), all.global(), all.place());
    sw::redistribute(*ranks_, pool_, part, all.view());
  }
  template <sw::Layout From, sw::Layout To>
  void move(const sw::Tensor<float, From>& from, sw::Tensor<float, To>& to) {
    sw::redistribute(*ranks_, pool_, from.view(), to.view());
  }

  Ranks* ranks_;
  sw::Tensor<float, sw::Invariant> x_, y_, dw_;
  sw::Tensor<float, sw::Sharded<sw::Axis::height>> block_{x_.global(), x_.place()};
  sw::Tensor<float, sw::Haloed<sw::Axis::height, window>> haloed_{x_.global(), x_.place()};
  sw::Tensor<float, sw::HaloedPartial<sw::Axis::height, window>> partial_{x_.global(), x_.place()};
  sw::Pool pool_;
};

}  // namespace bench
