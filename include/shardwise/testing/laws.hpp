#pragma once
// The laws of redistribution, for every pair of layouts on the ranks of any communicator. For your
// own communicators.
//
//   adjoint      <R x, y> == <x, adjoint(R) y>, inner products on the global tensor
//   value        R changes the layout of a tensor, not its value
//   round trip   R and then its reverse gives back the value
//   input        R does not change its input
//   in place     an all-reduce, or an R that moves nothing, may work in place
//   calls        R makes the one collective that it declares, or none
//
// The ranks only run redistributions and record their parts; the oracle checks them after all have
// ended. All functions but `run_redistribution` take layouts as values, so that the code for every
// pair stays small.

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/redistribute/run.hpp"
#include "shardwise/testing/layouts.hpp"
#include "shardwise/testing/oracle.hpp"
#include "shardwise/testing/report.hpp"

namespace shardwise {

namespace detail::oracle {

/// out = R of in; if they are different memory, out begins with values that no result may have.
template <class R, class T, class C>
void run_redistribution(C& ranks, Pool& pool, const Shape& shape, const std::vector<T>& in,
                        std::vector<T>& out) {
  using From = typename R::from;
  using To = typename R::to;
  const Place place = place_of(ranks);
  if (&in != &out) out.assign(local_shape<To>(shape, place).elements(), static_cast<T>(99.F));
  redistribute(ranks, pool, View<const T, From>(in, shape, place), View<T, To>(out, shape, place));
}

/// A pair From -> To as values.
template <class T, class C>
struct Pair {
  /// A call of `run_redistribution`.
  using Run = decltype(&run_redistribution<Redistribute<Invariant, Invariant>, T, C>);

  ///@{
  /// The two layouts and their duals.
  Meaning from, to, dual_from, dual_to;
  ///@}
  std::optional<Operation> operation;  ///< the operation that R declares
  ///@{
  /// R, and its adjoint.
  Run forward, adjoint;
  ///@}
  Run reverse = nullptr;   ///< To -> From; null if there is none
  Run in_place = nullptr;  ///< forward with one memory for both; null if not allowed
};

/// The pair From -> To.
template <class From, class To, class T, class C>
Pair<T, C> pair_of() {
  using R = Redistribute<From, To>;
  Pair<T, C> pair{meaning_of<From>(),
                  meaning_of<To>(),
                  meaning_of<dual_t<From>>(),
                  meaning_of<dual_t<To>>(),
                  R::operation(),
                  run_redistribution<R, T, C>,
                  run_redistribution<adjoint_t<R>, T, C>};
  if constexpr (redistributable<To, From>)
    pair.reverse = run_redistribution<Redistribute<To, From>, T, C>;
  if constexpr (moves_nothing<R, C> || R::movement == Movement::all_reduce)
    pair.in_place = run_redistribution<R, T, C>;
  return pair;
}

/// All pairs of `for_each_pair`.
template <class T, class C>
std::vector<Pair<T, C>> all_pairs() {
  std::vector<Pair<T, C>> pairs;
  for_each_pair([&]<class From, class To>() { pairs.push_back(pair_of<From, To, T, C>()); });
  return pairs;
}

/// One pair on one tensor: the input and output of every rank.
struct Trial {
  ///@{
  /// As Pair says.
  Meaning from, to, dual_from, dual_to;
  ///@}
  Shape shape;  ///< global
  int ranks;    ///< number of ranks
  ///@{
  /// Whether there is a redistribution To -> From, and whether R may write to its input.
  bool has_reverse, may_share_memory;
  ///@}

  ///@{
  /// The global tensors that R and its adjoint get, and the ranks' parts of them.
  Values value = small_integers(1, shape.elements());
  Values gradient = small_integers(2, shape.elements());
  PerRank x = lay_out(from, shape, ranks, value);
  PerRank y = lay_out(dual_to, shape, ranks, gradient);
  ///@}

