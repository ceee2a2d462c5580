// One rank's part of ResNet-50's convolutions in float and bf16: oneDNN called by hand, and the
// layer in a model. One thread, and the time of that thread alone.
//
//     bench_kernels_convolution [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...
//
// Every way has its images as they lie, channel by channel, and gives them so. By hand there are
// three of them: without copies of images; with copies into the layouts that oneDNN likes best,
// each made once; and with channels innermost. Ours is to be held against the fastest of them.
// Forward keeps its weights; in training they change in every step.

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "kernels/convolution_oracle.hpp"
#include "layers/split_layer.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "support/interleaved.hpp"
#include "support/program.hpp"
#include "support/resnet50.hpp"

namespace {

namespace sw = shardwise;
using bench::ConvolutionShard;

constexpr std::size_t images = 4;

using Whole = bench::SplitWay<sw::split::none, sw::Invariant, sw::Invariant>;

template <class T, sw::Kernel Form>
std::vector<bench::Timing> measure(const ConvolutionShard& shard, bool training,
                                   const bench::Effort& effort) {
  by_hand::Library library;
  using by_hand::Images;
  by_hand::ConvolutionOf<T> plain(library, shard, Images::as_they_lie);
  by_hand::ConvolutionOf<T> copied(library, shard, Images::as_the_library_likes);
  by_hand::ConvolutionOf<T> last(library, shard, Images::channels_last);
  sw::SingleRank alone;
  using Layer = sw::Conv2d<sw::split::none, sw::dynamic, sw::dynamic, Form>;
  bench::SplitLayer<Whole, Layer, T, sw::SingleRank> layer(
      alone, Layer(shard.inputs(), shard.outputs()), shard.x_shape(), plain);
  const auto run = [training](auto& way) { training ? way.train() : way.forward(); };

  run(plain), run(copied), run(last);
  const bench::ConvolutionOracle<T> oracle(plain, shard, training);
  oracle.require("images as they lie", plain);
  oracle.require("images copied", copied);
  oracle.require("channels last", last);
  for (int use = 0; !training && use < 10; ++use) layer.forward();  // until weights are packed
  layer.require_results(alone, oracle);
  return bench::interleave({{"by hand, images as they lie", [&] { run(plain); }},
                            {"by hand, images copied", [&] { run(copied); }},
                            {"by hand, channels last", [&] { run(last); }},
                            {"layer", [&] { run(layer); }}},
                           effort);
}

template <class T, sw::Kernel Form>
void add_form(bench::Program& program, const std::string& name, const ConvolutionShard& shard) {
  const bench::Effort effort{program.rounds(), 1e-3, bench::Clock::thread};
  program.add(name + "/forward", [=] { return measure<T, Form>(shard, false, effort); });
  program.add(name + "/forward and backward",
              [=] { return measure<T, Form>(shard, true, effort); });
}

template <class T>
void add(bench::Program& program, const std::string& dtype, const bench::ConvolutionShape& shape) {
  const std::string name = dtype + "/" + shape.name();
  const ConvolutionShard shard = bench::whole(shape, images);
  if (shape.kernel == 1 && shape.stride == 1)
    add_form<T, sw::kernel(1)>(program, name, shard);
  else if (shape.kernel == 1)
    add_form<T, sw::kernel(1, {.stride = 2})>(program, name, shard);
  else if (shape.stride == 1)
    add_form<T, sw::kernel(3, {.padding = 1})>(program, name, shard);
  else
    add_form<T, sw::kernel(3, {.stride = 2, .padding = 1})>(program, name, shard);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 11);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  const sw::detail::onednn::ThreadLimit one_thread(1);  // for the calls by hand too
  std::vector<bench::ConvolutionShape> shapes = bench::resnet50();
  shapes.insert(shapes.end(), {{128, 128, 56, 3, 2}, {256, 512, 56, 1, 2}});
  for (const bench::ConvolutionShape& shape : program.sizes(shapes)) {
    bench::ConvolutionShape half = shape;  // what one of two ranks has, split by output
    half.out /= 2;
    add<float>(program, "float", shape);
    add<float>(program, "float", half);
    if (by_hand::multiplies_bf16()) add<sw::bf16>(program, "bf16", shape);
  }
  return program.run();
}
