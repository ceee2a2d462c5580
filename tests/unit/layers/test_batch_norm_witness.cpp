// Batch normalisation against values from PyTorch, whole and split by batch.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "witness/values/batch_norm.hpp"

using namespace shardwise;
using testing::Observed;
using testing::Whole;
using witness::batch_norm::Case;

namespace {

Shape shape_of(const Case& c) {
  Shape shape{{Axis::batch, c.batch}, {c.width == 0 ? Axis::feature : Axis::channel, c.channels}};
  if (c.height > 0) shape.append({Axis::height, c.height});
  if (c.width > 0) shape.append({Axis::width, c.width});
  return shape;
}

Whole made(std::uint64_t number, std::size_t count, double offset = 0) {
  Whole whole = testing::elements(testing::Data::reals, number, count);
  for (double& value : whole) value += offset;
  return whole;
}

template <class T, class L, Affine A>
Observed run(const Case& c, int ranks) {
  testing::Recorder recorder(ranks);
  testing::run_on_ranks(ranks, [&](testing::Ranks& comm) {
    const Place place = place_of(comm);
    const Shape shape = shape_of(c);
    Model<BatchNorm<dynamic, A>, Context<T, Reference, testing::Ranks>, Ends<L, L>,
          TrainWithInputGradient>
        model(BatchNorm<dynamic, A>(c.channels), comm, Seed{1}, shape);
    std::vector<std::string> names;
    model.visit_parameters([&](auto& p) { names.push_back(p.name); });
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto values =
          testing::part_of<T, Invariant>(made(93 + i, c.channels), Shape{shape[1]}, place);
      model.set(names[i], values.view());
    }
    const auto part = [&](const Whole& whole) {
      return testing::part_of<T, L>(whole, shape, place);
    };
    const auto x = part(made(92, shape.elements(), c.offset));
    recorder.put("y", model.forward(x.view()));
    const auto dy = part(made(95, shape.elements()));
    recorder.put("dx", model.backward(dy.view()));
    model.settle_gradients();
    model.visit_parameters([&](auto& p) { recorder.put("d" + p.name, p.gradient); });
    model.visit_buffers([&](auto& b) { recorder.put(b.name, b.value); });
    recorder.put("evaluated", model.evaluate(x.view()));
  });
  return recorder.take();
}

/// The largest difference, relative to the largest element or to 1.
double difference(const Whole& ours, std::span<const double> theirs) {
  if (ours.size() != theirs.size()) return INFINITY;
  double largest = 0;
  double scale = 1;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (!std::isfinite(ours[i])) return INFINITY;
    largest = std::max(largest, std::abs(ours[i] - theirs[i]));
    scale = std::max(scale, std::abs(theirs[i]));
  }
  return largest / scale;
}

/// The deviation of x is more than 1/2, so that r, the mean in deviations, is at most 2 offset. In
/// T, x - mean has an error of r eps deviations; the variance, from sums in double, one of r²
/// 2^-53.
template <class T>
double bound(const Case& c) {
  const double r = 1 + 2 * c.offset;
  return 16 * (std::numeric_limits<T>::epsilon() * r + 0x1p-53 * r * r);
}

template <class T, class L>
void check(int ranks) {
  for (const Case& c : witness::batch_norm::cases) {
    CAPTURE(ranks);
    CAPTURE(to_string(shape_of(c)));
    const double small = bound<T>(c);
    const Observed both = run<T, L, Affine::weight_and_bias>(c, ranks);
    CHECK(difference(both["y"], c.y) <= small);
    CHECK(difference(both["dx"], c.dx) <= small);
    CHECK(difference(both["dweight"], c.dw) <= small);
    CHECK(difference(both["dbias"], c.db) <= small);
    CHECK(difference(both["running_mean"], c.running_mean) <= small);
    CHECK(difference(both["running_var"], c.running_var) <= small);
    CHECK(difference(both["evaluated"], c.evaluated) <= small);
    const Observed plain = run<T, L, Affine::none>(c, ranks);
    CHECK(difference(plain["y"], c.y_plain) <= small);
    CHECK(difference(plain["dx"], c.dx_plain) <= small);
  }
}

}  // namespace

TEST_CASE("values of PyTorch, in double") {
  check<double, Invariant>(1);
  for (const int ranks : {1, 2, 3, 8}) check<double, Sharded<Axis::batch>>(ranks);
}
TEST_CASE("values of PyTorch, in float") { check<float, Sharded<Axis::batch>>(3); }
