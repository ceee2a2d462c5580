#pragma once
// Measures in a process of its own, whose peak of memory is then its own.

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

/// The most memory that this process has had so far.
inline double peak_megabytes() {
  constexpr std::string_view key = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::atof(line.c_str() + key.size()) * 1024e-6;
  }
  return 0;
}

/// Sends what `measure` measures, or what it throws, and ends the process: with 0 if it measured.
[[noreturn]] inline void measure_and_end(int to, const std::function<Measurement()>& measure) {
  const auto send = [to](const void* bytes, std::size_t n) {
    return ::write(to, bytes, n) == static_cast<ssize_t>(n);
  };
  try {
    const Measurement m = measure();
    ::_exit(send(&m, sizeof m) ? 0 : 1);
  } catch (const std::exception& e) {
    const std::string_view why = e.what();
    send(why.data(), why.size());
    ::_exit(1);
  }
}

/// Runs `measure` in a process of its own.
/// throws   std::runtime_error with the text of what it throws
inline Measurement apart(const std::function<Measurement()>& measure) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) measure_and_end(ends[1], measure);
  ::close(ends[1]);
  std::string came;
  char part[256];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;)
    came.append(part, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  Measurement m;
  if (status == 0 && came.size() == sizeof m) {
    std::memcpy(&m, came.data(), sizeof m);
    return m;
  }
  if (came.empty()) came = "a measurement's process ended with status " + std::to_string(status);
  throw std::runtime_error(came);
}

}  // namespace bench
