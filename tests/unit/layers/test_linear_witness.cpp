// The linear layer against values from PyTorch.

#include <doctest/doctest.h>

#include <limits>

#include "shardwise/layers/linear.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;

namespace {

/// A layer on x [5, 7], W [6, 7], b and dy [5, 6].
template <class T, Split S>
void check() {
  // The rounding error of a sum of 8 products below 1 in T. Partial sums over ranks round in
  // another order than PyTorch's, never by more than a few of those.
  constexpr double bound = 8 * static_cast<double>(std::numeric_limits<T>::epsilon());
  const witness::Values theirs("layers/linear");
  const auto check_form = [&](const auto& layer, const char* form) {
    const witness::Values of_form = theirs.group(form);
    testing::check_in<T, Invariant>(
        layer, Shape{{Axis::batch, 5}, {Axis::feature, 7}},
        testing::AgainstWitness{of_form, {1, 2, 4}, {1, 2, 3, 4, 8}, bound});
  };
  check_form(Linear<S, 7, 6>{}, "with_bias");
  check_form(Linear<S, 7, 6, false>{}, "without_bias");
}

}  // namespace

TEST_CASE("double: values of PyTorch") {
  SUBCASE("not split") { check<double, split::none>(); }
  SUBCASE("by output") { check<double, split::output>(); }
  SUBCASE("by input") { check<double, split::input>(); }
}

TEST_CASE("float: values of PyTorch") {
  SUBCASE("by output") { check<float, split::output>(); }
  SUBCASE("by input") { check<float, split::input>(); }
}
