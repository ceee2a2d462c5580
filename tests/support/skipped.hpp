#pragma once
// How tests leave out what a machine cannot run.

#include <atomic>
#include <cstdio>

namespace testing {

/// Whether the case that runs has left out something.
inline std::atomic<bool> case_leaves_out{false};

/// Prints a line that `./dev test` repeats. A case that does so and checks nothing was left out.
inline void skip(const char* what) {
  case_leaves_out = true;
  std::printf("skipped: %s\n", what);
}

}  // namespace testing
