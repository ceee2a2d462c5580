// The all-reduce of two thread ranks against the best one that we can write by hand for exactly two
// threads: same process, same threads, same buffers, alternating blocks. Prints, for each size, the
// median time of a call with its 10th and 90th percentile, and how fast ours is as a fraction of
// the other (the median of the ratios of neighbouring blocks; above 1 is faster).

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"

namespace {

/// No errors, no sleeping, no other dtype, no third rank. A flag for each thread says how far it
/// is; up to 2 KiB travel with the flag, more is read where it lies, half by each thread.
class ByHand {
 public:
  void all_reduce(int rank, const float* in, float* out, std::size_t n) {
    Side& me = sides_[rank];
    const Side& other = sides_[1 - rank];
    Message& mine = me.messages[(me.step / 2 + 1) % 2];
    const Message& theirs = other.messages[(me.step / 2 + 1) % 2];
    if (n <= small) {
      std::memcpy(mine.data, in, n * sizeof(float));
      meet(me, other, 2);
      const float* a = sides_[0].messages[(me.step / 2) % 2].data;
      const float* b = sides_[1].messages[(me.step / 2) % 2].data;
      for (std::size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
      return;
    }
    mine.in = in;
    mine.out = out;
    meet(me, other, 1);
    const std::size_t middle = n / 2 / 16 * 16;
    const std::size_t begin = rank == 0 ? 0 : middle;
    const float* a = rank == 0 ? in : theirs.in;
    const float* b = rank == 0 ? theirs.in : in;
    float* far = theirs.out;
    const std::size_t end = rank == 0 ? middle : n;
    // In blocks that stay in the first-level cache: one stream of stores at a time.
    constexpr std::size_t block = 1024;
    float sums[block];
    for (std::size_t i = begin; i < end; i += block) {
      const std::size_t count = std::min(block, end - i);
      for (std::size_t k = 0; k < count; ++k) sums[k] = a[i + k] + b[i + k];
      std::memcpy(out + i, sums, count * sizeof(float));
      std::memcpy(far + i, sums, count * sizeof(float));
    }
    meet(me, other, 1);
  }

 private:
  static constexpr std::size_t small = 512;

  struct alignas(64) Message {
    const float* in;
    float* out;
    alignas(64) float data[small];
  };
  struct alignas(64) Side {
    std::atomic<std::uint64_t> arrived{0};
    alignas(64) std::uint64_t step = 0;
    Message messages[2];
  };

  static void meet(Side& me, const Side& other, std::uint64_t steps) {
    me.step += steps;
    me.arrived.store(me.step, std::memory_order_release);
    while (other.arrived.load(std::memory_order_acquire) < me.step) {
    }
  }

  Side sides_[2];
};

struct Quantiles {
  double low, median, high;
};

Quantiles quantiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return {values[n / 10], values[n / 2], values[n - 1 - n / 10]};
}

/// Seconds per call of one block.
template <class Call>
double time_block(shardwise::ThreadCommunicator& ranks, std::size_t calls, Call call) {
  ranks.barrier();
  for (std::size_t i = 0; i < 3; ++i) call(i);
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < calls; ++i) call(i);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count() / static_cast<double>(calls);
}

/// Throws unless both ways give the same sum of fresh data, which what stands in the outputs is
/// not.
void require_equal(shardwise::ThreadCommunicator& ranks, ByHand& hand, const std::vector<float>& in,
                   std::vector<float>& out, std::vector<float>& other) {
  std::fill(out.begin(), out.end(), 2.5F);  // sums are below 2
  std::fill(other.begin(), other.end(), 3.5F);
  ranks.barrier();
  ranks.all_reduce<float>(in, out);
  ranks.barrier();
  hand.all_reduce(ranks.rank(), in.data(), other.data(), in.size());
  ranks.barrier();
  if (out != other)
    throw std::runtime_error("the two sums of " + std::to_string(in.size()) + " floats differ");
}

void compare(shardwise::ThreadCommunicator& ranks, ByHand& hand, std::size_t bytes) {
  const std::size_t n = bytes / sizeof(float);
  std::mt19937 random(static_cast<unsigned>(ranks.rank()));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> in(n);
  std::generate(in.begin(), in.end(), [&] { return uniform(random); });
  std::vector<float> out(n);
  std::vector<float> other(n);
  require_equal(ranks, hand, in, out, other);

  // Blocks shorter than a time slice, and many, so that a busy machine leaves some undisturbed.
  const std::size_t calls =
      std::clamp<std::size_t>((std::size_t{1} << 20) / (bytes + 4096), 2, 256);
  const int blocks = bytes <= (std::size_t{1} << 20) ? 401 : 41;
  std::vector<double> ours, theirs, ratios;
  for (int block = 0; block < blocks; ++block) {
    ours.push_back(
        time_block(ranks, calls, [&](std::size_t) { ranks.all_reduce<float>(in, out); }));
    theirs.push_back(time_block(ranks, calls, [&](std::size_t) {
      hand.all_reduce(ranks.rank(), in.data(), other.data(), n);
    }));
    ratios.push_back(theirs.back() / ours.back());
  }
  require_equal(ranks, hand, in, out, other);
  if (ranks.rank() != 0) return;
  const Quantiles a = quantiles(ours), b = quantiles(theirs), r = quantiles(ratios);
  std::printf("%9zu %9.3f (%8.3f %9.3f) %9.3f (%8.3f %9.3f) %6.2f (%.2f %.2f)\n", bytes,
              a.median * 1e6, a.low * 1e6, a.high * 1e6, b.median * 1e6, b.low * 1e6, b.high * 1e6,
              r.median, r.low, r.high);
  std::fflush(stdout);
}

}  // namespace

int main() try {
#if defined(__AVX512F__)
  const char* instructions = "AVX-512";
#elif defined(__AVX2__)
  const char* instructions = "AVX2";
#else
  const char* instructions = "the baseline of the target";
#endif
  std::printf("all-reduce of float, 2 threads, compiled for %s; microseconds a call\n",
              instructions);
  std::printf(
      "    bytes    thread ranks (10%% 90%%)            by hand (10%% 90%%)         speed ratio\n");
  const auto hand = std::make_unique<ByHand>();
  shardwise::run_ranks(2, [&](shardwise::ThreadCommunicator& ranks) {
    for (std::size_t bytes = 64; bytes <= (std::size_t{16} << 20); bytes *= 4)
      compare(ranks, *hand, bytes);
  });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "all_reduce: %s\n", e.what());
  return 1;
}
