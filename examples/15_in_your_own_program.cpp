// The library in an existing program: with the program's own memory and communicator.
//
//     rank 0                 rank 1
//     std::vector  ──View──  std::vector       summands of a histogram: Partial
//           └── reduce-scatter ──┘             by a communicator of the program's own
//     std::vector            std::vector       each rank its own bins: Sharded<feature>
//
// The communicator wraps another and measures the time of its calls. The program checks the adjoint
// law with it, on even and uneven shapes.
//
// test:
#include <chrono>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <vector>

#include "shardwise/shardwise.hpp"
#include "shardwise/testing/laws.hpp"

namespace sw = shardwise;

namespace {

// begin: communicator
/// Adds up the time that its rank spends in calls of `Inner`.
template <sw::Communicator Inner>
class TimedCommunicator : public sw::WrappedCommunicator<TimedCommunicator<Inner>, Inner> {
 public:
  using sw::WrappedCommunicator<TimedCommunicator, Inner>::WrappedCommunicator;

  template <class F>
  void around(const sw::Call&, F make) {
    const auto begin = std::chrono::steady_clock::now();
    make();
    spent += std::chrono::steady_clock::now() - begin;
  }

  std::chrono::duration<double> spent{};
};

static_assert(sw::Communicator<TimedCommunicator<sw::ThreadCommunicator>>);
// end: communicator
static_assert(sw::check_level_of<TimedCommunicator<sw::Unchecked<sw::ThreadCommunicator>>>() ==
              sw::CheckLevel::off);

/// Every rank has counted its own samples into all bins; this gives each rank its bins of the sum.
template <sw::Communicator C>
std::vector<float> share_out(C& ranks, const std::vector<float>& mine) {
  // begin: memory
  const sw::Shape bins{{sw::Axis::feature, mine.size()}};
  const sw::Place place = sw::place_of(ranks);
  using Bins = sw::Sharded<sw::Axis::feature>;

  std::vector<float> sums(sw::local_shape<Bins>(bins, place).elements());
  sw::Pool pool;  // lends memory for packing; one per rank, may be kept
  redistribute(ranks, pool, sw::View<const float, sw::Partial>(std::span(mine), bins, place),
               sw::View<float, Bins>(std::span(sums), bins, place));
  // end: memory
  return sums;
}

}  // namespace

int main() try {
  sw::run_ranks(3, [](sw::ThreadCommunicator& threads) {
    TimedCommunicator<sw::ThreadCommunicator> ranks(threads);

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
    if (!(ranks.spent.count() > 0)) throw std::runtime_error("no time was spent");
  });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "15_in_your_own_program: %s\n", e.what());
  return 1;
}
