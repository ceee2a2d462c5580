// Many random programs of thread ranks (trials/program.hpp), each with its fault and without: a
// rank throws, leaves early, leaves out a call or makes another one than its peers, at a random
// moment, in a random group of random groups. Everybody must learn of it, and who it was, and
// nobody may touch memory of a rank that has gone (the sanitizers look).

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/error.hpp"
#include "support/effort.hpp"
#include "trials/bare_call.hpp"
#include "trials/figures.hpp"
#include "trials/outcome.hpp"
#include "trials/program.hpp"
#include "trials/thread_trial.hpp"

using namespace shardwise;
using trials::Fault;
using trials::Program;

namespace {

/// In place of a model and its checkpoints.
class Sums {
 public:
  explicit Sums(ThreadCommunicator& ranks) : ranks_(ranks) {}

  void train(std::size_t more_samples) {
    std::vector<float> ones(5 + more_samples, 1);
    ranks_.all_reduce<float>(ones, ones);
    trials::expect(ones.back() == static_cast<float>(ranks_.size()));
  }
  void checkpoint(const std::filesystem::path&) { train(0); }

  template <class Perform>
  static void perform_without(const Program&, const Perform& perform) {
    perform();
  }

 private:
  ThreadCommunicator& ranks_;
};

/// Counts the ranks that were told that another is gone, and those that were told of its call.
struct Counted {
  using Training = Sums;

  template <class F>
  static void call(ThreadCommunicator& threads, const F& f) {
    try {
      f(threads);
    } catch (const peer_error&) {
      ++of_peers;
      throw;
    } catch (const collective_error&) {
      ++of_calls;
      throw;
    }
  }

  static inline std::atomic<int> of_peers = 0, of_calls = 0;
};

}  // namespace

TEST_CASE("random programs, without a fault and with one at a random moment") {
  constexpr std::size_t of_calls_and_ranks = static_cast<std::size_t>(Fault::disk_is_full);
  const auto programs = static_cast<std::uint64_t>(testing::cases(500));
  trials::Figures figures("threads", nullptr);
  for (std::uint64_t seed = 0; seed < programs; ++seed) {
    CAPTURE(seed);
    Program program = trials::random_program(seed, 6, of_calls_and_ranks);
    Counted::of_peers = Counted::of_calls = 0;
    figures.add(program, trials::run_here<Counted>(program, {}));
    if (program.fault <= Fault::leaves) CHECK(Counted::of_peers == program.ranks - 1);
    if (program.fault == Fault::other_call) CHECK(Counted::of_calls >= 2);
    program.culprit = -1;
    for (const trials::Outcome& one : trials::run_here<Counted>(program, {}).outcomes)
      CHECK(one.end == trials::Outcome::End::finished);
  }
  CHECK(figures.print());
  CHECK(2 * figures.judged() > programs);
}
