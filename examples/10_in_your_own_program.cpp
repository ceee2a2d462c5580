// The library as a guest: in memory that the program owns, on ranks that talk as the program says.
//
//     rank 0                 rank 1
//     std::vector  ──View──  std::vector       summands of a histogram: Partial
//           └── reduce-scatter ──┘             by a communicator of the program's own
//     std::vector            std::vector       each rank its own bins: Sharded<feature>
//
// The communicator wraps another and measures how long its rank is in it. It is held to the adjoint
// law, on shapes that divide by the ranks and on others.
//
// test:
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "shardwise/shardwise.hpp"
#include "shardwise/testing/laws.hpp"

namespace sw = shardwise;

namespace {

// begin: communicator
/// Forwards every call to `Inner` and adds up the time that its rank spends there.
template <sw::Communicator Inner>
class TimedCommunicator {
  using Counts = std::span<const std::size_t>;
  using Clock = std::chrono::steady_clock;

 public:
  static constexpr sw::CheckLevel check_level = sw::check_level_of<Inner>();

  explicit TimedCommunicator(Inner inner) : inner_(std::move(inner)) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  std::chrono::duration<double> spent() const { return spent_; }

  template <class T>
  void all_reduce(std::span<const T> in, std::span<T> out,
                  sw::Reduction reduction = sw::Reduction::sum) {
    timed([&] { inner_.template all_reduce<T>(in, out, reduction); });
  }
  template <class T>
  void all_gather(std::span<const T> in, std::span<T> out, Counts counts) {
    timed([&] { inner_.template all_gather<T>(in, out, counts); });
  }
  template <class T>
  void reduce_scatter(std::span<const T> in, std::span<T> out, Counts counts,
                      sw::Reduction reduction = sw::Reduction::sum) {
    timed([&] { inner_.template reduce_scatter<T>(in, out, counts, reduction); });
  }
  template <class T>
  void broadcast(std::span<T> data, int root) {
    timed([&] { inner_.template broadcast<T>(data, root); });
  }
  template <class T>
  void gather(std::span<const T> in, std::span<T> out, Counts counts, int root) {
    timed([&] { inner_.template gather<T>(in, out, counts, root); });
  }
  template <class T>
  void scatter(std::span<const T> in, std::span<T> out, Counts counts, int root) {
    timed([&] { inner_.template scatter<T>(in, out, counts, root); });
  }
  template <class T>
  void all_to_all(std::span<const T> in, Counts sent, std::span<T> out, Counts received) {
    timed([&] { inner_.template all_to_all<T>(in, sent, out, received); });
  }
  template <class T>
  void send(std::span<const T> data, int to, int tag = 0) {
    timed([&] { inner_.template send<T>(data, to, tag); });
  }
  template <class T>
  void receive(std::span<T> data, int from, int tag = 0) {
    timed([&] { inner_.template receive<T>(data, from, tag); });
  }
  void barrier() {
    timed([&] { inner_.barrier(); });
  }
  TimedCommunicator split(int color, int key) {
    return TimedCommunicator(inner_.split(color, key));
  }

 private:
  template <class F>
  void timed(F call) {
    const Clock::time_point begin = Clock::now();
    call();
    spent_ += Clock::now() - begin;
  }

  Inner inner_;
  std::chrono::duration<double> spent_{};
};

static_assert(sw::Communicator<TimedCommunicator<sw::ThreadCommunicator>>);
// end: communicator
static_assert(sw::check_level_of<TimedCommunicator<sw::Unchecked<sw::ThreadCommunicator>>>() ==
              sw::CheckLevel::off);

/// Every rank has counted its own samples into all bins; afterwards each has its bins, summed.
template <sw::Communicator C>
std::vector<float> share_out(C& ranks, const std::vector<float>& mine) {
  // begin: memory
  const sw::Shape bins{{sw::Axis::feature, mine.size()}};
  const sw::Place place = sw::place_of(ranks);
  using Bins = sw::Sharded<sw::Axis::feature>;

  std::vector<float> sums(sw::local_shape<Bins>(bins, place).elements());
  sw::Pool pool;  // lends memory for packing; one for each rank, for as long as you like
  redistribute(ranks, pool, sw::View<const float, sw::Partial>(std::span(mine), bins, place),
               sw::View<float, Bins>(std::span(sums), bins, place));
  // end: memory
  return sums;
}

}  // namespace

int main() try {
  sw::run_ranks(3, [](sw::ThreadCommunicator& threads) {
    TimedCommunicator ranks(threads);

    // begin: laws
    using Bins = sw::Sharded<sw::Axis::feature>;
    const std::vector<sw::Shape> shapes{{{sw::Axis::batch, 6}, {sw::Axis::feature, 3}},
                                        {{sw::Axis::batch, 5}, {sw::Axis::feature, 7}},
                                        {{sw::Axis::batch, 1}, {sw::Axis::feature, 2}}};
    sw::check_redistribution<sw::Partial, Bins>(ranks, shapes).require();
    sw::check_redistribution<Bins, sw::Invariant>(ranks, shapes).require();
    sw::check_redistribution<Bins, sw::Sharded<sw::Axis::batch>>(ranks, shapes).require();
    // end: laws

    const std::vector<float> counted{1, 2, 3, 4, 5, 6, 7, 8};
    const std::vector<float> sums = share_out(ranks, counted);
    for (int r = 0; r < ranks.size(); ++r) {
      ranks.barrier();
      if (r != ranks.rank()) continue;
      std::printf("rank %d has", r);
      for (const float sum : sums) std::printf(" %g", static_cast<double>(sum));
      std::printf("\n");
      std::fflush(stdout);
    }
    if (!(ranks.spent().count() > 0)) throw std::runtime_error("no time was spent");
  });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "10_in_your_own_program: %s\n", e.what());
  return 1;
}
