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
#include <exception>
#include <fstream>
#include <functional>
#include <iomanip>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/linear_model.hpp"
#include "gpu/on_stream.hpp"
#include "peers/turns.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/backend/cuda/graph.hpp"

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

/// Prints the nanoseconds of each call: all of a block are said to take the same.
void take_turns(sw::Cuda& backend, const std::function<void(bool)>& run) {
  std::printf("ready\n");
  std::fflush(stdout);
  for (peers::Turn turn = peers::read_turn(); turn.calls > 0; turn = peers::read_turn()) {
    const auto calls = static_cast<int>(turn.calls);
    for (int i = 0; i <= calls / 4; ++i) run(turn.training != 0);
    backend.synchronize();
    const double begin = bench::now();
    for (int i = 0; i < calls; ++i) run(turn.training != 0);
    backend.synchronize();
    const double seconds = (bench::now() - begin) / calls;
    for (int i = 0; i < calls; ++i) std::printf("%lld ", static_cast<long long>(1e9 * seconds));
    std::printf("\n");
    std::fflush(stdout);
  }
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
    layer.result_of_forward([&] { forward->launch(); }, layer.required("graph, ", 0));
    training.emplace(backend, [&] { layer.train(); });
    layer.results_of_training([&] { training->launch(); }, layer.required("graph, ", 0));
  }
  take_turns(backend, [&](bool trains) {
    if (in_graphs)
      (trains ? *training : *forward).launch();
    else
      trains ? layer.train() : layer.forward();
  });
}

template <class T>
void contend_in(const Words& words) {
  const bool in_graphs = words[1] == "graph";
  const bench::LinearSizes sizes{std::stoul(words[4]), std::stoul(words[5]), std::stoul(words[6])};
  if (words[2] == "expand") return contend<bench::Expand, T>(in_graphs, sizes, words[7]);
  if (words[2] == "contract") return contend<bench::Contract, T>(in_graphs, sizes, words[7]);
  throw std::runtime_error(words[0] + ": there is no layer '" + words[2] +
                           "', only expand and contract");
}

void contend_as(const Words& words) {
  if (words.size() != 8)
    throw std::runtime_error("usage: " + words[0] +
                             " plain|graph expand|contract bf16|fp16|float ROWS IN OUT FOLDER");
  std::printf("version CUDA_runtime %d\n", CUDART_VERSION);
  if (words[3] == "bf16") return contend_in<sw::bf16>(words);
  if (words[3] == "fp16") return contend_in<sw::fp16>(words);
  if (words[3] == "float") return contend_in<float>(words);
  throw std::runtime_error(words[0] + ": there is no dtype '" + words[3] +
                           "', only bf16, fp16 and float");
}

}  // namespace

int main(int argc, char** argv) try {
  contend_as(Words(argv, argv + argc));
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
