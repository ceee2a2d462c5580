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
template <class W, sw::Kernel Form, class Layer>
Moves<float, Ranks> sent_by(Ranks& ranks, const SplitLayer<W, Layer>& layer, bool training) {
  constexpr auto size = static_cast<std::size_t>(Form.size.values[0]);
  constexpr sw::Window window{.kernel = size, .before = size / 2, .after = size / 2};
  using Block = sw::Sharded<sw::Axis::height>;
  Moves<float, Ranks> moves = sums_of(ranks, layer, training);
  if constexpr (std::same_as<W, ByHeight> && !window.is_pointwise()) {
    moves.add<Block, sw::Haloed<sw::Axis::height, window>>(layer.in);
    if (training) moves.add<sw::HaloedPartial<sw::Axis::height, window>, Block>(layer.in);
  }
  return moves;
}

}  // namespace bench
