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
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layout_value.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/testing/calls.hpp"
#include "shardwise/testing/oracle.hpp"
#include "shardwise/testing/report.hpp"

namespace shardwise::detail {

enum class MadeOf { integers, reals };

/// The global number of each element that a rank holds; axes of a mesh cut the tensor from the
/// outer ones to the inner ones. By the oracle, which shares no code with what cuts tensors.
template <Layout L>
std::vector<std::size_t> global_numbers(const Shape& shape, const place_t<L>& place) {
  const MeshLayoutValue layout = layout_value<L>;
  MeshPlace on_mesh;
  if constexpr (MeshLayout<L>) {
    on_mesh = place;
  } else {
    on_mesh[MeshAxis::tensor] = place;
  }
  std::vector<std::size_t> numbers(shape.elements());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  Shape local = shape;
  for (const MeshAxis axis : mesh_axes) {
    const auto [rank, size] = on_mesh[axis];
    if (!layout[axis].cuts() || size == 1) continue;
    const Axis of_tensor = layout[axis].axis;
    const std::vector<std::size_t> owner = oracle::owners(local, of_tensor, size);
    std::vector<std::size_t> held;
    for (std::size_t i = 0; i < owner.size(); ++i)
      if (owner[i] == static_cast<std::size_t>(rank)) held.push_back(numbers[i]);
    Dim& cut = local[local.find(of_tensor)];
    const std::vector<std::size_t> of_unit = oracle::owners_of_units(cut.units, size);
    cut.units = static_cast<std::size_t>(
        std::count(of_unit.begin(), of_unit.end(), static_cast<std::size_t>(rank)));
    numbers = std::move(held);
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
  MeshLayoutValue layout;  ///< ranks along axes that do not cut it hold the same
  std::vector<std::size_t> elements;
  std::vector<double> values;
};

template <class T, Layout L>
NumberedValues numbered_values(std::string name, const char* advice, View<T, L> tensor) {
  return {std::move(name),
          advice,
          layout_value<L>,
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
/// `Counted` are CountingCommunicators for the same ranks, of one axis or of a mesh.
template <Communicator C, class Counted = CountingCommunicator<C>>
class ManyAgainstOne {
 public:
  /// `subject` says what is checked, at the beginning of each failure.
  ManyAgainstOne(C& ranks, Counted counted, std::string subject)
      : ranks_(ranks), counted_(std::move(counted)), subject_(std::move(subject)) {}

  /// The ranks, whose calls it counts.
  Counted& counted() { return counted_; }
  /// Forgets the calls that it has counted.
  void forget_calls() {
    for_each_axis([](MeshAxis, auto& along) { along.clear(); });
    counted_.clear();
  }
  /// What it has found on this rank.
  CheckReport& report() { return report_; }

  void fail(const std::string& sentence) { report_.failures.push_back(subject_ + ": " + sentence); }

  /// The calls since the last comparison must be those of the plan. A collective.
  void compare_calls(std::string_view part, const CollectiveList& planned) {
    for_each_axis([&](MeshAxis axis, auto& along) {
      const std::vector<CountedCall>& log = along.log();
      const std::string wrong = difference_from_plan(part, planned_calls<C>(planned, sizes(), axis),
                                                     counted_calls(ranks_, log));
      ++report_.checked;
      if (!wrong.empty()) fail(sentence({"it sends other than planned, in ", wrong, of(axis)}));
    });
    if (!has_axis_of_all() && !counted_.log().empty())
      fail(sentence({part, ": it calls ranks of several axes together, as no plan does"}));
    forget_calls();
  }

  /// What several ranks hold alike must have the same bits on all of them. A collective, which
  /// forgets the calls before it.
  void compare_copies(const NumberedValues& mine) {
    for_each_axis([&](MeshAxis axis, auto& along) {
      if (mine.layout[axis].cuts()) return;
      std::vector<double> first = mine.values;
      along.broadcast(std::span(first), 0);
      if (first != mine.values)
        fail(sentence({mine.name, " on rank ", along.rank(), " is not that of rank 0 bit by bit",
                       of(axis), ", and all should hold the same. ", mine.advice}));
    });
    forget_calls();
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
  static constexpr bool is_on_mesh = MeshCommunicator<Counted>;

  /// Calls f(axis, ranks along it) for each axis with several ranks; ranks of one axis are those
  /// along `tensor`.
  template <class F>
  void for_each_axis(const F& f) {
    if constexpr (is_on_mesh) {
      for (const MeshAxis axis : mesh_axes)
        if (counted_.sizes()[axis] > 1) f(axis, counted_.along(axis));
    } else {
      f(MeshAxis::tensor, counted_);
    }
  }

  mesh sizes() const {
    if constexpr (is_on_mesh) {
      return counted_.sizes();
    } else {
      return {.tensor = ranks_.size()};
    }
  }

  /// Whether the calls of all ranks are those along one axis.
  bool has_axis_of_all() const {
    return std::ranges::any_of(mesh_axes,
                               [&](MeshAxis axis) { return sizes()[axis] == ranks_.size(); });
  }

  /// " along data", for an error on a mesh.
  static std::string of(MeshAxis axis) {
    return is_on_mesh ? sentence({" along ", name(axis)}) : "";
  }

  C& ranks_;
  Counted counted_;
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
