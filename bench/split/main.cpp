// Which way to split a matrix product over ranks is the fastest, at which shape, on how many ranks,
// and how much of the time goes into sending. docs/splitting.md shows how to read it.
//
//     shardwise-split -s 512x4096x1024 -r 1,2,4 -o results.csv
//     mpiexec -n 2 shardwise-split-mpi -s 512x4096x1024 -o results.csv --resume

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <list>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "split/engine.hpp"
#include "split/machine.hpp"
#include "split/options.hpp"
#include "split/ranks.hpp"
#include "split/report.hpp"
#include "split/result_file.hpp"
#include "support/together.hpp"

namespace {

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);

/// The first signal lets the rows that are there be; the second one ends the program.
extern "C" void on_signal(int number) {
  stop = true;
  std::signal(number, SIG_DFL);
}

/// What rank 0 knows and writes to. Lives through all numbers of ranks.
struct Session {
  const split::Options& options;
  const std::vector<split::NamedShape> shapes = split::shapes_of(options);
  std::string note{};  // about dtypes that backends lack
  const std::vector<const split::Engine*> engines = split::engines_of(options, note);
  std::list<split::ResultFile> files{};
  const std::string cpu = split::cpu_name();
  split::Progress progress{engines.size() * shapes.size() * 2 *
                           std::max<std::size_t>(1, options.ranks.size())};
  std::size_t measured = 0, kept = 0;

  void open_files() {
    using File = split::ResultFile;
    const auto if_there = options.resume      ? File::If_there::resume
                          : options.overwrite ? File::If_there::overwrite
                                              : File::If_there::refuse;
    for (const std::string& path : options.outputs) files.emplace_back(path, if_there);
  }

  bool has(const split::Job& job) const {
    const split::Row group = job.group();
    return !files.empty() && std::all_of(files.begin(), files.end(),
                                         [&](const auto& file) { return file.has(group); });
  }
};

std::vector<split::Job> jobs_of(const Session& session, int ranks) {
  std::vector<split::Job> jobs;
  for (const split::Engine* engine : session.engines)
    for (const split::NamedShape& shape : session.shapes)
      for (const bool is_pair : {false, true}) jobs.push_back({shape, is_pair, ranks, engine});
  return jobs;
}

/// Bytes that measuring takes at most: three models, whose weights backends may pack once more, and
/// what each rank reads and writes.
double memory_of(const split::Job& job) {
  const auto [rows, in, out, is_pair] = job.problem();
  const double weights =
      6.0 * (is_pair ? 2 : 1) * static_cast<double>(in) * static_cast<double>(out);
  const double values =
      8.0 * (job.ranks + 1) * static_cast<double>(rows) * static_cast<double>(in + out);
  return (weights + values) * static_cast<double>(job.engine->element_bytes);
}

/// Whether to measure a job, as rank 0 sees it.
bool is_to_measure(Session& session, const split::Job& job) {
  if (session.has(job)) {
    ++session.kept;
    return false;
  }
  const double available = split::available_memory();
  if (available == 0 || memory_of(job) <= 0.9 * available) return true;
  std::fprintf(
      stderr, "%s: %s is left out: it may take %s, and the machine has %s left%s\n", split::program,
      title_of(job).c_str(), split::with_unit(memory_of(job)).c_str(),
      split::with_unit(available).c_str(),
      session.options.presets.empty() ? "" : "; --shrink 4 measures a fourth of its width");
  return false;
}

void measure_all(split::Ranks& ranks, Session& session) {
  const bool speaks = ranks.rank() == 0;
  const std::vector<split::Job> jobs = jobs_of(session, ranks.size());
  std::vector<std::uint8_t> wanted(jobs.size(), 0);
  if (speaks)
    std::transform(jobs.begin(), jobs.end(), wanted.begin(), [&](const split::Job& job) {
      return static_cast<std::uint8_t>(is_to_measure(session, job) ? 1 : 0);
    });
  ranks.broadcast(std::span(wanted), 0);
  std::map<std::string, double> peak;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (wanted[i] == 0) {
      if (speaks) session.progress.skip();
      continue;
    }
    if (bench::of_first(ranks, stop.load() ? 1 : 0) != 0) return;
    const split::Job& job = jobs[i];
    const std::string& dtype = job.engine->dtype;
    if (speaks) session.progress.begin(job);
    if (peak.count(dtype) == 0) peak[dtype] = split::best_engine(dtype).peak(ranks);
    const double load = split::load();
    const auto ways = job.engine->measure(ranks, job.problem(), session.options.effort);
    if (!speaks || ways.empty()) continue;
    const auto rows = split::rows_of(job, ways, {session.cpu, load, peak[dtype]});
    for (split::ResultFile& file : session.files) file.add(rows);
    session.progress.clear();
    print_table(job, rows);
    ++session.measured;
  }
}

void note_crowded(const std::vector<int>& counts, unsigned cores) {
  for (const int count : counts) {
    if (static_cast<unsigned>(count) <= cores) continue;
    std::fprintf(stderr,
                 "%s: note: %d ranks share %u cores: their times tell how crowded it is, not how "
                 "fast as many cores are\n",
                 split::program, count, cores);
  }
}

void note_environment() {
  for (const char* name : {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"})
    if (const char* value = std::getenv(name))
      std::fprintf(stderr, "%s: note: %s is set to %s, which may slow OpenBLAS down\n",
                   split::program, name, value);
}

int measure(const split::Options& options) {
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  Session session{options};
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  bool begun = false, is_first = false;
  split::launch(options.ranks, [&](split::Transport& transport) {
    split::Ranks ranks(transport);
    if (ranks.rank() == 0 && !begun) {
      session.open_files();
      std::fputs(session.note.c_str(), stderr);
      note_crowded(options.ranks.empty() ? std::vector<int>{ranks.size()} : options.ranks, cores);
      note_environment();
      split::print_head(session.cpu, cores);
      begun = is_first = true;
    }
    if (bench::of_first(ranks, stop ? 1 : 0) == 0) measure_all(ranks, session);
  });
  if (!is_first) return 0;
  if (session.kept > 0)
    std::fprintf(stderr, "%s: %zu groups of rows were there already\n", split::program,
                 session.kept);
  if (stop) {
    std::fprintf(stderr, "%s: interrupted after %zu groups of rows; %s\n", split::program,
                 session.measured,
                 session.files.empty() ? "-o keeps them in a file" : "--resume measures the rest");
    return 130;
  }
  return session.measured + session.kept == 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) try {
  split::Options options;
  CLI::App app("Measures ways to split matrix products over ranks, and which is the fastest.");
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  if (options.ranks.empty()) options.ranks = split::default_counts;
  options.effort.stop = &stop;
  return measure(options);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s: %s\n", split::program, e.what());
  return 1;
}
