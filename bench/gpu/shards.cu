// The eight shards of a layer that eight ranks would split, one after another on one GPU, against
// the whole layer: what splitting products costs besides what is sent. Time of the device between
// two events around many calls.
//
//     bench_gpu_shards [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...

#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "gpu/linear_model.hpp"
#include "gpu/program.hpp"
#include "shardwise/backend/cuda/cuda.hpp"

namespace {

namespace sw = shardwise;
using bench::LinearSizes;

constexpr std::size_t ranks = 8;

/// One rank's part of a layer: by column its block of the outputs, by row its block of the inputs.
template <class Architecture>
LinearSizes shard_of(const LinearSizes& whole) {
  if (Architecture::relu) return {whole.rows, whole.in, whole.out / ranks};
  return {whole.rows, whole.in / ranks, whole.out};
}

template <class Architecture>
std::vector<bench::Timing> measure(sw::Cuda& backend, const LinearSizes& sizes, bool trains,
                                   int rounds) {
  using Layer = bench::LinearModel<Architecture, sw::Cuda, sw::bf16>;
  Layer whole(backend, sizes);
  std::list<Layer> shards;
  for (std::size_t r = 0; r < ranks; ++r)
    shards.emplace_back(backend, shard_of<Architecture>(sizes));
  whole.require_right(trains, 0);
  for (Layer& shard : shards) shard.require_right(trains, 0);

  const std::vector<bench::Candidate> candidates{
      {"whole layer", [&] { trains ? whole.train() : whole.forward(); }},
      {"eight shards", [&] {
         for (Layer& shard : shards) trains ? shard.train() : shard.forward();
       }}};
  return bench::interleave_on(backend.stream(), candidates, rounds);
}

template <class Architecture>
void add(bench::Program& program, sw::Cuda& backend, const LinearSizes& sizes) {
  for (const bool trains : {false, true}) {
    program.add(std::string("bf16/") + Architecture::title + "/" + sizes.name() +
                    (trains ? "/forward and backward" : "/forward"),
                [=, &program, &backend] {
                  return measure<Architecture>(backend, sizes, trains, program.rounds());
                });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_on_gpu(argc, argv, 7, [](bench::Program& program) {
    sw::Cuda backend(sw::CudaOptions{.time_candidates = true});
    struct Widths {
      std::size_t narrow, wide;
    };
    const std::vector<Widths> all{{4096, 14336}, {8192, 28672}, {12288, 49152}};
    for (const Widths& w : program.sizes(all)) {
      for (const std::size_t rows : program.sizes<std::size_t>({2048, 8192})) {
        add<bench::Expand>(program, backend, {rows, w.narrow, w.wide});
        add<bench::Contract>(program, backend, {rows, w.wide, w.narrow});
      }
    }
    return program.run();
  });
}
