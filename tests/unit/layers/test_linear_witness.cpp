// The linear layer against values from PyTorch.

#include <doctest/doctest.h>

#include <limits>

#include "shardwise/layers/linear.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;

namespace {

/// A layer on the witness's tensors: x [5, 7] = made(1), W [6, 7] = made(2), b = made(3),
/// dy [5, 6] = made(4).
template <class T, class Layer>
testing::Observed run_on_witness(const Layer& layer, int ranks) {
  testing::Recorder recorder(ranks);
  run_ranks(ranks, [&](ThreadCommunicator& c) {
    using M = Model<Layer, Context<T, Reference, ThreadCommunicator>, Ends<Invariant, Invariant>,
                    TrainWithInputGradient>;
    M model(layer, c, Seed{1});
    const auto made = [&](std::uint64_t number, const Shape& shape) {
      return testing::part_of<T, Invariant>(
          testing::elements(testing::Data::reals, number, shape.elements()), shape, place_of(c));
    };
    std::uint64_t number = 2;
    std::vector<std::pair<std::string, Shape>> parameters;
    model.visit_parameters([&](auto& p) { parameters.emplace_back(p.name, p.spec.shape); });
    for (const auto& [name, shape] : parameters) model.set(name, made(number++, shape).view());
    const auto x = made(1, {{Axis::batch, 5}, {Axis::feature, 7}});
    recorder.put("y", model.forward(x.view()));
    const auto dy = made(4, {{Axis::batch, 5}, {Axis::feature, 6}});
    recorder.put("dx", model.backward(dy.view()));
    model.visit_parameters([&](auto& p) { recorder.put("d" + p.name, p.gradient); });
  });
  return recorder.take();
}

template <class T, Split S>
void check() {
  // The rounding error of a sum of 8 products below 1 in T. Partial sums over ranks round in
  // another order than PyTorch's, never by more than a few of those.
  constexpr double bound = 8 * static_cast<double>(std::numeric_limits<T>::epsilon());
  const witness::Values theirs("layers/linear");
  for (const int ranks : {1, 2, 3, 4, 8}) {
    CAPTURE(ranks);
    testing::check_agrees(run_on_witness<T>(Linear<S, 7, 6>{}, ranks), theirs.group("with_bias"),
                          bound);
    testing::check_agrees(run_on_witness<T>(Linear<S, 7, 6, false>{}, ranks),
                          theirs.group("without_bias"), bound);
  }
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
