#pragma once
// A rank's part of a convolution that is split over ranks, and what it sends. float.

#include <concepts>
#include <cstddef>

#include "layers/split_layer.hpp"
#include "support/resnet50.hpp"

namespace bench {

constexpr std::size_t image_count = 4;

using ByOutputs = ByOutput<sw::Axis::channel>;
using ByInputs = ByInput<sw::Axis::channel>;
using ByHeight =
    SplitWay<sw::split::height, sw::Sharded<sw::Axis::height>, sw::Sharded<sw::Axis::height>>;

/// What one rank has of it.
template <class W>
ConvolutionShard shard_of(const ConvolutionShape& shape, sw::Place place) {
  const auto share = [&](std::size_t units) {
    return sw::block_of({sw::Axis::channel, units}, place).size;
  };
  ConvolutionShard shard = whole(shape, image_count);
  if constexpr (std::same_as<W, ByOutputs>) shard.channels.out = share(shape.out);
  if constexpr (std::same_as<W, ByInputs>) shard.channels.in = share(shape.in);
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

/// What a convolution on two ranks sends, and nothing else: its sums and, by height, the halos of
/// windows that reach beyond a rank's rows.
template <class W, sw::Kernel Form>
class Sent {
 public:
  template <class Layer>
  Sent(Ranks& ranks, const SplitLayer<W, Layer>& layer)
      : ranks_(&ranks), sums_(ranks, layer), block_(layer.in, layer.place) {}

  void forward() {
    sums_.forward();
    if constexpr (exchanges) move(block_, haloed_);
  }
  void train() {
    sums_.train();
    if constexpr (exchanges) {
      move(block_, haloed_);
      move(partial_, block_);
    }
  }

 private:
  static constexpr sw::Window window{.kernel = static_cast<std::size_t>(Form.size.values[0]),
                                     .before = static_cast<std::size_t>(Form.size.values[0] / 2),
                                     .after = static_cast<std::size_t>(Form.size.values[0] / 2)};
  static constexpr bool exchanges = std::same_as<W, ByHeight> && !window.is_pointwise();

  template <sw::Layout From, sw::Layout To>
  void move(const sw::Tensor<float, From>& from, sw::Tensor<float, To>& to) {
    sw::redistribute(*ranks_, pool_, from.view(), to.view());
  }

  Ranks* ranks_;
  Sums<W> sums_;
  sw::Tensor<float, sw::Sharded<sw::Axis::height>> block_;
  sw::Tensor<float, sw::Haloed<sw::Axis::height, window>> haloed_{block_.global(), block_.place()};
  sw::Tensor<float, sw::HaloedPartial<sw::Axis::height, window>> partial_{block_.global(),
                                                                          block_.place()};
  sw::Pool pool_;
};

}  // namespace bench
