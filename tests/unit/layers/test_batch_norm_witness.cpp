// Batch normalisation against values from PyTorch, whole and split by batch.

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "shardwise/layers/batch_norm.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;
using testing::Observed;
using witness::Values;

namespace {

Shape shape_of(const Values& c) {
  const auto& extents = c.shape("both/y");
  Shape shape{{Axis::batch, extents[0]},
              {extents.size() == 2 ? Axis::feature : Axis::channel, extents[1]}};
  if (extents.size() == 4) shape.append({Axis::height, extents[2]});
  if (extents.size() > 2) shape.append({Axis::width, extents.back()});
  return shape;
}

template <class T, class L, Affine A>
Observed run(const Values& c, int ranks) {
  const Shape shape = shape_of(c);
  return testing::run_on_witness<T, Ends<L, L>>(BatchNorm<dynamic, A>(shape[1].extent()), shape,
                                                ranks, {92, 93, 95},
                                                testing::RoundedTo<double>{92, c.number("offset")});
}

/// The deviation of x is more than 1/2, so that r, the mean in deviations, is at most 2 offset. In
/// T, x - mean has an error of r eps deviations; the variance, from sums in double, one of r²
/// 2^-53.
template <class T>
double bound(const Values& c) {
  const double r = 1 + 2 * c.number("offset");
  return 16 * (std::numeric_limits<T>::epsilon() * r + 0x1p-53 * r * r);
}

template <class T, class L>
void check(int ranks) {
  for (const Values& c : Values("layers/batch_norm").groups()) {
    CAPTURE(ranks);
    CAPTURE(to_string(shape_of(c)));
    testing::check_agrees(run<T, L, Affine::weight_and_bias>(c, ranks), c.group("both"),
                          bound<T>(c), testing::Relative{});
    testing::check_agrees(run<T, L, Affine::none>(c, ranks), c.group("plain"), bound<T>(c),
                          testing::Relative{});
  }
}

}  // namespace

TEST_CASE("values of PyTorch, in double") {
  check<double, Invariant>(1);
  for (const int ranks : {1, 2, 3, 8}) check<double, Sharded<Axis::batch>>(ranks);
}
TEST_CASE("values of PyTorch, in float") { check<float, Sharded<Axis::batch>>(3); }
