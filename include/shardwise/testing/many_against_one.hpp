#pragma once
// What checks of layers and of losses share: data by global element, values of many ranks compared
// with those of one, and the calls of all ranks with a plan.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/testing/calls.hpp"
#include "shardwise/testing/oracle.hpp"
#include "shardwise/testing/report.hpp"

namespace shardwise::detail {

enum class MadeOf { integers, reals };

/// The global number of each element that a rank holds. By the oracle, which shares no code with
/// what cuts tensors.
template <Layout L>
std::vector<std::size_t> global_numbers(const Shape& shape, Place place) {
  std::vector<std::size_t> numbers;
  if constexpr (ShardedLayout<L>) {
    const std::vector<std::size_t> owner = oracle::owners(shape, L::axis, place.size);
    for (std::size_t i = 0; i < owner.size(); ++i)
      if (owner[i] == static_cast<std::size_t>(place.rank)) numbers.push_back(i);
  } else {
    numbers.resize(shape.elements());
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  }
  return numbers;
}

/// Calls f(element, number) for each element that a rank holds, with a number made of the seed and
/// of its place in the whole tensor: one of the integers -2, -1, 1 and 2, or one in [-1, 1).
template <class T, Layout L, class F>
void for_each_made(View<T, L> tensor, MadeOf what, std::uint64_t seed, F f) {
  static constexpr std::array integers{-2.0, -1.0, 1.0, 2.0};
  const auto numbers = global_numbers<L>(tensor.global(), tensor.place());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t bits = oracle::scrambled(seed, numbers[i]);
    f(tensor[i], what == MadeOf::integers ? integers[bits % 4] : bits * 0x1p-30 - 1);
  }
}

/// A rank's part of a tensor, with the global number of each element, and advice for an error.
struct NumberedValues {
  std::string name;
  const char* advice;
  bool is_copy;  ///< all ranks hold the same
  std::vector<std::size_t> elements;
  std::vector<double> values;
};

template <class T, Layout L>
NumberedValues numbered_values(std::string name, const char* advice, View<T, L> tensor) {
  return {std::move(name),
          advice,
          !ShardedLayout<L>,
          global_numbers<L>(tensor.global(), tensor.place()),
          {tensor.data(), tensor.data() + tensor.size()}};
}

/// " on 3 rank(s)".
inline std::string on_ranks(int ranks) { return " on " + std::to_string(ranks) + " rank(s)"; }

inline constexpr const char* advice_for_rounding =
    "The two differ by no more than rounding. If numbers here are no integers, as after a division "
    "or GELU, and another order of their sums is meant, set .exact = false.";

/// Two different numbers in so many digits that the texts differ.
inline std::array<std::string, 2> told_apart(double a, double b) {
  const auto in_digits = [](int digits, double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", digits, number);
    return std::string(text);
  };
  const int digits = in_digits(9, a) == in_digits(9, b) ? 17 : 9;
  return {in_digits(digits, a), in_digits(digits, b)};
}

/// The comparisons of this rank, one of many, with one rank alone and with a plan, as a report.
template <Communicator C>
class ManyAgainstOne {
 public:
  /// `subject` says what is checked, at the beginning of each failure.
  ManyAgainstOne(C& ranks, std::string subject)
      : ranks_(ranks), counted_(ranks), subject_(std::move(subject)) {}

  /// The ranks, whose calls it counts.
  CountingCommunicator<C>& counted() { return counted_; }
  /// What it has found on this rank.
  CheckReport& report() { return report_; }

  void fail(const std::string& sentence) { report_.failures.push_back(subject_ + ": " + sentence); }

  /// The calls since the last comparison must be those of the plan. A collective.
  void compare_calls(std::string_view part, const CollectiveList& planned) {
    const std::vector<CountedCall> log(counted_.log().begin(), counted_.log().end());
    const std::string wrong = difference_from_plan(part, planned_calls<C>(planned, ranks_.size()),
                                                   counted_calls(ranks_, log));
    ++report_.checked;
    if (!wrong.empty()) fail("it sends other than planned, in " + wrong);
    counted_.clear();
  }

  /// What all ranks hold must have the same bits on all. A collective.
  void compare_copies(const NumberedValues& mine) {
    if (!mine.is_copy) return;
    std::vector<double> first = mine.values;
    ranks_.broadcast(std::span(first), 0);
    if (first != mine.values)
      fail(mine.name + " on rank " + std::to_string(ranks_.rank()) +
           " is not that of rank 0 bit by bit, and all should hold the same. " + mine.advice);
  }

  /// `whole` is one rank's, and has all elements in their order. Differences up to `bound`, as in
  /// LayerChecks, are right; those up to `rounding` are told to be such.
  void compare_values(const NumberedValues& whole, const NumberedValues& mine, MadeOf what,
                      double bound, double rounding = 0) {
    double scale = 0;
    for (const double value : whole.values) scale = std::max(scale, std::abs(value));
    scale = std::max(scale, 1e-3);
    report_.checked += mine.values.size();
    if (mine.elements.size() != mine.values.size())
      return fail(mine.name + " has " + std::to_string(mine.values.size()) + " elements on rank " +
                  std::to_string(ranks_.rank()) + ", and should have " +
                  std::to_string(mine.elements.size()));
    for (std::size_t i = 0; i < mine.values.size(); ++i) {
      const double expected = whole.values[mine.elements[i]];
      const double difference = std::abs(mine.values[i] - expected);
      if (difference <= bound * scale) continue;
      const auto [here, alone] = told_apart(mine.values[i], expected);
      fail(sentence({mine.name, " is not that of one rank alone, on ",
                     what == MadeOf::integers ? "integers" : "random numbers", ": element ",
                     mine.elements[i], " is ", here, " on rank ", ranks_.rank(), ", and ", alone,
                     " alone. ",
                     difference <= rounding * scale ? advice_for_rounding : mine.advice}));
      return;
    }
  }

 private:
  C& ranks_;
  CountingCommunicator<C> counted_;
  std::string subject_;
  CheckReport report_;
};

/// The reports of check(ranks) on each of these numbers of threads, until one has a failure; an
/// exception of a rank is a failure too.
template <class Check>
CheckReport checked_on_threads(const std::string& name, std::span<const int> numbers,
                               const Check& check) {
  CheckReport all;
  for (const int number : numbers) {
    try {
      run_ranks(number, [&](ThreadCommunicator& ranks) {
        const CheckReport report = check(ranks);
        if (ranks.rank() == 0) all.add(report);
      });
    } catch (const error& e) {
      all.failures.push_back(name + on_ranks(number) + ": " + e.what());
    }
    if (!all.failures.empty()) break;
  }
  return all;
}

}  // namespace shardwise::detail
