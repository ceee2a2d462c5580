// ResNet-50's convolutions split over two thread ranks along each axis, as layers in a model,
// float.
//
//     bench_layers_convolution [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...
//
// For each: the layer on one rank; oneDNN called by hand on the two shards at once with nothing
// sent, the most that two cores can give, with and without copies of images; and the layer on two
// ranks, with the share of its time that what it sends takes alone. All in turns, from a barrier
// to a barrier. Layouts at the ends are those that neighbouring layers would have, so that only
// what the split itself needs is sent: output sums dx, input sums y, batch sums dw, height sums dw
// and, for 3x3, exchanges halos of x and dx.

#include <concepts>
#include <cstddef>
#include <string>
#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "kernels/convolution_oracle.hpp"
#include "layers/split_layer.hpp"
#include "shardwise/shardwise.hpp"
#include "support/moves.hpp"
#include "support/one_and_two_ranks.hpp"
#include "support/program.hpp"
#include "support/resnet50.hpp"

namespace {

namespace sw = shardwise;
using Ranks = sw::ThreadCommunicator;

using sw::Axis;

constexpr std::size_t images = 4;

using ByOutputs = bench::SplitWay<sw::split::output, sw::Invariant, sw::Sharded<Axis::channel>>;
using ByInputs = bench::SplitWay<sw::split::input, sw::Sharded<Axis::channel>, sw::Invariant>;
using ByBatch =
    bench::SplitWay<sw::split::none, sw::Sharded<Axis::batch>, sw::Sharded<Axis::batch>>;
using ByHeight =
    bench::SplitWay<sw::split::height, sw::Sharded<Axis::height>, sw::Sharded<Axis::height>>;

/// What one rank has of it.
template <class W>
bench::ConvolutionShard shard_of(const bench::ConvolutionShape& shape, sw::Place place) {
  const auto share = [&](std::size_t units) {
    return sw::block_of({Axis::channel, units}, place).size;
  };
  bench::ConvolutionShard shard = bench::whole(shape, images);
  if constexpr (std::same_as<W, ByOutputs>) shard.channels.out = share(shape.out);
  if constexpr (std::same_as<W, ByInputs>) shard.channels.in = share(shape.in);
  if constexpr (std::same_as<W, ByBatch>) shard.call.images = share(images);
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

/// What a layer on two ranks sends, and nothing else: its sum over ranks, of y by input, of dx by
/// output, else of dw; and by height the halos of windows that reach beyond a rank's rows.
template <class W, sw::Kernel Form, class Layer>
bench::Moves<float, Ranks> sent_by(Ranks& ranks, const Layer& layer, bool training) {
  constexpr auto size = static_cast<std::size_t>(Form.size.values[0]);
  constexpr sw::Window window{.kernel = size, .before = size / 2, .after = size / 2};
  bench::Moves<float, Ranks> moves(ranks);
  if constexpr (std::same_as<W, ByInputs>) {
    moves.sum(layer.out);
  } else if (training) {
    moves.sum(std::same_as<W, ByOutputs> ? layer.in
                                         : layer.model.layers().parameter_specs(layer.in)[0].shape);
  }
  if constexpr (std::same_as<W, ByHeight> && !window.is_pointwise()) {
    using Block = sw::Sharded<Axis::height>;
    moves.add<Block, sw::Haloed<Axis::height, window>>(layer.in);
    if (training) moves.add<sw::HaloedPartial<Axis::height, window>, Block>(layer.in);
  }
  return moves;
}

/// Times candidates in turns, from a barrier to a barrier, and gives with the last one, ours, the
/// share of its time that `sent` takes alone. A sample has several calls, of which only the first
/// one finds cold caches.
std::vector<bench::Timing> compare(Ranks& ranks, std::vector<bench::Candidate> candidates,
                                   const bench::Run& sent, int rounds) {
  constexpr std::ptrdiff_t of_sent = 1;  // not the first one, which speeds are relative to
  candidates.insert(candidates.begin() + of_sent, {"sent", sent});
  auto timings = bench::interleave(ranks, candidates, rounds, 2e-2);
  const double seconds = timings[of_sent].seconds.median;
  timings.erase(timings.begin() + of_sent);
  timings.back().also = {{"share of what is sent", seconds / timings.back().seconds.median}};
  return timings;
}

template <class W, sw::Kernel Form>
std::vector<bench::Timing> measure(Ranks& ranks, const bench::ConvolutionShape& shape,
                                   bool training, int rounds) {
  using Layer = sw::Conv2d<typename W::split, sw::dynamic, sw::dynamic, Form>;
  using Split = bench::SplitLayer<W, Layer, float, Ranks>;
  const auto whole_shard = bench::whole(shape, images);
  const auto part = shard_of<W>(shape, sw::place_of(ranks));
  by_hand::Library library;
  const by_hand::Convolution whole(library, whole_shard, by_hand::Images::as_they_lie);
  by_hand::Convolution half(library, part, by_hand::Images::as_they_lie);
  by_hand::Convolution copied(library, part, by_hand::Images::as_the_library_likes);
  Ranks alone = ranks.split(ranks.rank(), 0);
  const Layer layer(shape.in, shape.out);
  const sw::Shape in = whole_shard.x_shape();
  Split one(alone, layer, in, whole), two(ranks, layer, in, whole);
  const auto run = [training](auto& way) { training ? way.train() : way.forward(); };

  const bench::ConvolutionOracle<float> of_whole(whole, whole_shard, training);
  two.require_results(ranks, of_whole);
  one.require_results(alone, of_whole);
  const bench::ConvolutionOracle<float> of_part(half, part, training);
  run(half), run(copied);
  of_part.require("images as they lie", half);
  of_part.require("images copied", copied);
  return compare(ranks,
                 {bench::on_first(ranks, "one rank", [&] { run(one); }),
                  {"two free halves, images as they lie", [&] { run(half); }},
                  {"two free halves, images copied", [&] { run(copied); }},
                  {"two ranks", [&] { run(two); }}},
                 sent_by<W, Form>(ranks, two, training), rounds);
}

template <class W, sw::Kernel Form>
void add_way(bench::Program& program, const std::string& way,
             const bench::ConvolutionShape& shape) {
  const int rounds = program.rounds();
  for (const bool training : {false, true})
    program.add(
        shape.name() + "/by " + way + (training ? "/forward and backward" : "/forward"), [=] {
          return bench::on_two_ranks(
              [&](Ranks& ranks) { return measure<W, Form>(ranks, shape, training, rounds); });
        });
}

template <sw::Kernel Form>
void add_shape(bench::Program& program, const bench::ConvolutionShape& shape) {
  add_way<ByOutputs, Form>(program, "output", shape);
  add_way<ByInputs, Form>(program, "input", shape);
  add_way<ByBatch, Form>(program, "batch", shape);
  add_way<ByHeight, Form>(program, "height", shape);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 9);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  for (const bench::ConvolutionShape& shape : program.sizes(bench::resnet50())) {
    if (shape.kernel == 1)
      add_shape<sw::kernel(1)>(program, shape);
    else
      add_shape<sw::kernel(3, {.padding = 1})>(program, shape);
  }
  return program.run();
}
