#pragma once
// A benchmark program on a GPU: what it says of the machine, and what it does where there is none.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>

#include "shardwise/backend/cuda/cuda.hpp"
#include "support/program.hpp"

namespace bench {

/// "13.0" of 13000.
inline std::string cuda_version(int number) {
  return std::to_string(number / 1000) + '.' + std::to_string(number % 1000 / 10);
}

inline void note_device(Program& program) {
  cudaDeviceProp device{};
  shardwise::detail::cuda::check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  program.note("GPU", device.name);
  program.note("L2 cache MiB", std::to_string(device.l2CacheSize >> 20));
  program.note("CUDA of driver", cuda_version(driver));
  program.note("CUDA runtime", cuda_version(runtime));
  program.note("cuBLASLt", std::to_string(cublasLtGetVersion()));
}

/// main() of a program whose comparisons `add(program)` adds. Returns 77, after a sentence, without
/// a GPU, and 1 if one of them failed.
template <class Add>
int run_on_gpu(int argc, char** argv, int rounds, Add add) {
  Program program(argc, argv, rounds);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU");
    return 77;
  }
  try {
    note_device(program);
    return add(program);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    return 1;
  }
}

/// Of the cache that all of the device's memory goes through.
inline std::size_t cache_bytes() {
  int bytes = 0;
  shardwise::detail::cuda::check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, 0),
                                 "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(bytes);
}

}  // namespace bench
