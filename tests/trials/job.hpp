#pragma once
// A trial in processes of its own.

#include <sys/wait.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "trials/judge.hpp"

namespace trials {

/// A command that runs beside this program, with all that it prints. It is killed after a minute.
class Job {
 public:
  Job(const std::string& command, int ranks, bool is_of_processes = false) {
    std::FILE* pipe =
        ::popen(("exec timeout -k 2 60 " + command + " 2>&1 </dev/null").c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("cannot start " + command);
    ending_ = std::async(std::launch::async, [=] {
      Ending ending{.outcomes = std::vector<Outcome>(static_cast<std::size_t>(ranks)),
                    .is_of_processes = is_of_processes};
      follow(pipe, ending);
      return ending;
    });
  }

  /// Returns when the job has ended.
  Ending wait() { return ending_.get(); }

 private:
  static void follow(std::FILE* pipe, Ending& ending) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point began = Clock::now();
    std::string line;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
      if (c != '\n') {
        line += static_cast<char>(c);
        continue;
      }
      // Who ends the job is not who is at fault.
      const bool is_of_abort = line.find("MPI_ABORT") != std::string::npos ||  // Open MPI, MPICH
                               line.find("MPI_Abort") != std::string::npos;
      if (!is_of_abort && !read_outcome(line, ending.outcomes) &&
          !read_process(line, ending.processes))
        ending.said += line + "\n";
      line.clear();
    }
    const int status = ::pclose(pipe);
    constexpr int of_timeout = 124;
    ending.failed = status != 0;
    ending.in_time = WIFEXITED(status) && WEXITSTATUS(status) != of_timeout;
    ending.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  }

  std::future<Ending> ending_;
};

}  // namespace trials
