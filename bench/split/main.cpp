// Which way to split a matrix product over ranks is the fastest, at which shape, on how many ranks,
// and how much of the time goes into sending. docs/splitting.md shows how to read it.
//
//     shardwise-split --shapes=512x4096x1024 --ranks=1,2,4 --benchmark_out=results.json
//     mpiexec -n 2 shardwise-split-mpi --shapes=512x4096x1024 --benchmark_out=results.json

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <sstream>
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

constexpr const char* usage = R"(usage: %s --shapes=LIST | --preset=LIST [options]

  --shapes=512x4096x1024  rows x in x out
  --preset=mlp            shapes of a network: %s
  --rows=512              rows of the presets gpt3, llama-70b and mlp
  --shrink=1              divide in and out of presets by this
  --ranks=1,2             how many; processes are as many as mpiexec has started
  --dtypes=float          float, bf16 or double
  --backends=             onednn, cblas or reference; else the fastest of each dtype
  --rounds=15             how often everything is measured, in turns
  --benchmark_filter=     comparisons whose name this regular expression finds
  --benchmark_out=        also write JSON, which bench/tables.py and docs/plots/split.py read

Lists have commas between their members. docs/splitting.md says what is measured.
)";

struct Options {
  std::vector<split::NamedShape> shapes;
  std::vector<int> ranks;
  std::vector<const split::Engine*> engines;
};

std::vector<std::string> listed(int& argc, char** argv, const char* option) {
  std::istringstream list{std::string(bench::take_option(argc, argv, option).value_or(""))};
  std::vector<std::string> words;
  for (std::string word; std::getline(list, word, ',');) words.push_back(word);
  return words;
}

/// throws   std::runtime_error for what is no number from 1 to `most`
template <class T>
std::vector<T> numbers(int& argc, char** argv, const std::string& option, int most) {
  std::vector<T> all;
  for (const std::string& word : listed(argc, argv, option.c_str())) {
    const int number = bench::number_of(word);
    if (number < 1 || number > most)
      throw std::runtime_error(option + word + " is no number from 1 to " + std::to_string(most));
    all.push_back(static_cast<T>(number));
  }
  return all;
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

Options options_of(int& argc, char** argv, const std::vector<int>& counts) {
  Options o;
  for (const std::string& text : listed(argc, argv, "--shapes="))
    o.shapes.push_back(split::parse_shape(text));
  split::PresetSizes sizes;
  if (const auto rows = numbers<std::size_t>(argc, argv, "--rows=", 1000000000); !rows.empty())
    sizes.rows = rows;
  if (const auto by = numbers<std::size_t>(argc, argv, "--shrink=", 1000000); !by.empty())
    sizes.shrink = by.back();
  for (const std::string& name : listed(argc, argv, "--preset="))
    for (const split::NamedShape& shape : split::preset(name, sizes)) o.shapes.push_back(shape);
  if (o.shapes.empty())
    throw std::runtime_error("no shape to measure: name some by --shapes= or --preset= (" +
                             split::names_of_presets() + ")");
  o.ranks = numbers<int>(argc, argv, "--ranks=", 1024);
  if (o.ranks.empty()) o.ranks = counts;
  std::vector<std::string> dtypes = listed(argc, argv, "--dtypes=");
  std::vector<std::string> backends = listed(argc, argv, "--backends=");
  if (dtypes.empty()) dtypes = {"float"};
  if (backends.empty()) backends = {""};
  for (const std::string& dtype : dtypes)
    for (const std::string& backend : backends) o.engines.push_back(&engine_of(dtype, backend));
  return o;
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

int run(int argc, char** argv, const split::Launcher& launcher) try {
  const Options options = options_of(argc, argv, launcher.counts());
  if (!launcher.is_first()) bench::take_option(argc, argv, "--benchmark_out=");
  bench::Program program(argc, argv, 15);
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  program.note("ranks are", split::communicator);
  program.note("cores", std::to_string(cores));
  if (options.ranks.end() != std::find_if(options.ranks.begin(), options.ranks.end(),
                                          [&](int n) { return static_cast<unsigned>(n) > cores; }))
    program.note("more ranks than cores", "their times tell how crowded it is");
  Peaks peaks;
  for (const int count : options.ranks)
    for (const split::Engine* engine : options.engines)
      for (const split::NamedShape& shape : options.shapes)
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
  std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (bench::take_option(argc, argv, "-h") || bench::take_option(argc, argv, "--help")) {
    std::printf(usage, argv[0], split::names_of_presets().c_str());
    return 0;
  }
  return split::launch([&](const split::Launcher& launcher) { return run(argc, argv, launcher); });
}
