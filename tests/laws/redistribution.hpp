#pragma once
// The laws of redistribution (see shardwise/testing/laws.hpp), for every pair of layouts, shape,
// communicator and number of ranks.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/testing/laws.hpp"
#include "shardwise/testing/shapes.hpp"
#include "support/oracle.hpp"
#include "support/plain_communicator.hpp"
#include "support/ranks.hpp"

namespace testing {

/// The ways to be a number of ranks: `run(ranks, f)` calls f with each rank's communicator.
struct Alone {
  using Communicator = shardwise::SingleRank;
  static constexpr std::string_view name = "by type";
  static std::vector<int> rank_counts() { return {1}; }
  template <class F>
  static void run(int, F f) {
    Communicator alone;
    f(alone);
  }
};

template <class C>
struct OnRanks {
  using Communicator = C;
  static std::vector<int> rank_counts() { return testing::rank_counts({1, 2, 3, 4, 5, 8}); }
  template <class F>
  static void run(int ranks, F f) {
    run_on_ranks(ranks, [&](Ranks& inner) {
      Communicator communicator(inner);
      f(communicator);
    });
  }
};

struct AsTheyAre : OnRanks<Ranks> {
  static constexpr std::string_view name = "ranks";
};
struct PlainRanks : OnRanks<PlainCommunicator<Ranks>> {
  static constexpr std::string_view name = "ranks without direct reads";
};
struct CountedRanks : OnRanks<shardwise::CountingCommunicator<Ranks>> {
  static constexpr std::string_view name = "counted ranks";
};

/// Every pair on every shape, pair by pair.
template <class T, class C>
std::vector<Trial> all_trials(const std::vector<Pair<T, C>>& pairs,
                              const std::vector<Shape>& shapes, int ranks) {
  std::vector<Trial> trials;
  for (const Pair<T, C>& pair : pairs)
    for (const Shape& shape : shapes) trials.push_back(trial_of(pair, shape, ranks));
  return trials;
}

template <class T, class Way>
void check_laws() {
  using C = typename Way::Communicator;
  const std::vector<Pair<T, C>> pairs = all_pairs<T, C>();
  for (const int ranks : Way::rank_counts()) {
    const std::vector<Shape> shapes = shardwise::shapes_for(ranks);
    std::vector<Trial> trials = all_trials(pairs, shapes, ranks);
    Way::run(ranks, [&](C& communicator) {
      shardwise::Pool pool;
      const auto note = [&](PerRank& notes, const Values& values) {
        tell(place_of(communicator), values,
             [&](int rank, const Values& held) { notes[static_cast<std::size_t>(rank)] = held; });
      };
      for (std::size_t i = 0; i < trials.size(); ++i)
        run_trial(communicator, pool, pairs[i / shapes.size()], trials[i], note);
    });
    int failures = 0;
    for (const Trial& trial : trials) {
      const std::vector<std::string> broken = broken_laws(trial);
      CHECK(broken.empty());
      for (const std::string& law : broken) {
        MESSAGE(Way::name << ": " << broken_law(trial, shardwise::dtype_v<T>, law));
        if (++failures == 20) return;  // more would say nothing new
      }
    }
  }
}

}  // namespace testing
