// How many times as fast oneDNN is as the readable loops of Reference, at one small shape each of a
// linear layer and of a convolution, in float. One thread, and the time of that thread alone.
//
//     bench_kernels_reference [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...

#include "shardwise/backend/reference.hpp"

#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "kernels/convolution_kernel.hpp"
#include "kernels/linear_layer.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "support/interleaved.hpp"
#include "support/program.hpp"
#include "support/resnet50.hpp"

namespace {

namespace sw = shardwise;

std::vector<bench::Timing> linear(bench::LinearProduct product, const bench::Effort& effort) {
  constexpr bench::LinearShape shape{64, 256, 256};
  bench::LinearLayer<sw::Reference, float> loops(shape);
  bench::LinearLayer<sw::OneDnn, float> onednn(shape);
  onednn.settle();
  const bench::Candidate fast{"OneDnn", [&] { onednn.run(product); }};
  onednn.require(product, {fast});
  return bench::interleave({{"Reference", [&] { loops.run(product); }}, fast}, effort);
}

std::vector<bench::Timing> convolution(bool training, const bench::Effort& effort) {
  const auto shard = bench::whole({64, 64, 14, 3}, 4);
  by_hand::Library library;
  const by_hand::Convolution tensors(library, shard, by_hand::Images::as_they_lie);
  bench::ConvolutionKernel<sw::Reference, float> loops(tensors, shard);
  bench::ConvolutionKernel<sw::OneDnn, float> onednn(tensors, shard);
  const auto run = [training](auto& kernel) { training ? kernel.train() : kernel.forward(); };
  run(onednn);
  bench::ConvolutionOracle<float>(tensors, shard, training).require("OneDnn", onednn);
  return bench::interleave({{"Reference", [&] { run(loops); }}, {"OneDnn", [&] { run(onednn); }}},
                           effort);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 11);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  const bench::Effort effort{program.rounds(), 1e-3, bench::Clock::thread};
  for (const auto product : {bench::LinearProduct::forward, bench::LinearProduct::backward_input,
                             bench::LinearProduct::backward_weight})
    program.add("linear/" + name(product) + "/rows:64/256->256",
                [=] { return linear(product, effort); });
  program.add("convolution/forward/3x3, 64 -> 64 channels, 14x14",
              [=] { return convolution(false, effort); });
  program.add("convolution/forward and backward/3x3, 64 -> 64 channels, 14x14",
              [=] { return convolution(true, effort); });
  return program.run();
}
