// Saving and loading the weights of the perceptron 2048 -> 8192 -> 2048 (134 MB in float) at 1, 2
// and 4 thread ranks, against `cat` of the same bytes, and how much memory it takes.
//
//     TMPDIR=folder bench_models_checkpoint [--rounds=N] [--benchmark_filter=save]
//
// Files lie in the folder for temporary ones, which TMPDIR names. Each measurement is a process of
// its own, so that its peak is its own, and all take turns. Writing ends when the bytes are on the
// disk (`sync` behind cat). A file is read from the page cache, and after it was dropped from
// there.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "models/apart.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/shardwise.hpp"
#include "support/interleaved.hpp"
#include "support/program.hpp"

namespace {

namespace sw = shardwise;
namespace fs = std::filesystem;
using bench::Measurement;

constexpr std::size_t width = 2048, hidden = 8192;

struct Mlp : sw::Sequential<sw::ColumnParallelLinear<width, hidden>, sw::Relu,
                            sw::RowParallelLinear<hidden, width>> {};

using MlpModel = sw::Model<Mlp, sw::Context<float, sw::Reference, sw::ThreadCommunicator>,
                           sw::Ends<sw::Invariant, sw::Invariant>, sw::ForwardOnly>;

/// Time and memory of `call(model)` on `ranks` ranks, from a barrier to a barrier.
template <class Call>
Measurement on_ranks(int ranks, sw::Seed seed, Call&& call) {
  Measurement m;
  sw::run_ranks(ranks, [&](sw::ThreadCommunicator& c) {
    MlpModel model(c, seed);
    c.barrier();
    const double before = bench::peak_megabytes();
    const double start = bench::now();
    call(model);
    c.barrier();
    if (c.rank() == 0) m = {bench::now() - start, bench::peak_megabytes() - before};
    c.barrier();
  });
  return m;
}

Measurement shell(const std::string& command) {
  const double start = bench::now();
  if (std::system(command.c_str()) != 0) throw sw::data_error("failed: " + command);
  return {bench::now() - start, 0};
}

/// Takes a file out of the page cache.
void drop(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

/// The files, removed in the end.
struct Files {
  fs::path ours = fs::temp_directory_path() / "bench_checkpoint.safetensors";
  fs::path copy = fs::temp_directory_path() / "bench_checkpoint_copy";

  Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() {
    std::error_code ignored;
    fs::remove(ours, ignored);
    fs::remove(copy, ignored);
  }
};

/// Throws, in a process of its own, unless what some ranks save is what others then load.
void check(const Files& files, int ranks) {
  bench::apart([&] {
    on_ranks(ranks, sw::Seed{1}, [&](MlpModel& model) { sw::save_weights(files.ours, model); });
    return on_ranks(5 - ranks, sw::Seed{2}, [&](MlpModel& model) {
      MlpModel saved(model.ranks(), sw::Seed{1});
      sw::load_weights(files.ours, model);
      const auto values = model.values(), exact = saved.values();
      if (!std::equal(values.begin(), values.end(), exact.begin(), exact.end()))
        throw sw::data_error("what was loaded is not what was saved");
    });
  });
}

/// What is measured.
struct What {
  const char* name;
  bool saves, cold;
};

/// Runs all ways in turns. Beside time there is the speed, and the peak of memory.
std::vector<bench::Timing> measure(const What& what, int rounds) {
  const Files files;
  const std::vector<int> counts{1, 2, 4};
  for (const int ranks : counts) check(files, ranks);
  const std::string from = "'" + files.ours.string() + "'", to = "'" + files.copy.string() + "'";
  std::vector<std::string> names{what.saves ? "cat, sync" : "cat"};
  std::vector<std::function<Measurement()>> ways{[&] {
    return shell(what.saves ? "cat " + from + " > " + to + " && sync " + to
                            : "cat " + from + " > /dev/null");
  }};
  for (const int ranks : counts) {
    names.push_back(std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"));
    ways.push_back([&, ranks] {
      return on_ranks(ranks, sw::Seed{1}, [&](MlpModel& model) {
        if (what.saves)
          sw::save_weights(files.ours, model);
        else
          sw::load_weights(files.ours, model);
      });
    });
  }
  std::vector<std::vector<double>> megabytes(ways.size());
  const auto run = [&](std::size_t i) {
    if (what.cold) drop(files.ours);
    const Measurement m = bench::apart(ways[i]);
    megabytes[i].push_back(m.megabytes);
    return m.seconds;
  };
  for (std::size_t i = 0; i < ways.size(); ++i) run(i);  // warms up
  std::vector<bench::Timing> timings =
      bench::timings_of(names, bench::in_rounds(ways.size(), rounds, run));
  const double bytes = static_cast<double>(fs::file_size(files.ours));
  for (std::size_t i = 0; i < timings.size(); ++i)
    timings[i].also = {{"GB/s", bytes * 1e-9 / timings[i].seconds.median},
                       {"MB above the model", bench::Spread::of(megabytes[i]).median}};
  return timings;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 7);
  for (const What& what :
       program.sizes<What>({{"checkpoint/save", true, false},
                            {"checkpoint/load from the page cache", false, false},
                            {"checkpoint/load from the disk", false, true}}))
    program.add(what.name, [=, &program] { return measure(what, program.rounds()); });
  return program.run();
}
