// Which way to split a matrix product over ranks is the fastest, at which shape, on how many ranks,
// and how much of the time goes into sending. docs/splitting.md shows how to read it.
//
//     shardwise-split --shapes=512x4096x1024 --ranks=1,2,4 --benchmark_out=results.json
//     mpiexec -n 2 shardwise-split-mpi --shapes=512x4096x1024 --benchmark_out=results.json

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "split/engine.hpp"
#include "split/ranks.hpp"
#include "split/shapes.hpp"
#include "support/program.hpp"
#include "support/together.hpp"

namespace {

/// What the command line says.
struct Options {
  std::vector<std::string> shapes, presets;
  split::PresetSizes sizes;
  std::vector<int> ranks;  // none: as many as the launcher has
  std::vector<std::string> dtypes{"float"}, backends{""};
};

void add_options(CLI::App& app, Options& o) {
  const auto list = [&](const std::string& name, auto& values, const std::string& text) {
    return app.add_option(name, values, text)->delimiter(',');
  };
  list("--shapes", o.shapes, "rows x in x out, such as 512x4096x1024");
  list("--preset", o.presets, "shapes of a network: " + split::names_of_presets());
  list("--rows", o.sizes.rows, "rows of the presets gpt3, llama-70b and mlp [512]")
      ->check(CLI::Range(1, 999999999));
  app.add_option("--shrink", o.sizes.shrink, "divide in and out of presets by this [1]")
      ->check(CLI::Range(1, 1000000));
  list("--ranks", o.ranks, "how many [1,2]; processes are as many as mpiexec has started")
      ->check(CLI::Range(1, 1024));
  list("--dtypes", o.dtypes, "float, bf16 or double [float]");
  list("--backends", o.backends, "onednn, cblas or reference; else the fastest of each dtype");
  app.allow_extras();  // for Google Benchmark
  app.footer(
      "  --rounds=15              how often everything is measured, in turns\n"
      "  --benchmark_filter=      comparisons whose name this regular expression finds\n"
      "  --benchmark_out=         also write JSON, which bench/tables.py and docs/plots/split.py "
      "read\n\n"
      "Lists have commas between their members. docs/splitting.md says what is measured.");
}

/// The engine of a dtype by this backend, or if it is empty the fastest one.
/// throws   std::runtime_error if there is none
const split::Engine& engine_of(const std::string& dtype, const std::string& backend) {
  const split::Engine* best = nullptr;
  for (const split::Engine& engine : split::engines())
    if (engine.dtype == dtype && (backend.empty() || engine.backend == backend) &&
        (best == nullptr || engine.preference < best->preference))
      best = &engine;
  if (best == nullptr)
    throw std::runtime_error("no backend '" + backend + "' of this program computes in '" + dtype +
                             "'; docs/backends.md says what each one needs and computes");
  return *best;
}

std::vector<split::NamedShape> shapes_of(const Options& o) {
  std::vector<split::NamedShape> shapes;
  for (const std::string& text : o.shapes) shapes.push_back(split::parse_shape(text));
  for (const std::string& name : o.presets)
    for (const split::NamedShape& shape : split::preset(name, o.sizes)) shapes.push_back(shape);
  if (shapes.empty())
    throw std::runtime_error("no shape to measure: name some by --shapes= or --preset= (" +
                             split::names_of_presets() + ")");
  return shapes;
}

std::vector<const split::Engine*> engines_of(const Options& o) {
  std::vector<const split::Engine*> engines;
  for (const std::string& dtype : o.dtypes)
    for (const std::string& backend : o.backends) engines.push_back(&engine_of(dtype, backend));
  return engines;
}

/// Bytes that measuring takes at most: three models, whose weights backends may pack once more, and
/// what each rank reads and writes.
double memory_of(const split::Problem& p, int ranks, std::size_t element_bytes) {
  const auto rows = static_cast<double>(p.rows), in = static_cast<double>(p.in),
             out = static_cast<double>(p.out);
  return (6 * (p.is_pair ? 2 : 1) * in * out + 8 * (ranks + 1) * rows * (in + out)) *
         static_cast<double>(element_bytes);
}

/// Bytes that programs may still take, or 0 if the system does not say.
double available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("MemAvailable:"))
      return 1024 * std::strtod(line.c_str() + line.find(':') + 1, nullptr);
  return 0;
}

/// Throws on every rank if the machine has not the memory.
void require_memory(split::Ranks& ranks, double needed) {
  const double available = available_memory();
  if (bench::of_first(ranks, available > 0 && needed > 0.9 * available ? 1 : 0) == 0) return;
  const auto gib = [](double bytes) { return std::to_string(bytes / (1 << 30)) + " GiB"; };
  throw std::runtime_error("it may take " + gib(needed) + ", and the machine has " +
                           gib(available) + " left");
}

using Peaks = std::map<std::pair<std::string, int>, double>;  // of a dtype, on so many ranks

std::vector<bench::Timing> measure(split::Transport& transport, const split::Engine& engine,
                                   const split::Problem& problem, int rounds, Peaks& peaks) {
  split::Ranks ranks(transport);
  require_memory(ranks, memory_of(problem, ranks.size(), engine.element_bytes));
  const std::pair key(engine.dtype, ranks.size());
  const bool is_first = ranks.rank() == 0;
  double peak = 0;
  if (bench::of_first(ranks, is_first && !peaks.contains(key) ? 1 : 0) != 0) {
    peak = engine_of(engine.dtype, "").peak(ranks);
    if (is_first) peaks[key] = peak;
  }
  return engine.measure(ranks, problem, rounds, is_first ? peaks[key] : peak);
}

/// `words` are those of the command line that are Google Benchmark's, behind the program's name.
int run(const Options& options, std::vector<char*> words, const split::Launcher& launcher) try {
  const std::vector<split::NamedShape> shapes = shapes_of(options);
  const std::vector<const split::Engine*> engines = engines_of(options);
  const std::vector<int> counts = options.ranks.empty() ? launcher.counts() : options.ranks;
  int argc = static_cast<int>(words.size());
  words.push_back(nullptr);
  if (!launcher.is_first()) bench::take_option(argc, words.data(), "--benchmark_out=");
  bench::Program program(argc, words.data(), 15);
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  program.note("ranks are", split::communicator);
  program.note("cores", std::to_string(cores));
  if (static_cast<unsigned>(*std::max_element(counts.begin(), counts.end())) > cores)
    program.note("more ranks than cores", "their times tell how crowded it is");
  Peaks peaks;
  for (const int count : counts)
    for (const split::Engine* engine : engines)
      for (const split::NamedShape& shape : shapes)
        for (const bool is_pair : {false, true}) {
          const split::Problem problem{shape.rows, shape.in, shape.out, is_pair};
          program.add(shape.title() + (is_pair ? ", pair, " : ", layer, ") + std::to_string(count) +
                          " ranks, " + engine->dtype + " by " + engine->backend,
                      [=, &launcher, &peaks, &program] {
                        return launcher.on(count, [&](split::Transport& all) {
                          return measure(all, *engine, problem, program.rounds(), peaks);
                        });
                      });
        }
  return program.run(!launcher.is_first());
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s: %s\n", words[0], e.what());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures ways to split a matrix product over ranks.");
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  std::vector<std::string> rest = app.remaining();
  std::vector<char*> words{argv[0]};
  for (std::string& word : rest) words.push_back(word.data());
  return split::launch(
      [&](const split::Launcher& launcher) { return run(options, words, launcher); });
}
