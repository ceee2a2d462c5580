// Runs random programs, each with a random fault, until COUNT of the faults had an effect. Prints a
// table, writes it as JSON too, and fails if a fault was not told as it should.
//
//   trials threads COUNT [FIRST [JSON]]           on thread ranks, under nvcc on those that share a
//                                                 GPU; seeds from FIRST on
//   trials mpi COUNT FIRST JSON RANKS COMMAND     on 2 to RANKS processes: runs `COMMAND -n P RANK
//                                                 SEED RANKS`, where RANK is $TRIALS_RANK
//   trials one SEED                               prints what each thread rank of a program says
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/core/sentence.hpp"
#include "support/temporary_folder.hpp"
#include "trials/figures.hpp"
#include "trials/job.hpp"
#include "trials/judge.hpp"
#include "trials/outcome.hpp"
#include "trials/program.hpp"
#include "trials/thread_trial.hpp"
#include "trials/training.hpp"

#ifdef __CUDACC__
#include "trials/on_gpu.hpp"
#endif

namespace trials {

#ifdef __CUDACC__
using Setting = SharedGpu;
constexpr const char* setting_name = "threads that share a GPU";
#else
struct Setting {
  using Training = trials::Training<shardwise::ThreadCommunicator>;
  template <class F>
  static void call(shardwise::ThreadCommunicator& threads, const F& f) {
    f(threads);
  }
};
constexpr const char* setting_name = "threads";
#endif

constexpr std::chrono::seconds timeout{1};
constexpr std::chrono::seconds timeout_of_processes{3};

Program program_of(std::uint64_t seed) { return random_program(seed, 8, faults_of_threads); }

int run_one(std::uint64_t seed) {
  const testing::TemporaryFolder folder("trials");
  const Program p = program_of(seed);
  print(stdout, p.text() + "\n");
  const bool failed = run<Setting>(p, timeout, folder.path(), [](int rank, const Outcome& outcome) {
    print(stdout, line_of(rank, outcome));
  });
  return failed ? 1 : 0;
}

/// Ends this program if a trial hangs in spite of the time-outs. Waiting is counted in polls, so
/// that a program which was stopped for a while does not end.
class HangWatch {
 public:
  HangWatch() : thread_([this](const std::stop_token& end) { poll(end); }) {}

  void begin(std::uint64_t seed) {
    seed_ = seed;
    polls_left_ = 3 * hang / interval / 2;  // before the ranks end the process without its seed
  }
  void end() { polls_left_ = 0; }

 private:
  static constexpr std::chrono::milliseconds interval{100};

  void poll(const std::stop_token& end) {
    for (; !end.stop_requested(); std::this_thread::sleep_for(interval)) {
      long left = polls_left_;
      if (left == 0 || !polls_left_.compare_exchange_strong(left, left - 1) || left > 1) continue;
      std::fprintf(stderr, "trials: seed %ju does not end\n", static_cast<std::uintmax_t>(seed_));
      ::_exit(1);
    }
  }

  std::atomic<std::uint64_t> seed_ = 0;
  std::atomic<long> polls_left_ = 0;
  std::jthread thread_;  // the last one, as it uses the others
};

/// Set by SIGINT and SIGTERM: then the table is of what was run.
volatile std::sig_atomic_t stopped = 0;

/// Calls start(seed, jobs) for one seed after the other, which runs its program, or adds a job.
template <class Start>
int run_many(Figures& figures, std::size_t count, std::uint64_t first, std::size_t most_jobs,
             const Start& start) {
  std::deque<std::pair<Program, Job>> jobs;
  std::uint64_t seed = first;
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, [](int) { stopped = 1; });
  while (figures.judged() < count && stopped == 0) {
    if (jobs.size() == most_jobs || figures.judged() + jobs.size() == count) {
      figures.add(jobs.front().first, jobs.front().second.wait());
      jobs.pop_front();
    } else {
      start(seed++, jobs);
    }
  }
  return figures.print() && stopped == 0 ? 0 : 1;
}

int run_threads(const std::string& self, std::size_t count, std::uint64_t first, const char* json) {
  const testing::TemporaryFolder folder("trials");
  Figures figures(setting_name, json);
  HangWatch watch;
  return run_many(figures, count, first, 8, [&](std::uint64_t seed, auto& jobs) {
    const Program p = program_of(seed);
    if (p.fault == Fault::never_comes) {
      // Its ranks end the process, which then leaves its folder behind.
      jobs.emplace_back(p, Job(shardwise::detail::sentence({"env TMPDIR='", folder.path().string(),
                                                            "' ", self, " one ", seed}),
                               p.ranks));
      return;
    }
    watch.begin(seed);
    figures.add(p, run_here<Setting>(p, folder.path()));
    watch.end();
  });
}

int run_processes(std::size_t count, std::uint64_t first, const char* json, int most_ranks,
                  const std::string& command) {
  ::setenv("SHARDWISE_TIMEOUT", std::to_string(timeout_of_processes.count()).c_str(), 1);
  const testing::TemporaryFolder folder("trials");
  Figures figures("processes", json);
  return run_many(figures, count, first, 2, [&](std::uint64_t seed, auto& jobs) {
    const Program p = random_program(seed, most_ranks, fault_names.size());
    // A folder of its own: one launcher of Open MPI may remove what another is about to use.
    const std::filesystem::path own = folder.path() / std::to_string(seed);
    std::filesystem::create_directory(own);
    jobs.emplace_back(
        p, Job(shardwise::detail::sentence({"env TMPDIR='", own.string(), "' ", command, " -n ",
                                            p.ranks, " \"$TRIALS_RANK\" ", seed, " ", most_ranks}),
               p.ranks, true));
  });
}

}  // namespace trials

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  const auto number = [&](int i) { return argc > i ? std::strtoull(argv[i], nullptr, 10) : 0; };
  const char* const json = argc > 4 ? argv[4] : nullptr;
  if (mode == "one") return trials::run_one(number(2));
  if (mode == "threads") return trials::run_threads(argv[0], number(2), number(3), json);
  if (mode == "mpi" && argc == 7)
    return trials::run_processes(number(2), number(3), json, static_cast<int>(number(5)), argv[6]);
  std::fprintf(stderr, "usage: see the head of tests/trials/trials.cpp\n");
  return 2;
}
