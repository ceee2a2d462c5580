#pragma once
// The laws of redistribution, for every pair of layouts, shape, communicator and number of ranks.
//
//   adjoint      <R x, y> == <x, adjoint(R) y>, inner products on the global tensor
//   value        R changes how a tensor lies and not what it is
//   round trip   R and then its reverse gives back the value
//   input        R leaves its input alone
//   in place     an all-reduce, and what moves nothing, may have one memory for both
//   calls        R makes the one collective that it declares, or none
//
// The ranks only run redistributions and note what they hold; the oracle judges when all have
// ended. All but `run` sees layouts as values, because what is compiled for every pair has to stay
// small.

#include <doctest/doctest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/redistribute/run.hpp"
#include "support/layouts.hpp"
#include "support/oracle.hpp"
#include "support/plain_communicator.hpp"
#include "support/ranks.hpp"
#include "support/shapes.hpp"

namespace testing {

/// out = R of in; where they are not the same, out begins as what no result may contain.
template <class R, class T, class C>
void run(C& ranks, shardwise::Pool& pool, const Shape& shape, const std::vector<T>& in,
         std::vector<T>& out) {
  using From = typename R::from;
  using To = typename R::to;
  const Place place = shardwise::place_of(ranks);
  if (&in != &out)
    out.assign(shardwise::local_shape<To>(shape, place).elements(), static_cast<T>(99.F));
  shardwise::redistribute(ranks, pool, shardwise::View<const T, From>(in, shape, place),
                          shardwise::View<T, To>(out, shape, place));
}

/// A pair From -> To as values.
template <class T, class C>
struct Pair {
  using Run =
      decltype(&run<shardwise::Redistribute<shardwise::Invariant, shardwise::Invariant>, T, C>);

  Meaning from, to, dual_from, dual_to;
  std::optional<shardwise::Operation> operation;
  Run forward, adjoint;
  Run reverse = nullptr;   ///< To -> From, where there is one
  Run in_place = nullptr;  ///< forward, where its input may be its output
};

template <class T, class C>
std::vector<Pair<T, C>> all_pairs() {
  using namespace shardwise;
  std::vector<Pair<T, C>> pairs;
  for_each_pair([&]<class From, class To>() {
    using R = Redistribute<From, To>;
    pairs.push_back({meaning_of<From>(), meaning_of<To>(), meaning_of<dual_t<From>>(),
                     meaning_of<dual_t<To>>(), R::operation(), run<R, T, C>,
                     run<adjoint_t<R>, T, C>});
    if constexpr (redistributable<To, From>)
      pairs.back().reverse = run<Redistribute<To, From>, T, C>;
    if constexpr (moves_nothing<R, C> || R::movement == Movement::all_reduce)
      pairs.back().in_place = run<R, T, C>;
  });
  return pairs;
}

/// One pair on one tensor: what every rank put in and got out.
struct Trial {
  Meaning from, to, dual_from, dual_to;
  Shape shape;
  int ranks;
  bool has_reverse, may_share_memory;

  Values value = small_integers(1, shape.elements());
  Values gradient = small_integers(2, shape.elements());
  PerRank x = lay_out(from, shape, ranks, value);
  PerRank y = lay_out(dual_to, shape, ranks, gradient);

