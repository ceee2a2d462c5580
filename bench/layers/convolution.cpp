// ResNet-50's convolutions split over two thread ranks along each axis, as layers in a model,
// float.
//
//     bench_layers_convolution [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...
//
// For each: the layer on one rank; oneDNN called by hand on the two shards at once with nothing
// sent, the most that two cores can give, with and without copies of images; and the layer on two
// ranks, with the shares of its time that its products and what it sends take alone. All in turns,
// from a barrier to a barrier. Layouts at the ends are those that neighbouring layers would have,
// so that only what the split itself needs is sent: output sums dx, input sums y, batch sums dw,
// height sums dw and, for 3x3, exchanges halos of x and dx.

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "kernels/convolution_kernel.hpp"
#include "layers/split_convolution.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"
#include "support/on_threads.hpp"
#include "support/program.hpp"
#include "support/resnet50.hpp"

namespace {

namespace sw = shardwise;
using bench::Ranks;

template <class W, sw::Kernel Form>
std::vector<bench::Timing> measure(Ranks& ranks, const bench::ConvolutionShape& shape,
                                   bool training, int rounds) {
  using Layer = sw::Conv2d<typename W::split, sw::dynamic, sw::dynamic, Form>;
  const auto whole_shard = bench::whole(shape, bench::image_count);
  const auto part = bench::shard_of<W>(shape, sw::place_of(ranks));
  const sw::detail::onednn::ThreadLimit one_thread(1);  // for the calls by hand too
  by_hand::Library library;
  const by_hand::Convolution whole(library, whole_shard, by_hand::Images::as_they_lie);
  by_hand::Convolution half(library, part, by_hand::Images::as_they_lie);
  by_hand::Convolution copied(library, part, by_hand::Images::as_the_library_likes);
  bench::ConvolutionKernel<sw::OneDnn, float> products(half, part);
  Ranks alone = ranks.split(ranks.rank(), 0);
  const Layer layer(shape.in, shape.out);
  const sw::Shape in = whole_shard.x_shape();
  bench::SplitLayer<W, Layer> one(alone, layer, in, whole), two(ranks, layer, in, whole);
  const auto sent = bench::sent_by<W, Form>(ranks, two, training);
  const auto run = [training](auto& way) { training ? way.train() : way.forward(); };

  const bench::ConvolutionOracle<float> of_whole(whole, whole_shard, training);
  const bench::Terms terms{whole_shard.y_terms(), whole_shard.dx_terms(), whole_shard.dw_terms()};
  two.require_results(ranks, of_whole.exact(), terms, training);
  one.require_results(alone, of_whole.exact(), terms, training);
  const bench::ConvolutionOracle<float> of_part(half, part, training);
  run(half), run(copied), run(products);
  of_part.require("images as they lie", half);
  of_part.require("images copied", copied);
  of_part.require("products", products);
  return bench::compare(
      ranks, one,
      {{"two free halves, images as they lie", [&] { run(half); }},
       {"two free halves, images copied", [&] { run(copied); }}},
      two, [&] { run(products); }, sent, training, rounds);
}

template <class W, sw::Kernel Form>
void add_way(bench::Program& program, const std::string& way,
             const bench::ConvolutionShape& shape) {
  const int rounds = program.rounds();
  for (const bool training : {false, true})
    program.add(
        shape.name() + "/by " + way + (training ? "/forward and backward" : "/forward"), [=] {
          return bench::on_threads(
              2, [&](Ranks& ranks) { return measure<W, Form>(ranks, shape, training, rounds); });
        });
}

template <sw::Kernel Form>
void add_shape(bench::Program& program, const bench::ConvolutionShape& shape) {
  add_way<bench::ByOutputs, Form>(program, "output", shape);
  add_way<bench::ByInputs, Form>(program, "input", shape);
  add_way<bench::ByBatch, Form>(program, "batch", shape);
  add_way<bench::ByHeight, Form>(program, "height", shape);
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
