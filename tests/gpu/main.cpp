// Runs tests where there is a GPU, and says so where there is none.

#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "support/test_program.hpp"

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    testing::skip("all cases: no GPU");
    return testing::status_skipped;
  }
  const int result = doctest::Context(argc, argv).run();
  return testing::status_of(result, testing::case_counts);
}
