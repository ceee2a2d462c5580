#pragma once
// Measures in a process of its own, whose peak of memory is then its own.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace bench {

/// What one process saw.
struct Measurement {
  double seconds = 0;
  double megabytes = 0;  // peak memory above that of the model
};

/// The most memory that this process has had so far.
inline double peak_megabytes() {
  constexpr std::string_view key = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::atof(line.c_str() + key.size()) * 1024e-6;
  }
  return 0;
}

/// Runs `measure` in a process of its own.
/// throws   std::runtime_error with the text of what it throws
template <class F>
Measurement apart(F measure) {
  struct Result {
    Measurement measurement;
    char problem[256];
  };
  void* const memory =
      ::mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory to share with a process");
  auto* const result = static_cast<Result*>(memory);  // all zero
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      result->measurement = measure();
      ::_exit(0);
    } catch (const std::exception& e) {
      std::snprintf(result->problem, sizeof result->problem, "%s", e.what());
      ::_exit(1);
    }
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  const Result seen = *result;
  ::munmap(memory, sizeof(Result));
  if (status == 0) return seen.measurement;
  throw std::runtime_error(seen.problem[0] != 0 ? seen.problem
                                                : "a measurement's process ended with status " +
                                                      std::to_string(status));
}

}  // namespace bench
