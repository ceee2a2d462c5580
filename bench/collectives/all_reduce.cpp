// The all-reduce of two thread ranks against the best one that we can write by hand for exactly two
// threads: same process, same threads, same input, outputs of their own, in turns. Sums are checked
// before and afterwards.
//
//     bench_collectives_all_reduce [--rounds=41] [options of Google Benchmark]
//
// Up to 1 MiB there are ten times as many rounds, each shorter than a time slice, so that a busy
// machine leaves some undisturbed.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/meeting.hpp"
#include "collectives/move.hpp"
#include "collectives/sizes.hpp"
#include "support/on_threads.hpp"
#include "support/program.hpp"

namespace {

using Ranks = shardwise::ThreadCommunicator;

/// No errors, no other dtype, no third rank. Up to 2 KiB travel through a message to the other
/// thread, more is read where it lies, half by each thread.
class ByHand {
 public:
  void all_reduce(int rank, const float* in, float* out, std::size_t n) {
    // The other thread may still read what was sent last.
    const std::size_t turn = calls_[rank].number++ % 2;
    Message& mine = messages_[rank][turn];
    const Message& theirs = messages_[1 - rank][turn];
    if (n <= small) {
      std::memcpy(mine.data, in, n * sizeof(float));
      meeting_.meet(rank);
      const float* a = messages_[0][turn].data;
      const float* b = messages_[1][turn].data;
      for (std::size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
      return;
    }
    mine.in = in;
    mine.out = out;
    meeting_.meet(rank);
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
    meeting_.meet(rank);
  }

 private:
  static constexpr std::size_t small = 512;

  struct alignas(64) Message {
    const float* in;
    float* out;
    alignas(64) float data[small];
  };
  struct alignas(64) Calls {
    std::size_t number = 0;
  };

  bench::Meeting meeting_;
  Message messages_[2][2];  // of each thread, for its even and odd calls
  Calls calls_[2];
};

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 41);
  ByHand hand;
  constexpr auto what = shardwise::Operation::all_reduce;
  const std::vector<bench::Way<Ranks>> ways{
      {"by hand", bench::by<Ranks>(what,
                                   [&hand](Ranks&, bench::Buffers& b) {
                                     hand.all_reduce(b.rank, b.in.data(), b.out.data(),
                                                     b.in.size());
                                   })},
      {"thread ranks", bench::by<Ranks>(what, bench::call<Ranks>)}};
  for (const std::size_t bytes : program.sizes(bench::sizes_in_bytes(), bench::quick_size)) {
    const bool is_short = bytes <= std::size_t{1} << 20;
    const int rounds = is_short ? 10 * program.rounds() : program.rounds();
    program.add("all_reduce of 2 threads, " + bench::size_name(bytes), [=] {
      return bench::on_threads(2, [&](Ranks& ranks) {
        return bench::compare(ranks, ways, bytes / sizeof(float), rounds, is_short ? 2e-4 : 2e-3);
      });
    });
  }
  return program.run();
}
