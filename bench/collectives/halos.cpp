// What a window reads beyond a rank's rows, exchanged between two thread ranks, and its adjoint, on
// images as ResNet-50's 3x3 convolutions have them. Against copies written by hand for exactly two
// threads, in turns in one run:
//
//   rows copied      what the neighbour has to give, in one piece: the bytes that must move
//   all copied       the rank's own rows too, in one piece: an exchange gives a tensor that has
//   both by hand          the same from and to where the rows lie, channel by channel
//
//     bench_collectives_halos [rounds]
//
// Microseconds a call [10 %, 90 %], and the speed of ours against each of them.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/redistribute/run.hpp"
#include "support/interleaved.hpp"
#include "support/random_values.hpp"

namespace {

namespace sw = shardwise;

constexpr sw::Window window{.kernel = 3, .before = 1, .after = 1};
using Block = sw::Sharded<sw::Axis::height>;
using Haloed = sw::Haloed<sw::Axis::height, window>;
using HaloedPartial = sw::HaloedPartial<sw::Axis::height, window>;

/// Two threads that show each other a buffer.
class Pair {
 public:
  /// Calls f(the other's buffer) between a meeting before and one behind it.
  template <class F>
  void exchange(int rank, const float* mine, F f) {
    sides_[rank].buffer = mine;
    meet(rank);
    f(sides_[1 - rank].buffer);
    meet(rank);
  }

 private:
  struct alignas(64) Side {
    std::atomic<std::uint64_t> arrived{0};
    const float* buffer = nullptr;
  };

  void meet(int rank) {
    const std::uint64_t step = sides_[rank].arrived.load(std::memory_order_relaxed) + 1;
    sides_[rank].arrived.store(step, std::memory_order_release);
    // Another program may have the other thread's core: then this one's may help.
    for (int spins = 0; sides_[1 - rank].arrived.load(std::memory_order_acquire) < step; ++spins) {
      if (spins > 10'000) std::this_thread::yield();
    }
  }

  Side sides_[2];
};

/// Images [batch, channel, height, width] and what this rank of two has of them.
struct Problem {
  sw::Shape shape;
  sw::Place place;
  std::size_t planes = shape.elements(0, 2);
  std::size_t row = shape[3].extent();
  sw::Tensor<float, Block> block{shape, place};
  sw::Tensor<float, Haloed> haloed{shape, place}, by_hand{shape, place};
  sw::Tensor<float, HaloedPartial> partial{shape, place};
  sw::Tensor<float, Block> sum{shape, place}, sum_by_hand{shape, place};
  std::vector<float> dense = std::vector<float>(haloed.size());

  Problem(const sw::Shape& whole, sw::Place where) : shape(whole), place(where) {
    const auto fill = [&](auto& tensor, unsigned seed) {
      const auto values = bench::random_values(tensor.size(), seed + unsigned(place.rank));
      std::copy(values.begin(), values.end(), tensor.data());
    };
    fill(block, 1);
    fill(partial, 3);
  }

  /// Rows of a plane on this rank, on the other one, and with the one row of the other's.
  std::size_t mine() const { return block.local()[2].extent(); }
  std::size_t theirs() const { return shape[2].extent() - mine(); }
  std::size_t both() const { return mine() + 1; }
  std::size_t halo() const { return planes * row; }  // elements

  /// Rank 0 needs the first of rank 1's rows behind its own, rank 1 the last of rank 0's before.
  void exchange_by_hand(const float* peer) {
    const bool first = place.rank == 0;
    for (std::size_t plane = 0; plane < planes; ++plane) {
      float* const to = by_hand.data() + plane * both() * row;
      const float* const from = peer + plane * theirs() * row;
      std::memcpy(to + (first ? 0 : row), block.data() + plane * mine() * row,
                  mine() * row * sizeof(float));
      std::memcpy(to + (first ? mine() * row : 0), from + (first ? 0 : (theirs() - 1) * row),
                  row * sizeof(float));
    }
  }

