#pragma once
// Measures in a process of its own, whose peak of memory is then its own.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace bench {

/// What one process saw.
struct Measurement {
  double seconds = 0;
  double megabytes = 0;  // peak memory above that of the model
};

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The most memory that this process has had so far.
inline double peak_megabytes() {
  constexpr std::string_view key = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::atof(line.c_str() + key.size()) / 1000;
  }
  return 0;
}

/// Runs `measure` in a process of its own, which says itself what it throws.
/// throws   std::runtime_error if it does
inline Measurement apart(const std::function<Measurement()>& measure) {
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
  if (!came || status != 0) throw std::runtime_error("a measurement failed");
  return m;
}

}  // namespace bench
