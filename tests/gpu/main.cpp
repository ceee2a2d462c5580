// Runs tests where there is a GPU, and says so where there is none.

#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "support/test_program.hpp"

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  int devices = 0;
  const bool has_gpu = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  const char* const count = "--count";  // the cases that fit, instead of running them
  if (!has_gpu) context.applyCommandLine(1, &count);
  const int status = testing::status_of(context.run(), testing::case_counts);
  if (status != 0 || has_gpu) return status;
  testing::skip("all cases: no GPU");
  return testing::status_skipped;
}
