// What a call of NCCL costs the host: an all-reduce in a group of calls, by a blocking communicator
// of NCCL, by a non-blocking one, for which NCCL starts a thread in each group of calls, and by an
// NcclCommunicator on each of these, with its watchdog. The time is the host's until some calls are
// enqueued, and beside it that until they are done.
//
// Where a communicator has one rank, NCCL only copies and starts no thread. So a second process is
// the second rank on the same GPU. NCCL takes it for another host and sends through the loopback
// interface, and the GPU runs the two in turns: the time until they are done is not that of ranks
// with a GPU each. Without the launcher, only one rank is measured. The ids of NCCL go through files in
// TMPDIR, which must be new, as the launcher makes it.
//
//     tests/gpu/on_one_gpu.sh -n 2 bench_gpu_nccl_calls [--rounds=N] [--quick] ...

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/program.hpp"
#include "gpu/uniform.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/nccl.hpp"
#include "shardwise/comm/nccl_id_file.hpp"

namespace {

namespace sw = shardwise;
namespace nccl = shardwise::detail::nccl;

constexpr int calls_of_sample = 8;
constexpr std::chrono::seconds timeout{20};

/// The id of a group of the ranks 0 to size - 1, which has this name among all processes.
ncclUniqueId id_of_group(const char* name, int rank, int size) {
  if (size == 1) return nccl::new_id();
  return sw::nccl_id_in_file(std::filesystem::temp_directory_path() / name, rank);
}

/// Polls as NcclCommunicator does.
void await(ncclComm_t comm, ncclResult_t result, const char* call) {
  for (int attempt = 0; result == ncclInProgress; ++attempt) {
    if (attempt > 0) nccl::pause_between_polls(attempt);
    nccl::check(ncclCommGetAsyncError(comm, &result), "ncclCommGetAsyncError");
  }
  nccl::check(result, call);
}

/// Ways to make the same call, on the same stream.
class Ways {
 public:
  /// Ours comes first: it does not wait without end for a rank that is not there.
  Ways(int rank, int size, cudaStream_t stream)
      : stream_(stream),
        ours_(id_of_group("ours", rank, size), rank, size, {.stream = stream, .timeout = timeout}),
        blocking_(connected("blocking", rank, size, 1)),
        non_blocking_(connected("non_blocking", rank, size, 0)),
        ours_on_blocking_(blocking_, stream, timeout) {}

  std::vector<bench::Candidate> all_reduce(std::span<const float> in, std::span<float> out) {
    return {{"NCCL, blocking", [=, this] { by_hand(blocking_, in, out); }},
            {"NCCL, non-blocking", [=, this] { by_hand(non_blocking_, in, out); }},
            {"NcclCommunicator, blocking", [=, this] { ours_on_blocking_.all_reduce(in, out); }},
            {"NcclCommunicator", [=, this] { ours_.all_reduce(in, out); }}};
  }

  void close() {
    ours_on_blocking_.close();
    ours_.close();
    for (ncclComm_t comm : {blocking_, non_blocking_}) {
      await(comm, ncclCommFinalize(comm), "ncclCommFinalize");
      ncclCommDestroy(comm);
    }
  }

 private:
  static ncclComm_t connected(const char* name, int rank, int size, int is_blocking) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = is_blocking;
    ncclComm_t comm = nullptr;
    const ncclUniqueId id = id_of_group(name, rank, size);
    const ncclResult_t result = ncclCommInitRankConfig(&comm, size, id, rank, &config);
    await(comm, result, "ncclCommInitRankConfig");
    return comm;
  }

  void by_hand(ncclComm_t comm, std::span<const float> in, std::span<float> out) const {
    nccl::Results results;
    results(ncclGroupStart());
    results(ncclAllReduce(in.data(), out.data(), in.size(), ncclFloat, ncclSum, comm, stream_));
    results(ncclGroupEnd());
    await(comm, results.nccl(), "ncclAllReduce");
  }

  cudaStream_t stream_;
  sw::NcclCommunicator ours_;
  ncclComm_t blocking_, non_blocking_;
  sw::NcclCommunicator ours_on_blocking_;
};

/// Whether each element is the sum over the ranks.
bool is_sum(sw::Cuda& backend, std::span<const float> out, int size) {
  std::vector<float> got(out.size());
  backend.to_host(out.data(), got.size(), got.data());
  bool all = true;
  for (std::size_t i = 0; i < got.size(); ++i) {
    float sum = 0;
    for (int rank = 0; rank < size; ++rank)
      sum += bench::uniform(static_cast<std::uint32_t>(rank), i);
    all = all && std::abs(got[i] - sum) <= 1e-6F * static_cast<float>(size);
  }
  return all;
}

std::vector<bench::Timing> measure(sw::Cuda& backend, Ways& ways, int rank, int size,
                                   std::size_t bytes, int rounds) {
  sw::Pool pool(backend.memory());
  const std::size_t n = bytes / sizeof(float);
  const bench::Numbers<float> in(backend, pool, n, static_cast<std::uint32_t>(rank));
  const bench::Numbers<float> out(pool, n);
  const auto candidates = ways.all_reduce({in.data(), n}, {out.data(), n});
  std::vector<std::string> names;
  for (const bench::Candidate& candidate : candidates) {
    names.push_back(candidate.name);
    bench::cuda::check(cudaMemsetAsync(out.data(), 0xFF, bytes, backend.stream()),
                       "cudaMemsetAsync");  // NaN
    candidate.run();
    if (!is_sum(backend, {out.data(), n}, size))
      throw std::runtime_error(candidate.name + ": not the sum that was worked out here");
  }

  std::vector<std::vector<double>> until_done(candidates.size());
  const auto until_enqueued = bench::in_rounds(candidates.size(), rounds, [&](std::size_t i) {
    const double begin = bench::now();
    for (int call = 0; call < calls_of_sample; ++call) candidates[i].run();
    const double enqueued = bench::now();
    backend.synchronize();
    until_done[i].push_back((bench::now() - begin) / calls_of_sample);
    return (enqueued - begin) / calls_of_sample;
  });
  auto timings = bench::timings_of(names, until_enqueued);
  for (std::size_t i = 0; i < timings.size(); ++i)
    timings[i].also.emplace_back("us until done", 1e6 * bench::Spread::of(until_done[i]).median);
  return timings;
}

int run(bench::Program& program, const sw::LaunchEnvironment& launch) {
  sw::Cuda backend;
  std::map<int, Ways> ways;  // by number of ranks
  int version = 0;
  ncclGetVersion(&version);
  program.note("NCCL", std::to_string(version));
  for (const int size : std::set{1, launch.size}) {
    if (launch.rank >= size) continue;
    for (const std::size_t bytes : program.sizes<std::size_t>({256, 64 << 10, 1 << 20})) {
      program.add(
          "ranks:" + std::to_string(size) + "/bytes:" + std::to_string(bytes), [&, size, bytes] {
            Ways& all = ways.try_emplace(size, launch.rank, size, backend.stream()).first->second;
            return measure(backend, all, launch.rank, size, bytes, program.rounds());
          });
    }
  }
  const int status = program.run(launch.rank != 0);
  if (status == 0)
    for (auto& [size, all] : ways) all.close();
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  sw::LaunchEnvironment launch;
  if (std::getenv("RANK") != nullptr) launch = sw::read_launch_environment();
  if (launch.rank != 0)
    bench::take_option(argc, argv, "--benchmark_out=");  // one process writes it
  return bench::run_on_gpu(argc, argv, 11,
                           [&](bench::Program& program) { return run(program, launch); });
}
