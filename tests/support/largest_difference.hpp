#pragma once
// How far numbers are from those that they should be.

#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

#include "shardwise/core/dtype.hpp"
#include "shardwise/layout/view.hpp"

namespace testing {

/// The largest of the numbers it was shown. A NaN stays, so that no bound holds; `std::max` would
/// lose it.
class Largest {
 public:
  void see(double number) {
    if (number > value_ || std::isnan(number)) value_ = number;
  }
  operator double() const { return value_; }

 private:
  double value_ = 0;
};

/// The largest |a - b| of two arrays; infinite if their sizes differ, NaN if a difference is.
template <class A, class B>
double largest_difference(const A& a, const B& b) {
  if (std::size(a) != std::size(b)) return std::numeric_limits<double>::infinity();
  Largest largest;
  for (std::size_t i = 0; i < std::size(a); ++i)
    largest.see(std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

/// The largest difference of the rank's part of a tensor from element(i) of the whole one, over all
/// elements that `counts(i)`.
template <class V, class F, class Counts>
double largest_difference_of_part(const V& view, F&& element, Counts&& counts) {
  Largest largest;
  for_each_global_run(view, [&](std::size_t global, std::size_t local, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (!counts(global + i)) continue;
      const auto found =
          static_cast<shardwise::accumulate_t<typename V::value_type>>(view[local + i]);
      largest.see(std::abs(static_cast<double>(found) - element(global + i)));
    }
  });
  return largest;
}

/// The same over all elements.
template <class V, class F>
double largest_difference_of_part(const V& view, F&& element) {
  return largest_difference_of_part(view, element, [](std::size_t) { return true; });
}

}  // namespace testing
