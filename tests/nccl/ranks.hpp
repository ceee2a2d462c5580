#pragma once
// Ranks of NCCL that are threads of this process, each with a stream and a device of its own.

#include <chrono>
#include <functional>
#include <list>
#include <thread>
#include <utility>

#include "nccl/stand_in.hpp"
#include "shardwise/backend/cuda/graph.hpp"
#include "shardwise/comm/nccl.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "support/error_of.hpp"

namespace testing {

class Stream {
 public:
  Stream() { cudaStreamCreate(&stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// What a CudaGraph asks a backend for.
struct OnStream {
  cudaStream_t of_rank;

  cudaStream_t stream() const { return of_rank; }
  shardwise::CudaDevice device() const { return {}; }
};

/// Work that tests put on streams; lives as long as the streams may do it.
class HostWork {
 public:
  void put(cudaStream_t stream, std::function<void()> work) {
    works_.push_back(std::move(work));
    const auto call = [](void* data) { (*static_cast<std::function<void()>*>(data))(); };
    cudaLaunchHostFunc(stream, call, &works_.back());
  }

 private:
  std::list<std::function<void()>> works_;
};

template <class F>
bool soon(F&& f) {
  for (int i = 0; i < 5000; ++i) {
    if (f()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// Whether all that was made of the stand-in's goes, which groups that nobody closed do by and by.
inline bool nothing_is_left() {
  return soon([] { return stand_in::alive == 0; });
}

/// On each of `ranks` threads: f(communicator, the threads' own communicator). A rank may leave
/// without close().
template <class F>
void run_nccl_ranks(int ranks, std::chrono::milliseconds timeout, F&& f) {
  shardwise::run_ranks(ranks, [&](shardwise::ThreadCommunicator& threads) {
    const Stream stream;
    {
      shardwise::NcclCommunicator nccl(threads, {threads.rank(), stream.get(), timeout});
      f(nccl, threads);
    }
  });
}

}  // namespace testing
