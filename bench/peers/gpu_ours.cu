// Ours as a contender on a GPU; see turns.hpp for what it reads and prints.
//
//     peer_gpu plain|graph expand|contract bf16|fp16|float ROWS IN OUT FOLDER
//
// `graph` launches CUDA graphs. Weights, input and gradient are those of gpu/uniform.hpp. For each
// result it writes FOLDER/<result>.txt: places drawn at random, and what is exact there, summed by
// a loop in double. Times are wall time from an idle device to an idle device, around a block of
// calls.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/linear_model.hpp"
#include "peers/turns.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/backend/cuda/graph.hpp"
#include "support/interleaved.hpp"

namespace {

namespace sw = shardwise;
using Words = std::vector<std::string>;

/// |got - exact| / |exact| of the samples.
double difference(const std::vector<bench::Sample>& samples) {
  double apart = 0, all = 0;
  for (const bench::Sample& sample : samples) {
    apart += (sample.got - sample.exact) * (sample.got - sample.exact);
    all += sample.exact * sample.exact;
  }
  return std::sqrt(apart / all);
}

void write(const std::string& file, const std::vector<bench::Sample>& samples) {
  std::ofstream out(file);
  for (const bench::Sample& sample : samples)
    out << sample.place << ' ' << std::setprecision(17) << sample.exact << '\n';
  if (!out.flush()) throw std::runtime_error(file + " cannot be written");
}

template <class Architecture, class T>
void contend(bool in_graphs, const bench::LinearSizes& sizes, const std::string& folder) {
  sw::Cuda backend(sw::CudaOptions{.time_candidates = true});
  bench::LinearModel<Architecture, sw::Cuda, T> layer(backend, sizes);
  layer.each_result(true, [&](const std::string& name, const bench::SampledProduct<T>& product) {
    const std::vector<bench::Sample> samples = bench::samples_of(backend, product);
    bench::require_right<T>(name, samples, product.terms);
    write(folder + "/" + name + ".txt", samples);
    std::printf("difference %s %.3g\n", name.c_str(), difference(samples));
  });
  std::optional<sw::CudaGraph> forward, training;
  if (in_graphs) {
    forward.emplace(backend, [&] { layer.forward(); });
    layer.result_of_forward([&] { forward->launch(); }, bench::required(backend, "graph, ", 0));
    training.emplace(backend, [&] { layer.train(); });
    layer.results_of_training([&] { training->launch(); }, bench::required(backend, "graph, ", 0));
  }
  peers::take_blocks(true, peers::read_turn, [&](bool trains, std::int64_t calls) {
    backend.synchronize();
    const double begin = bench::now();
    for (std::int64_t i = 0; i < calls; ++i) {
      if (in_graphs)
        (trains ? *training : *forward).launch();
      else
        trains ? layer.train() : layer.forward();
    }
    backend.synchronize();
    const double each = 1e9 * (bench::now() - begin) / static_cast<double>(calls);
    return std::vector<std::int64_t>(static_cast<std::size_t>(calls),
                                     static_cast<std::int64_t>(each));
  });
}

template <class T>
void contend_in(const Words& words) {
  const bench::LinearSizes sizes{std::stoul(words[4]), std::stoul(words[5]), std::stoul(words[6])};
  const auto contender =
      words[2] == "expand" ? contend<bench::Expand, T> : contend<bench::Contract, T>;
  contender(words[1] == "graph", sizes, words[7]);
}

}  // namespace

int main(int argc, char** argv) {
  const Words words(argv, argv + argc);
  return peers::contend_alone([&] {
    if (words.size() != 8)
      throw std::runtime_error("usage: " + words[0] +
                               " plain|graph expand|contract bf16|fp16|float ROWS IN OUT FOLDER");
    std::printf("version CUDA_runtime %d\n", CUDART_VERSION);
    if (words[3] == "bf16") return contend_in<sw::bf16>(words);
    if (words[3] == "fp16") return contend_in<sw::fp16>(words);
    return contend_in<float>(words);
  });
}
