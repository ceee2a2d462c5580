#pragma once
// Processes of a test, made by fork.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

namespace testing {

/// Runs f(rank) in a process each, except for rank 0, which runs in this one. Returns how many of
/// the others ended with true. What f throws in this process comes out when all have ended.
inline int run_in_processes(int ranks, const std::function<bool(int)>& f) {
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool right = false;
      try {
        right = f(rank);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
      }
      std::_Exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  std::exception_ptr thrown;
  bool right = false;
  try {
    right = f(0);
  } catch (...) {
    thrown = std::current_exception();
  }
  int successes = right ? 1 : 0;
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    successes += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : 0;
  }
  if (thrown) std::rethrow_exception(thrown);
  return successes;
}

}  // namespace testing
