#pragma once
// A benchmark program on a GPU: what it says of the machine, what it does where there is none, and
// how work on a stream is timed by the device's own clock.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "support/interleaved.hpp"
#include "support/program.hpp"

namespace bench {

namespace cuda = shardwise::detail::cuda;

/// "13.0" of 13000.
inline std::string cuda_version(int number) {
  return std::to_string(number / 1000) + '.' + std::to_string(number % 1000 / 10);
}

inline void note_device(Program& program) {
  cudaDeviceProp device{};
  cuda::check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
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

/// Seconds of a call from an event before the first to one behind the last: the device's time, and
/// where launching takes longer than computing, that of launching.
inline double seconds_on(cudaStream_t stream, const std::function<void()>& run, int calls) {
  cuda::Event begin(cuda::Event::Use::time), end(cuda::Event::Use::time);
  cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  begin.record(stream);
  for (int i = 0; i < calls; ++i) run();
  end.record(stream);
  end.synchronize();
  return 1e-3 * static_cast<double>(cuda::Event::milliseconds(begin, end)) / calls;
}

/// Times candidates in turns, all of which put their work on this stream.
inline std::vector<Timing> interleave_on(cudaStream_t stream,
                                         const std::vector<Candidate>& candidates, int rounds) {
  return interleave(
      candidates, {rounds, 10e-3, Clock::wall},
      [&](const std::function<void()>& run, int calls) { return seconds_on(stream, run, calls); });
}

}  // namespace bench
