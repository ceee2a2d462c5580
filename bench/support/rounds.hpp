#pragma once
// The command line that benchmarks of oneDNN share, and what they say of the machine first.

#include <oneapi/dnnl/dnnl_debug.h>

#include <cstdio>
#include <cstdlib>

namespace bench {

/// The rounds that `program [rounds]` asks for, 31 by default, or 0 after saying how to use it.
inline int begin_rounds(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 31;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: %s [rounds], rounds at least 1\n", argv[0]);
    return 0;
  }
  std::printf("oneDNN instruction set: %s\n", dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa()));
  return rounds;
}

}  // namespace bench
