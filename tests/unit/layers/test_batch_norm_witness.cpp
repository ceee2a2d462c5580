// Batch normalisation against values from PyTorch, whole and split by batch.

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "shardwise/layers/batch_norm.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;
using testing::Observed;
using testing::Whole;
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

Whole made(std::uint64_t number, std::size_t count, double offset = 0) {
  Whole whole = testing::elements(testing::Data::reals, number, count);
  for (double& value : whole) value += offset;
  return whole;
}

template <class T, class L, Affine A>
Observed run(const Values& c, int ranks) {
  testing::Recorder recorder(ranks);
  testing::run_on_ranks(ranks, [&](testing::Ranks& comm) {
    const Place place = place_of(comm);
    const Shape shape = shape_of(c);
    Model<BatchNorm<dynamic, A>, Context<T, Reference, testing::Ranks>, Ends<L, L>,
          TrainWithInputGradient>
        model(BatchNorm<dynamic, A>(shape[1].extent()), comm, Seed{1}, shape);
    std::vector<std::string> names;
    model.visit_parameters([&](auto& p) { names.push_back(p.name); });
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto values =
          testing::part_of<T, Invariant>(made(93 + i, shape[1].extent()), Shape{shape[1]}, place);
      model.set(names[i], values.view());
    }
    const auto part = [&](const Whole& whole) {
      return testing::part_of<T, L>(whole, shape, place);
    };
    const auto x = part(made(92, shape.elements(), c.number("offset")));
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
