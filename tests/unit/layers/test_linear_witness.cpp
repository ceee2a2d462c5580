// The linear layer against values from PyTorch.

#include <doctest/doctest.h>

#include <limits>
#include <span>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/linear.hpp"
#include "support/largest_difference.hpp"
#include "witness/values/linear.hpp"

using namespace shardwise;
using testing::Whole;

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

/// Largest difference, in units of the rounding error of a sum of 8 products below 1 in T. Partial
/// sums over ranks round in another order than PyTorch's, never by more than a few of those.
template <class T>
double difference(const Whole& ours, std::span<const double> theirs) {
  return testing::largest_difference(ours, theirs) /
         (8 * static_cast<double>(std::numeric_limits<T>::epsilon()));
}

template <class T, Split S>
void check() {
  namespace values = witness::linear;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    CAPTURE(ranks);
    const auto with = run_on_witness<T>(Linear<S, 7, 6>{}, ranks);
    CHECK(difference<T>(with["y"], values::y) <= 1);
    CHECK(difference<T>(with["dx"], values::dx) <= 1);
    CHECK(difference<T>(with["dweight"], values::dw) <= 1);
    CHECK(difference<T>(with["dbias"], values::db) <= 1);
    const auto without = run_on_witness<T>(Linear<S, 7, 6, false>{}, ranks);
    CHECK(difference<T>(without["y"], values::y_without_bias) <= 1);
    CHECK(difference<T>(without["dx"], values::dx) <= 1);
    CHECK(difference<T>(without["dweight"], values::dw) <= 1);
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
