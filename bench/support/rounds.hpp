#pragma once
// The command line that benchmarks of oneDNN share, and what they say of the machine first.

#include <oneapi/dnnl/dnnl_debug.h>

#include <cstdio>
#include <cstdlib>

namespace bench {

/// The rounds that `program [rounds]` asks for, or 0 after saying how to use it; `more` are further
/// arguments of the program.
inline int begin_rounds(int argc, char** argv, int by_default = 31, const char* more = "") {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : by_default;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: %s [rounds%s], rounds at least 1\n", argv[0], more);
    return 0;
  }
  std::printf("oneDNN instruction set: %s\n", dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa()));
  return rounds;
}

}  // namespace bench
