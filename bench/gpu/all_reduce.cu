// An all-reduce of thread ranks that share the GPU, against the copy that moves as many bytes:
// every rank's tensor is read once and written once, and no all-reduce moves less. Wall time from a
// barrier of all ranks, with the device idle, to the next one.
//
//     bench_gpu_all_reduce [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpu/program.hpp"
#include "gpu/uniform.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "support/on_threads.hpp"
#include "support/together.hpp"

namespace {

namespace sw = shardwise;
using Ranks = sw::DeviceThreadCommunicator<sw::Cuda>;

/// Element i of the sum over ranks, added up in their order and rounded once.
template <class T>
T exact(std::size_t i, int ranks) {
  using A = sw::accumulate_t<T>;
  A sum = 0;
  for (int r = 0; r < ranks; ++r)
    sum += static_cast<A>(static_cast<T>(bench::uniform(static_cast<std::uint32_t>(r), i)));
  return static_cast<T>(sum);
}

/// How many sets of tensors to go around in, so that none is in the device's cache when its turn
/// comes again. `bytes` are those that a call reads and writes.
std::size_t sets_beyond_cache(std::size_t bytes) {
  int cache = 0;
  bench::cuda::check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0),
                     "cudaDeviceGetAttribute");
  return 1 + 2 * static_cast<std::size_t>(cache) / bytes;
}

/// A rank's inputs and outputs, in sets that take turns.
template <class T>
class Tensors {
 public:
  Tensors(sw::Cuda& backend, int rank, std::size_t n, std::size_t sets)
      : backend_(backend), pool_(backend.memory()) {
    for (std::size_t s = 0; s < sets; ++s) {
      in_.emplace_back(backend, pool_, n, static_cast<std::uint32_t>(rank));
      out_.emplace_back(backend, pool_, n, 99U);  // numbers that no sum has
    }
  }

  /// Those whose turn it is.
  std::pair<std::span<const T>, std::span<T>> next() {
    turn_ = (turn_ + 1) % in_.size();
    return {{in_[turn_].data(), in_[turn_].size()}, {out_[turn_].data(), out_[turn_].size()}};
  }

  /// Whether the last output is the sum, at its two ends.
  bool right(int ranks) {
    const std::size_t n = out_[turn_].size();
    const std::size_t part = std::min<std::size_t>(n, 4096);
    std::vector<T> got(part);
    bool all = true;
    for (const std::size_t first : {std::size_t{0}, n - part}) {
      backend_.to_host(out_[turn_].data() + first, part, got.data());
      for (std::size_t i = 0; i < part; ++i)
        all = all && static_cast<float>(got[i]) == static_cast<float>(exact<T>(first + i, ranks));
    }
    return all;
  }

 private:
  sw::Cuda& backend_;
  sw::Pool pool_;
  std::vector<bench::Numbers<T>> in_, out_;
  std::size_t turn_ = 0;
};

/// Ranks whose barrier waits for the device too.
struct Synchronised {
  sw::ThreadCommunicator& threads;
  sw::Cuda& backend;

  void barrier() const {
    backend.synchronize();
    threads.barrier();
  }
  template <class T>
  void broadcast(std::span<T> values, int root) const {
    threads.broadcast(values, root);
  }
};

/// `bytes` on each rank.
template <class T>
std::vector<bench::Timing> measure(sw::ThreadCommunicator& threads, std::size_t bytes, int rounds) {
  sw::Cuda backend;
  Ranks ranks(threads, backend);
  const auto size = static_cast<std::size_t>(ranks.size());
  const std::size_t sets = sets_beyond_cache(2 * size * bytes);
  Tensors<T> tensors(backend, ranks.rank(), bytes / sizeof(T), sets);
  // The first rank copies for all.
  const std::size_t copied = ranks.rank() == 0 ? size * bytes / sizeof(T) : 0;
  Tensors<T> whole(backend, 0, copied, sets);

  const bench::Run all_reduce = [&] {
    const auto [in, out] = tensors.next();
    ranks.all_reduce(in, out);
  };
  const bench::Run copy = [&] {
    if (copied == 0) return;
    const auto [in, out] = whole.next();
    bench::cuda::check(cudaMemcpyAsync(out.data(), in.data(), in.size_bytes(),
                                       cudaMemcpyDeviceToDevice, backend.stream()),
                       "cudaMemcpyAsync");
  };
  all_reduce();
  backend.synchronize();
  bench::require_on_all(threads, tensors.right(ranks.size()), "all-reduce");

  Synchronised all{threads, backend};
  return bench::with_speed(
      bench::interleave(all, {{"copy of as many bytes", copy}, {"all-reduce", all_reduce}}, rounds,
                        10e-3),
      "GB/s read and written", 2e-9 * static_cast<double>(size * bytes));
}

template <class T>
void add(bench::Program& program, const std::string& dtype) {
  for (const int ranks : {2, 4, 8}) {
    for (const std::size_t kibibytes : program.sizes<std::size_t>({64, 1024, 16384, 262144})) {
      program.add(dtype + "/ranks:" + std::to_string(ranks) + "/KiB:" + std::to_string(kibibytes),
                  [=, &program] {
                    return bench::on_threads(ranks, [&](sw::ThreadCommunicator& threads) {
                      return measure<T>(threads, kibibytes << 10, program.rounds());
                    });
                  });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_on_gpu(argc, argv, 15, [](bench::Program& program) {
    add<float>(program, "float");
    add<sw::bf16>(program, "bf16");
    return program.run();
  });
}
