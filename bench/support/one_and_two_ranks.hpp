#pragma once
// Comparisons on one rank, and on two ranks that are threads.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/backend/onednn/threads.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "support/interleaved.hpp"
#include "support/on_threads.hpp"
#include "support/program.hpp"
#include "support/together.hpp"

namespace bench {

/// What `measure()` returns, where oneDNN called by hand has one thread, as the library's has.
template <class F>
std::vector<Timing> on_one_rank(F measure) {
  const shardwise::detail::onednn::ThreadLimit one_thread(1);
  return measure();
}

/// The timings that `measure(ranks)` returns on rank 0 of two, each bound to a core.
template <class F>
std::vector<Timing> on_two_ranks(const F& measure) {
  return on_threads(2, [&](shardwise::ThreadCommunicator& ranks) {
    return on_one_rank([&] { return measure(ranks); });
  });
}

/// Adds what one() measures on one rank, and two(ranks) on two.
template <class One, class Two>
void add_one_and_two(Program& program, const std::string& name, One one, Two two) {
  program.add(name + "/one rank", [=] { return on_one_rank(one); });
  program.add(name + "/two ranks", [=] { return on_two_ranks(two); });
}

/// A candidate that keeps only rank 0 busy.
inline Candidate on_first(const shardwise::ThreadCommunicator& ranks, std::string name,
                          std::function<void()> run) {
  if (ranks.rank() != 0) run = [] {};
  return {std::move(name), std::move(run)};
}

}  // namespace bench
