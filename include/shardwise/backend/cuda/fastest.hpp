#pragma once
// The fastest of the algorithms that a library proposes, measured on this device.

#include <cstddef>
#include <limits>
#include <optional>

#include "shardwise/backend/cuda/cublaslt_handle.hpp"
#include "shardwise/backend/cuda/cudnn_check.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/backend/cuda/stream.hpp"

namespace shardwise::detail::cuda {

/// The number of the fastest of `count` algorithms: launch(i) enqueues one on the session's stream
/// by the library's `call`, and returns its status. Rejected ones do not count. Waits for the
/// stream.
/// throws   backend_error if the library rejects all
template <class Launch>
std::size_t fastest(Session& session, std::size_t count, const char* call, Launch launch) {
  constexpr int runs = 5;
  const cudaStream_t stream = session.stream().get();
  Event begin(Event::Use::time);
  Event end(Event::Use::time);
  std::optional<std::size_t> best;
  float best_time = std::numeric_limits<float>::infinity();
  decltype(launch(count)) status{};
  for (std::size_t i = 0; i < count; ++i) {
    status = launch(i);  // the first run of a kernel loads it
    if (status != decltype(status){}) continue;
    begin.record(stream);
    for (int run = 0; run < runs; ++run) check(launch(i), call);
    end.record(stream);
    end.synchronize();
    const float time = Event::milliseconds(begin, end);
    if (!best || time < best_time) best_time = time, best = i;
  }
  if (!best) check(status, call);
  return *best;
}

}  // namespace shardwise::detail::cuda
