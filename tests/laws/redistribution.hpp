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
// ended, with layouts as values, so that the part which is compiled for every pair stays small.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/redistribute/run.hpp"
#include "support/layouts.hpp"
#include "support/oracle.hpp"
#include "support/plain_communicator.hpp"
#include "support/shapes.hpp"

namespace testing {

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
[[gnu::noinline]] std::vector<T> narrow(const Values& values) {
  std::vector<T> result;
  for (const float value : values) result.push_back(static_cast<T>(value));
  return result;
}

template <class T>
[[gnu::noinline]] Values widen(const std::vector<T>& values) {
  Values result;
  for (const T value : values) result.push_back(static_cast<float>(value));
  return result;
}

/// out = R of in. Compiled once for each R and C and kept out of line, because it is most of what
/// this test compiles.
template <class R, class T, class C>
[[gnu::noinline]] void run(C& ranks, shardwise::Pool& pool, const Shape& shape,
                           const std::vector<T>& in, std::vector<T>& out) {
  const Place place = shardwise::place_of(ranks);
  shardwise::redistribute(ranks, pool, shardwise::View<const T, typename R::from>(in, shape, place),
                          shardwise::View<T, typename R::to>(out, shape, place));
}

/// R on memory of its own, which begins as what no result may contain.
template <class R, class T, class C>
std::vector<T> redistributed(C& ranks, shardwise::Pool& pool, const Shape& shape,
                             const std::vector<T>& in) {
  const Shape local = shardwise::local_shape<typename R::to>(shape, shardwise::place_of(ranks));
  std::vector<T> out(local.elements(), static_cast<T>(99.F));
  run<R>(ranks, pool, shape, in, out);
  return out;
}

/// Whether the input of R may be its output.
template <class R, class C>
inline constexpr bool may_share_memory =
    shardwise::moves_nothing<R, C> || R::movement == shardwise::Movement::all_reduce;

/// Whether the log of a counting communicator holds what R declares for `elements` local ones.
template <class R, class T, class C>
bool calls_as_declared(const C& ranks, std::size_t elements) {
  if (!R::operation()) return ranks.log().empty();
  return ranks.log().size() == 1 &&
         ranks.log()[0] == shardwise::CountedCall{*R::operation(), shardwise::dtype_v<T>, elements};
}

template <class From, class To, class T, class C>
void run_trial(C& ranks, shardwise::Pool& pool, Trial& trial) {
  using R = shardwise::Redistribute<From, To>;
  const auto rank = static_cast<std::size_t>(ranks.rank());
  const std::vector<T> x = narrow<T>(trial.x[rank]);
  if constexpr (requires { ranks.log(); }) ranks.clear();

  const std::vector<T> rx = redistributed<R>(ranks, pool, trial.shape, x);
  trial.rx[rank] = widen(rx);
  trial.x_after[rank] = widen(x);
  if constexpr (requires { ranks.log(); })
    trial.as_declared[rank] = calls_as_declared<R, T>(ranks, x.size());

  trial.ry[rank] = widen(
      redistributed<shardwise::adjoint_t<R>>(ranks, pool, trial.shape, narrow<T>(trial.y[rank])));

  if constexpr (shardwise::redistributable<To, From>) {
    trial.back[rank] =
        widen(redistributed<shardwise::Redistribute<To, From>>(ranks, pool, trial.shape, rx));
  }
  if constexpr (may_share_memory<R, C>) {
    std::vector<T> memory = x;
    run<R>(ranks, pool, trial.shape, memory, memory);
    trial.in_place[rank] = widen(memory);
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
  static constexpr std::array rank_counts{1};
  template <class F>
  static void run(int, F f) {
    Communicator alone;
    f(alone);
  }
};

template <class C>
struct OnThreads {
  using Communicator = C;
  static constexpr std::array rank_counts{1, 2, 3, 4, 5, 8};
  template <class F>
  static void run(int ranks, F f) {
    shardwise::run_ranks(ranks, [&](shardwise::ThreadCommunicator& threads) {
      Communicator communicator(threads);
      f(communicator);
    });
  }
};

struct Threads : OnThreads<shardwise::ThreadCommunicator> {
  static constexpr std::string_view name = "threads";
};
struct PlainThreads : OnThreads<PlainCommunicator<shardwise::ThreadCommunicator>> {
  static constexpr std::string_view name = "threads without direct reads";
};
struct CountedThreads : OnThreads<shardwise::CountingCommunicator<shardwise::ThreadCommunicator>> {
  static constexpr std::string_view name = "counted threads";
};

/// Every pair on every shape.
template <class C>
std::vector<Trial> all_trials(int ranks) {
  const std::vector<Shape> shapes = shapes_for(ranks);
  std::vector<Trial> trials;
  for_each_pair([&]<class From, class To>() {
    for (const Shape& shape : shapes) {
      trials.push_back(
          {.from = meaning_of<From>(),
           .to = meaning_of<To>(),
           .dual_from = meaning_of<shardwise::dual_t<From>>(),
           .dual_to = meaning_of<shardwise::dual_t<To>>(),
           .shape = shape,
           .ranks = ranks,
           .has_reverse = shardwise::redistributable<To, From>,
           .may_share_memory = may_share_memory<shardwise::Redistribute<From, To>, C>});
    }
  });
  return trials;
}

template <class T, class Way>
void check_laws() {
  using C = typename Way::Communicator;
  for (const int ranks : Way::rank_counts) {
    std::vector<Trial> trials = all_trials<C>(ranks);
    Way::run(ranks, [&](C& communicator) {
      shardwise::Pool pool;
      auto trial = trials.begin();
      for_each_pair([&]<class From, class To>() {
        const std::size_t shapes = shapes_for(ranks).size();
        for (std::size_t i = 0; i < shapes; ++i)
          run_trial<From, To, T>(communicator, pool, *trial++);
      });
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