  void sum_from_both(const float* peer) {
    const bool first = place.rank == 0;
    for (std::size_t plane = 0; plane < planes; ++plane) {
      float* const to = sum_by_hand.data() + plane * mine() * row;
      const float* const own = partial.data() + (plane * both() + (first ? 0 : 1)) * row;
      const float* const from = peer + (plane * (theirs() + 1) + (first ? 0 : theirs())) * row;
      std::memcpy(to, own, mine() * row * sizeof(float));
      float* const edge = to + (first ? (mine() - 1) * row : 0);
      for (std::size_t i = 0; i < row; ++i) edge[i] += from[i];
    }
  }
};

using Clock = std::chrono::steady_clock;

struct Way {
  std::string name;
  std::function<void()> run;
};

/// Each way in turns; the last one is ours.
void measure(sw::ThreadCommunicator& ranks, const std::string& title, const Problem& problem,
             const std::vector<Way>& ways, int rounds) {
  const std::size_t bytes = problem.haloed.size() * sizeof(float);
  // As many on both ranks, whatever each of them holds.
  const std::size_t calls =
      std::clamp<std::size_t>((std::size_t{1} << 21) / problem.shape.elements(), 2, 256);
  std::vector<std::vector<double>> seconds(ways.size()), speed(ways.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      ranks.barrier();
      ways[i].run();
      ranks.barrier();
      const auto begin = Clock::now();
      for (std::size_t call = 0; call < calls; ++call) ways[i].run();
      ranks.barrier();
      const std::chrono::duration<double> took = Clock::now() - begin;
      seconds[i].push_back(took.count() / static_cast<double>(calls));
    }
    for (std::size_t i = 0; i < ways.size(); ++i)
      speed[i].push_back(seconds[i].back() / seconds.back().back());
  }
  if (ranks.rank() != 0) return;
  std::printf("%s: %zu bytes must move, %zu are written\n", title.c_str(),
              problem.halo() * sizeof(float), bytes);
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const auto time = bench::Spread::of(seconds[i]);
    const auto ratio = bench::Spread::of(speed[i]);
    std::printf("  %-14s %9.2f us [%9.2f, %9.2f]   ours %.3f [%.3f, %.3f] of its speed\n",
                ways[i].name.c_str(), time.median * 1e6, time.p10 * 1e6, time.p90 * 1e6,
                ratio.median, ratio.p10, ratio.p90);
  }
  std::fflush(stdout);
}

template <class A, class B>
void require_equal(const char* what, const A& ours, const B& by_hand) {
  if (!std::equal(ours.data(), ours.data() + ours.size(), by_hand.data()))
    throw std::runtime_error(std::string(what) + ": not what was worked out by hand");
}

void measure_images(sw::ThreadCommunicator& ranks, Pair& pair, std::size_t channels,
                    std::size_t extent, int rounds) {
  const sw::Shape shape{{sw::Axis::batch, 4},
                        {sw::Axis::channel, channels},
                        {sw::Axis::height, extent},
                        {sw::Axis::width, extent}};
  Problem p(shape, sw::place_of(ranks));
  sw::Pool pool;
  const int rank = ranks.rank();
  const auto copy = [&p](std::size_t n) {
    return [&p, n](const float* peer) { std::memcpy(p.dense.data(), peer, n * sizeof(float)); };
  };
  // Both ranks copy as much as the one that has less can give.
  const std::size_t all = std::min(p.mine(), p.theirs()) * p.halo() + p.halo();
  const auto rows_copied = [&] { pair.exchange(rank, p.partial.data(), copy(p.halo())); };
  const auto all_copied = [&] { pair.exchange(rank, p.partial.data(), copy(all)); };
  const auto exchange_by_hand = [&] {
    pair.exchange(rank, p.block.data(), [&](const float* peer) { p.exchange_by_hand(peer); });
  };
  const auto sum_by_hand = [&] {
    pair.exchange(rank, p.partial.data(), [&](const float* peer) { p.sum_from_both(peer); });
  };
  const auto exchange = [&] {
    sw::redistribute(ranks, pool, sw::View<const float, Block>(p.block.view()), p.haloed.view());
  };
  const auto sum = [&] {
    sw::redistribute(ranks, pool, sw::View<const float, HaloedPartial>(p.partial.view()),
                     p.sum.view());
  };
  exchange_by_hand(), exchange(), sum_by_hand(), sum();
  require_equal("exchange", p.haloed, p.by_hand);
  require_equal("sum", p.sum, p.sum_by_hand);

  const std::string title = std::to_string(channels) + " channels, " + std::to_string(extent) +
                            'x' + std::to_string(extent);
  measure(ranks, "exchange, " + title, p,
          {{"rows copied", rows_copied},
           {"all copied", all_copied},
           {"by hand", exchange_by_hand},
           {"ours", exchange}},
          rounds);
  measure(ranks, "sum, " + title, p,
          {{"rows copied", rows_copied},
           {"all copied", all_copied},
           {"by hand", sum_by_hand},
           {"ours", sum}},
          rounds);
}

}  // namespace

int main(int argc, char** argv) try {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 41;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: %s [rounds], rounds at least 1\n", argv[0]);
    return 2;
  }
  std::printf("halos of 3x3 windows, 4 images of float, 2 threads\n");
  Pair pair;
  sw::run_ranks(2, [&](sw::ThreadCommunicator& ranks) {
    for (const auto& [channels, extent] :
         {std::pair<std::size_t, std::size_t>{64, 56}, {128, 28}, {256, 14}, {512, 7}})
      measure_images(ranks, pair, channels, extent, rounds);
  });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "halos: %s\n", e.what());
  return 1;
}
