#pragma once
// Times work on a stream by the device's own clock, and counts what it launches.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/backend/detail/destroyer.hpp"
#include "support/interleaved.hpp"

namespace bench {

namespace cuda = shardwise::detail::cuda;

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
  constexpr double sample_seconds = 10e-3;
  return interleave(
      candidates, {rounds, sample_seconds, Clock::wall},
      [&](const std::function<void()>& run, int calls) { return seconds_on(stream, run, calls); });
}

/// How many kernels, copies and fills `run` puts on the stream, as a graph has them; nothing if its
/// work cannot be captured into one. `run` has run before.
inline std::optional<std::size_t> launches_of(cudaStream_t stream,
                                              const std::function<void()>& run) {
  using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>,
                                shardwise::detail::Destroyer<cudaGraphDestroy>>;
  cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
  bool captured = true;
  try {
    run();
  } catch (const shardwise::error&) {
    captured = false;
  }
  cudaGraph_t raw = nullptr;
  const cudaError_t code = cudaStreamEndCapture(stream, &raw);
  const Graph graph(raw);
  if (!captured || code != cudaSuccess) {
    cudaGetLastError();
    return std::nullopt;
  }
  std::size_t nodes = 0;
  cuda::check(cudaGraphGetNodes(graph.get(), nullptr, &nodes), "cudaGraphGetNodes");
  return nodes;
}

/// Says with each timing how much its candidate launches, where that can be counted.
inline void add_launches(cudaStream_t stream, const std::vector<Candidate>& candidates,
                         std::vector<Timing>& timings) {
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (const auto launches = launches_of(stream, candidates[i].run))
      timings[i].also.emplace_back("launches", static_cast<double>(*launches));
}

}  // namespace bench
