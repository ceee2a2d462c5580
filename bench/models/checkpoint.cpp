// Saving and loading the weights of the perceptron 2048 -> 8192 -> 2048 (134 MB in float) at 1, 2
// and 4 thread ranks, against `cat` of the same bytes, and how much memory it takes.
//
//     bench_models_checkpoint [folder] [rounds]
//
// Each measurement is a process of its own, so that its peak is its own, and all take turns.
// Writing ends when the bytes are on the disk (`sync` behind cat). A file is read from the page
// cache, and after it was dropped from there.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/shardwise.hpp"
#include "support/interleaved.hpp"

namespace {

namespace sw = shardwise;

constexpr std::size_t width = 2048, hidden = 8192;

struct Mlp : sw::Sequential<sw::ColumnParallelLinear<width, hidden>, sw::Relu,
                            sw::RowParallelLinear<hidden, width>> {};

using MlpModel = sw::Model<Mlp, sw::Context<float, sw::Reference, sw::ThreadCommunicator>,
                           sw::Ends<sw::Invariant, sw::Invariant>, sw::ForwardOnly>;

/// What one process saw.
struct Measurement {
  double seconds = 0;
  double megabytes = 0;  // peak memory above that of the model
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A line of /proc/self/status, in megabytes.
double memory(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::atof(line.c_str() + std::strlen(key)) / 1000;
  }
  return 0;
}

/// Runs `measure` in a process of its own.
Measurement apart(const std::function<Measurement()>& measure) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const Measurement m = measure();
      ::_exit(::write(ends[1], &m, sizeof m) == sizeof m ? 0 : 1);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ::_exit(1);
    }
  }
  ::close(ends[1]);
  Measurement m;
  const bool came = ::read(ends[0], &m, sizeof m) == sizeof m;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!came || status != 0) std::exit(1);
  return m;
}

/// Time and memory of `call(model)` on `ranks` ranks, from a barrier to a barrier.
template <class Call>
Measurement on_ranks(int ranks, Call&& call) {
  Measurement m;
  sw::run_ranks(ranks, [&](sw::ThreadCommunicator& c) {
    MlpModel model(c, sw::Seed{1});
    c.barrier();
    const double before = memory("VmHWM:");
    const double start = now();
    call(model);
    c.barrier();
    if (c.rank() == 0) m = {now() - start, memory("VmHWM:") - before};
    c.barrier();
  });
  return m;
}

Measurement shell(const std::string& command) {
  const double start = now();
  if (std::system(command.c_str()) != 0) throw sw::data_error("failed: " + command);
  return {now() - start, 0};
}

/// Takes a file out of the page cache.
void drop(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

struct Way {
  std::string name;
  std::function<Measurement()> run;
  std::vector<double> seconds{}, ratio{}, megabytes{};
};

/// Runs the ways in turns, and prints them against the first.
void compare(const std::string& title, double bytes, int rounds, std::vector<Way> ways) {
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    double first = 0;
    for (Way& way : ways) {
      const Measurement m = apart(way.run);
      if (&way == &ways.front()) first = m.seconds;
      if (round < 0) continue;
      way.seconds.push_back(m.seconds);
      way.ratio.push_back(first / m.seconds);
      way.megabytes.push_back(m.megabytes);
    }
  }
  std::printf("%s, %.0f MB\n", title.c_str(), bytes * 1e-6);
  for (const Way& way : ways) {
    const auto seconds = bench::Spread::of(way.seconds);
    const auto ratio = bench::Spread::of(way.ratio);
    std::printf(
        "  %-10s %7.1f ms [%7.1f, %7.1f]  %6.2f GB/s   speed %.2f [%.2f, %.2f]   %+5.0f MB\n",
        way.name.c_str(), seconds.median * 1e3, seconds.p10 * 1e3, seconds.p90 * 1e3,
        bytes * 1e-9 / seconds.median, ratio.median, ratio.p10, ratio.p90,
        bench::Spread::of(way.megabytes).median);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::filesystem::path folder = argc > 1 ? argv[1] : std::filesystem::temp_directory_path();
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 11;
  const auto ours = folder / "bench_checkpoint.safetensors";
  const auto copy = folder / "bench_checkpoint_copy";
  const auto save = [&](int ranks) {
    return on_ranks(ranks, [&](MlpModel& model) { sw::save_weights(ours, model); });
  };
  const auto load = [&](int ranks) {
    return on_ranks(ranks, [&](MlpModel& model) { sw::load_weights(ours, model); });
  };
  apart([&] { return save(1); });
  const double bytes = static_cast<double>(std::filesystem::file_size(ours));
  const std::string from = "'" + ours.string() + "'";
  const std::string to = "'" + copy.string() + "'";

  std::vector<Way> saves{
      {"cat, sync", [&] { return shell("cat " + from + " > " + to + " && sync " + to); }}};
  std::vector<Way> warm{{"cat", [&] { return shell("cat " + from + " > /dev/null"); }}};
  std::vector<Way> cold{{"cat", [&] {
                           drop(ours);
                           return shell("cat " + from + " > /dev/null");
                         }}};
  for (const int ranks : {1, 2, 4}) {
    const std::string name = std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
    saves.push_back({name, [&, ranks] { return save(ranks); }});
    warm.push_back({name, [&, ranks] { return load(ranks); }});
    cold.push_back({name, [&, ranks] {
                      drop(ours);
                      return load(ranks);
                    }});
  }
  compare("save", bytes, rounds, std::move(saves));
  compare("load from the page cache", bytes, rounds, std::move(warm));
  compare("load from the disk", bytes, rounds, std::move(cold));
  std::filesystem::remove(ours);
  std::filesystem::remove(copy);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_models_checkpoint: %s\n", e.what());
  return 1;
}