  ///@{
  /// R x and adjoint(R) y.
  PerRank rx{x.size()}, ry{x.size()};
  ///@}
  PerRank x_after{x.size()};                                       ///< x after R
  PerRank back{x.size()};                                          ///< the reverse of R, on R x
  PerRank in_place{x.size()};                                      ///< R x in the memory of x
  std::vector<char> as_declared = std::vector<char>(x.size(), 1);  ///< whether the calls were
};

/// A pair on a tensor of global shape `shape`, before it is run.
template <class T, class C>
Trial trial_of(const Pair<T, C>& pair, const Shape& shape, int ranks) {
  return {pair.from, pair.to, pair.dual_from,          pair.dual_to,
          shape,     ranks,   pair.reverse != nullptr, pair.in_place != nullptr};
}

///@{
/// Elements as numbers of type T, and back.
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
///@}

/// Whether a counting communicator has recorded the collective of `pair`, on `elements` local
/// elements, and no other call.
template <class T, class C>
bool calls_as_declared(const Pair<T, C>& pair, const C& ranks, std::size_t elements) {
  if (!pair.operation) return ranks.log().empty();
  return ranks.log().size() == 1 &&
         ranks.log()[0] == CountedCall{*pair.operation, dtype_v<T>, elements};
}

/// Runs a pair on this rank. `note(notes, values)` records the rank's part for the check.
template <class T, class C, class Note>
void run_trial(C& ranks, Pool& pool, const Pair<T, C>& pair, Trial& trial, Note note) {
  const auto rank = static_cast<std::size_t>(ranks.rank());
  std::vector<T> x = narrow<T>(trial.x[rank]);
  std::vector<T> rx, ry, back;
  if constexpr (requires { ranks.log(); }) ranks.clear();

  pair.forward(ranks, pool, trial.shape, x, rx);
  if constexpr (requires { ranks.log(); })
    trial.as_declared[rank] = calls_as_declared(pair, ranks, x.size());
  note(trial.rx, widen(rx));
  note(trial.x_after, widen(x));

  pair.adjoint(ranks, pool, trial.shape, narrow<T>(trial.y[rank]), ry);
  note(trial.ry, widen(ry));

  if (pair.reverse != nullptr) {
    pair.reverse(ranks, pool, trial.shape, rx, back);
    note(trial.back, widen(back));
  }
  if (pair.in_place != nullptr) {
    pair.in_place(ranks, pool, trial.shape, x, x);
    note(trial.in_place, widen(x));
  }
}

/// Checks a trial against the laws: returns the names of those that it breaks.
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

/// "Partial -> Invariant on [batch 3, feature 5], 4 ranks, float32, breaks the law: value".
inline std::string broken_law(const Trial& trial, Dtype dtype, const std::string& law) {
  return trial.from.name + " -> " + trial.to.name + " on " + to_string(trial.shape) + ", " +
         std::to_string(trial.ranks) + " ranks, " + std::string(name(dtype)) +
         ", breaks the law: " + law;
}

}  // namespace detail::oracle

namespace detail {

/// The parts of all ranks, by a gather whose blocks differ in size. A collective.
template <class C>
void note_from_all(C& ranks, oracle::PerRank& notes, const oracle::Values& mine) {
  std::vector<std::int64_t> sizes(notes.size());
  sizes[static_cast<std::size_t>(ranks.rank())] = static_cast<std::int64_t>(mine.size());
  ranks.all_reduce(std::span<const std::int64_t>(sizes), std::span(sizes));
  std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  oracle::Values all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  ranks.all_gather(std::span<const float>(mine), std::span(all), counts);
  for (std::size_t r = 0, begin = 0; r < notes.size(); begin += counts[r++])
    notes[r].assign(all.begin() + static_cast<std::ptrdiff_t>(begin),
                    all.begin() + static_cast<std::ptrdiff_t>(begin + counts[r]));
}

template <class T, Communicator C>
CheckReport check_pairs(C& ranks, const std::vector<oracle::Pair<T, C>>& pairs,
                        const std::vector<Shape>& shapes) {
  CheckReport report;
  Pool pool;
  for (const oracle::Pair<T, C>& pair : pairs)
    for (const Shape& shape : shapes) {
      oracle::Trial trial = oracle::trial_of(pair, shape, ranks.size());
      oracle::run_trial(ranks, pool, pair, trial,
                        [&](oracle::PerRank& notes, const oracle::Values& values) {
                          note_from_all(ranks, notes, values);
                        });
      ++report.checked;
      for (const std::string& law : oracle::broken_laws(trial))
        report.failures.push_back(oracle::broken_law(trial, dtype_v<T>, law));
    }
  agree_on_failures(ranks, report.failures);
  return report;
}

}  // namespace detail

/// Checks the redistribution From -> To and its adjoint against the laws, on tensors of these
/// shapes whose elements are integers, exactly. T is any dtype that layers compute with.
///
///     run_ranks(4, [](ThreadCommunicator& ranks) {
///       check_redistribution<Partial, Sharded<Axis::batch>>(ranks, {shape}).require();
///     });
///
/// A collective: every rank calls it with equal arguments, and all get the same report. It uses
/// `ranks` for its own gathers and sums.
template <Layout From, Layout To, Real T = float, Communicator C>
CheckReport check_redistribution(C& ranks, const std::vector<Shape>& shapes) {
  return detail::check_pairs<T, C>(ranks, {detail::oracle::pair_of<From, To, T, C>()}, shapes);
}

/// The same for every pair of layouts of a tensor with the axes batch, sequence and feature:
/// `shapes_for(ranks.size())` has even, uneven and empty shapes.
template <Real T = float, Communicator C>
CheckReport check_all_redistributions(C& ranks, const std::vector<Shape>& shapes) {
  return detail::check_pairs<T, C>(ranks, detail::oracle::all_pairs<T, C>(), shapes);
}

}  // namespace shardwise
