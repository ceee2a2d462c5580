// Layers of activations against values from PyTorch, whole and split, and each dtype against
// double.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>

#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/prelu.hpp"
#include "shardwise/layers/softmax.hpp"
#include "shardwise/layers/times.hpp"
#include "support/is_as_expected.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;
using testing::AgainstWitness;

namespace {

using Batch = Sharded<Axis::batch>;
using Channels = Sharded<Axis::channel>;
using Features = Sharded<Axis::feature>;

const Shape images{{Axis::batch, 2}, {Axis::channel, 5}, {Axis::height, 3}, {Axis::width, 2}};
const Shape rows{{Axis::batch, 4}, {Axis::feature, 7}};

const std::vector<int> every_count{1, 2, 3, 4, 5, 6, 7, 8};

/// A weight's gradient is a sum of up to 60 products of numbers below 1.
template <class... Layouts, class L>
void check_prelu(const L& layer, const Shape& shape, const std::string& name) {
  const witness::Values theirs("layers/parametric_relu/" + name);
  testing::check_in<double, Layouts...>(layer, shape,
                                        AgainstWitness{theirs, {90, 91, 92}, every_count, 1e-14});
}

/// `layer` in T on tensors that are rounded to T, against double on the same tensors, relative to
/// the largest element.
template <class T, class L>
void check_rounds_once(const L& layer, const Shape& shape, double bound) {
  using E = Ends<Invariant, Invariant>;
  const testing::RoundedTo<T> rounded;
  testing::check_near(testing::run_on_witness<T, E>(layer, shape, 1, {90, 91, 92}, rounded),
                      testing::run_on_witness<double, E>(layer, shape, 1, {90, 91, 92}, rounded),
                      bound);
}

}  // namespace

TEST_CASE("a learned slope: values of PyTorch") {
  SUBCASE("one for all") {
    check_prelu<Invariant, Batch, Channels, Sharded<Axis::height>>(PRelu<>{}, images, "one");
  }
  SUBCASE("one for each channel") {
    check_prelu<Invariant, Batch, Channels, Sharded<Axis::width>>(PRelu<5>{}, images, "images");
  }
  SUBCASE("one for each feature") {
    check_prelu<Invariant, Batch, Features>(PRelu<dynamic>(7), rows, "rows");
  }
}

TEST_CASE("a softmax: values of PyTorch") {
  for (const witness::Values& c : witness::Values("layers/softmax").groups()) {
    const auto& extents = c.shape("rows/y");
    const auto scaled = [&](std::uint64_t number, std::size_t count) {
      testing::Whole whole = testing::AsMade{}(number, count);
      for (double& value : whole) value *= number == 90 ? c.number("scale") : 1;
      return whole;
    };
    const Shape shape{
        {Axis::batch, extents[0]}, {Axis::sequence, extents[1]}, {Axis::feature, extents[2]}};
    testing::check_in<double, Features, Sharded<Axis::sequence>>(
        Softmax{}, shape, AgainstWitness{c.group("rows"), {90, 0, 91}, every_count, 1e-14}, scaled);
  }
  CHECK_THROWS_AS(Softmax{}.output_shape(images), shape_error);
}

TEST_CASE_TEMPLATE("a softmax of infinities and NaN: values of PyTorch", T, float, double, bf16,
                   fp16) {
  const witness::Values far("far/far_softmax");
  const auto given = [&](std::uint64_t number, std::size_t count) {
    testing::Whole whole = testing::AsMade{}(number, count);
    if (number == 90) whole.assign(far["x"].begin(), far["x"].end());
    return whole;
  };
  const Shape shape{{Axis::batch, far.shape("x")[0]}, {Axis::feature, far.shape("x")[1]}};
  const auto at = [&]<class In>(std::type_identity<In>, int ranks) {
    const auto ours =
        testing::run_on_witness<T, Ends<In, In>>(Softmax{}, shape, ranks, {90, 0, 91}, given);
    for (const char* tensor : {"y", "dx"}) {
      for (std::size_t i = 0; i < shape.elements(); ++i) {
        CAPTURE(tensor);
        CAPTURE(i);
        CAPTURE(ours[tensor][i]);
        CHECK(testing::is_as_expected(ours[tensor][i], far[tensor][i], 2 * testing::eps<T>));
      }
    }
  };
  at(std::type_identity<Invariant>{}, 1);
  for (const int ranks : {2, 3, 4}) at(std::type_identity<Features>{}, ranks);
}

TEST_CASE("each dtype rounds once") {
  check_rounds_once<float>(PRelu<5>{}, images, 0x1p-24);
  check_rounds_once<bf16>(PRelu<5>{}, images, 0x1p-8);
  check_rounds_once<fp16>(PRelu<>{}, images, 0x1p-11);
  check_rounds_once<float>(Softmax{}, rows, 4 * 0x1p-24);
  check_rounds_once<bf16>(Softmax{}, rows, 4 * 0x1p-8);
  check_rounds_once<fp16>(Softmax{}, rows, 4 * 0x1p-11);
  // The slopes of LeakyRelu and Softplus are taken from a rounded output.
  using Elus = Sequential<Elu<1, 2>, LeakyRelu<1, 5>>;
  check_rounds_once<float>(Elus{}, images, 4 * 0x1p-24);
  check_rounds_once<bf16>(Sequential<Softplus, HardSwish>{}, images, 4 * 0x1p-8);
  check_rounds_once<fp16>(Elus{}, images, 4 * 0x1p-11);
}

TEST_CASE("the slope of an ELU is e^x far below 0, where its output is rounded to the limit") {
  const auto far = [](std::uint64_t number, std::size_t count) {
    return testing::Whole(count, number == 90 ? -6.5 : 1);
  };
  const Shape one{{Axis::batch, 1}, {Axis::feature, 1}};
  const auto ours =
      testing::run_on_witness<bf16, Ends<Invariant, Invariant>>(Elu<>{}, one, 1, {90, 0, 91}, far);
  CHECK(ours["y"][0] == -1);
  CHECK(ours["dx"][0] == doctest::Approx(std::exp(-6.5)).scale(0).epsilon(0x1p-8));
}

TEST_CASE("slopes of channels begin as a quarter, and do not decay") {
  const auto spec = PRelu<5>{}.parameter_specs(images)[0];
  CHECK(spec.shape == Shape{{Axis::channel, 5}});
  CHECK(spec.begins({}).scale == 0.25);
  CHECK(!spec.decays);
  CHECK(PRelu<>{}.parameter_specs(images)[0].shape.elements() == 1);
  CHECK_THROWS_WITH_AS(PRelu<4>{}.output_shape(images),
                       "the input is a tensor [batch 2, channel 5, height 3, width 2], but the "
                       "layer has a slope for each of 4 channels or features: there must be one "
                       "such axis, with that extent",
                       shape_error);
}

TEST_CASE("names of activations") {
  CHECK(detail::name_of<PRelu<>>() == "PRelu");
  CHECK(detail::name_of<PRelu<64>>() == "PRelu<64>");
  CHECK(detail::name_of<HardSwish>() == "HardSwish");
  CHECK(detail::name_of<Times<activations::HardSwish>>() == "Times<HardSwish>");
}