  PerRank rx{x.size()}, ry{x.size()};                              // R x and adjoint(R) y
  PerRank x_after{x.size()};                                       // x when R has run
  PerRank back{x.size()};                                          // the reverse of R, on R x
  PerRank in_place{x.size()};                                      // R x in the memory of x
  std::vector<char> as_declared = std::vector<char>(x.size(), 1);  // whether the calls were
};

template <class T>
std::vector<T> narrow(const Values& values) {
  std::vector<T> result;
  for (const float value : values) result.push_back(static_cast<T>(value));
  return result;
}

template <class T>
Values widen(const std::vector<T>& values) {
  Values result;
  for (const T value : values) result.push_back(static_cast<float>(value));
  return result;
}

/// Whether a counting communicator has seen the collective of `pair`, on `elements` local ones, and
/// nothing else.
template <class T, class C>
bool calls_as_declared(const Pair<T, C>& pair, const C& ranks, std::size_t elements) {
  if (!pair.operation) return ranks.log().empty();
  return ranks.log().size() == 1 &&
         ranks.log()[0] == shardwise::CountedCall{*pair.operation, shardwise::dtype_v<T>, elements};
}

/// Writes down what a rank holds.
template <class C, class T>
void note(const C& ranks, PerRank& notes, const std::vector<T>& values) {
  tell(place_of(ranks), widen(values),
       [&](int rank, const Values& held) { notes[static_cast<std::size_t>(rank)] = held; });
}

template <class T, class C>
void run_trial(C& ranks, shardwise::Pool& pool, const Pair<T, C>& pair, Trial& trial) {
  const auto rank = static_cast<std::size_t>(ranks.rank());
  std::vector<T> x = narrow<T>(trial.x[rank]);
  std::vector<T> rx, ry, back;
  if constexpr (requires { ranks.log(); }) ranks.clear();

  pair.forward(ranks, pool, trial.shape, x, rx);
  if constexpr (requires { ranks.log(); })
    trial.as_declared[rank] = calls_as_declared(pair, ranks, x.size());
  note(ranks, trial.rx, rx);
  note(ranks, trial.x_after, x);

  pair.adjoint(ranks, pool, trial.shape, narrow<T>(trial.y[rank]), ry);
  note(ranks, trial.ry, ry);

  if (pair.reverse != nullptr) {
    pair.reverse(ranks, pool, trial.shape, rx, back);
    note(ranks, trial.back, back);
  }
  if (pair.in_place != nullptr) {
    pair.in_place(ranks, pool, trial.shape, x, x);
    note(ranks, trial.in_place, x);
  }
}

/// Holds a trial against the laws: the names of those that it breaks.
inline std::vector<std::string> broken_laws(const Trial& trial) {
  std::vector<std::string> broken;
  const auto holds = [&](bool held, std::string_view law) {
    if (!held) broken.emplace_back(law);
  };
  const Shape& shape = trial.shape;
  const double left = inner_product(trial.to, trial.rx, trial.y);
  const double right = inner_product(trial.from, trial.x, trial.ry);
  holds(left == right,
        "adjoint: <R x, y> is " + std::to_string(left) + ", <x, R* y> is " + std::to_string(right));
  holds(means(trial.to, shape, trial.rx, trial.value), "value");
  holds(means(trial.dual_from, shape, trial.ry, trial.gradient), "value of the adjoint");
  holds(trial.x_after == trial.x, "input");
  if (trial.has_reverse) holds(means(trial.from, shape, trial.back, trial.value), "round trip");
  if (trial.may_share_memory) holds(trial.in_place == trial.rx, "in place");
  for (const char declared : trial.as_declared) holds(declared != 0, "calls");
  return broken;
}

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
    for (const Shape& shape : shapes)
      trials.push_back({pair.from, pair.to, pair.dual_from, pair.dual_to, shape, ranks,
                        pair.reverse != nullptr, pair.in_place != nullptr});
  return trials;
}

template <class T, class Way>
void check_laws() {
  using C = typename Way::Communicator;
  const std::vector<Pair<T, C>> pairs = all_pairs<T, C>();
  for (const int ranks : Way::rank_counts()) {
    const std::vector<Shape> shapes = shapes_for(ranks);
    std::vector<Trial> trials = all_trials(pairs, shapes, ranks);
    Way::run(ranks, [&](C& communicator) {
      shardwise::Pool pool;
      for (std::size_t i = 0; i < trials.size(); ++i)
        run_trial(communicator, pool, pairs[i / shapes.size()], trials[i]);
    });
    int failures = 0;
    for (const Trial& trial : trials) {
      const std::vector<std::string> broken = broken_laws(trial);
      CHECK(broken.empty());
      for (const std::string& law : broken) {
        MESSAGE(trial.from.name << " -> " << trial.to.name << " " << to_string(trial.shape) << ", "
                                << ranks << " ranks, " << Way::name << ", "
                                << name(shardwise::dtype_v<T>) << " breaks the law: " << law);
        if (++failures == 20) return;  // more would say nothing new
      }
    }
  }
}

}  // namespace testing
