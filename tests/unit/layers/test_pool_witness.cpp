// Pooling against values from PyTorch, whole and split by its outermost axis of space, and what it
// refuses.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "shardwise/layers/average_pool.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/global_max_pool.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;
using testing::Whole;

namespace {

const Shape lines{{Axis::batch, 2}, {Axis::channel, 2}, {Axis::width, 11}};
const Shape pictures{{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 7}, {Axis::width, 9}};
const Shape volumes{
    {Axis::batch, 1}, {Axis::channel, 2}, {Axis::depth, 5}, {Axis::height, 4}, {Axis::width, 6}};

/// Integers from -3 to 2 for x, many of them equal.
Whole made(std::uint64_t number, std::size_t count) {
  Whole whole = testing::AsMade{}(number, count);
  if (number == 90)
    for (double& value : whole) value = std::floor(3 * value);
  return whole;
}

/// Maxima are exact, the sums of up to 27 numbers below 4 nearly; a gradient is a sum of up to 27.
template <class L, Axis A, Layout Wanted = Sharded<A>, class T = double>
void check(const Shape& shape, const std::string& name, double bound = 1e-14) {
  const witness::Values theirs("layers/pooling/" + name);
  testing::check_between<T, Ends<Sharded<A>, Wanted>>(
      L{}, shape, testing::AgainstWitness{theirs, {90, 0, 91}, {1, 3}, bound}, made);
}

constexpr PoolWindows::Options two{.stride = {2, 1}, .padding = {1, 1}};

}  // namespace

TEST_CASE("values of PyTorch") {
  check<MaxPool1d<pool(4, {.stride = 3, .padding = 2})>, Axis::width>(lines, "max1");
  check<MaxPool2d<pool({3, 2}, {.stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}})>,
        Axis::height>(pictures, "max2");
  check<MaxPool3d<pool(3, {.stride = 2, .padding = 1})>, Axis::depth>(volumes, "max3");
  check<AveragePool1d<pool(4, {.stride = 3, .padding = 2})>, Axis::width>(lines, "mean1");
  check<AveragePool2d<pool({3, 2}, two)>, Axis::height>(pictures, "mean2");
  check<AveragePool2d<pool({3, 2}, {.stride = {2, 1}, .padding = {1, 1}, .counts_padding = false})>,
        Axis::height>(pictures, "own2");
  check<AveragePool3d<pool(3, {.stride = 2, .padding = 1, .counts_padding = false})>, Axis::depth>(
      volumes, "mean3");
  check<GlobalAveragePool, Axis::height, Invariant>(pictures, "global2");
}

TEST_CASE("values of PyTorch in ceil mode") {
  check<MaxPool1d<pool(3, {.ceil_mode = true})>, Axis::width>(lines, "max_ceil1");
  check<MaxPool2d<pool(2, {.stride = {4, 2}, .padding = 1, .ceil_mode = true})>, Axis::height>(
      pictures, "max_ceil2");
  check<AveragePool2d<pool(4, {.stride = 3, .ceil_mode = true})>, Axis::height>(pictures,
                                                                                "mean_ceil2");
  check<AveragePool2d<pool(
            {4, 2}, {.stride = 2, .padding = 1, .counts_padding = false, .ceil_mode = true})>,
        Axis::height>(pictures, "own_ceil2");
}

TEST_CASE("values of PyTorch of whole planes") {
  check<GlobalMaxPool, Axis::width, Invariant>(lines, "max_global1");
  check<GlobalMaxPool, Axis::height, Invariant>(pictures, "max_global2");
  check<GlobalMaxPool, Axis::width, Invariant>(pictures, "max_global2");
  check<GlobalMaxPool, Axis::channel>(pictures, "max_global2");
  check<GlobalMaxPool, Axis::height, Invariant>(volumes, "max_global3");
}

// All of it is copied: maxima, and gradients below 1, which bf16 rounds by up to 2^-9.
TEST_CASE("values of PyTorch of whole planes, in float and in bf16") {
  check<GlobalMaxPool, Axis::height, Invariant, float>(pictures, "max_global2", 0);
  check<GlobalMaxPool, Axis::channel, Sharded<Axis::channel>, float>(pictures, "max_global2", 0);
  check<GlobalMaxPool, Axis::height, Invariant, bf16>(pictures, "max_global2", 0x1p-9);
  check<GlobalMaxPool, Axis::channel, Sharded<Axis::channel>, bf16>(pictures, "max_global2",
                                                                    0x1p-9);
}

TEST_CASE("NaN is the largest element, unless the maximum over ranks left it out") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {1, nan, 2}, most[] = {2, nan};
  const detail::PlanePart part{.here = {1, 1, 3}, .first = {}, .all = {1, 1, 3}};
  const auto is_place = [&](const float* largest, std::size_t i) {
    return !std::isinf(detail::PlaceOfLargest<float>{part, x, largest}(0)(i));
  };
  CHECK((!is_place(most, 0) && !is_place(most, 1) && is_place(most, 2)));
  CHECK((!is_place(most + 1, 0) && is_place(most + 1, 1) && !is_place(most + 1, 2)));
}

TEST_CASE("what cannot be pooled is refused, with the layer's place") {
  const auto shape_of = [](std::size_t height, std::size_t width) {
    return Shape{
        {Axis::batch, 1}, {Axis::channel, 2}, {Axis::height, height}, {Axis::width, width}};
  };
  using Large = MaxPool2d<pool({5, 2}, {.padding = {1, 0}})>;
  CHECK(Large{}.output_shape(shape_of(3, 2)) == shape_of(1, 1));
  CHECK_THROWS_WITH_AS(
      Large{}.output_shape(shape_of(2, 2)),
      "the input is a tensor [batch 1, channel 2, height 2, width 2], whose height "
      "is too small for a window of kernel 5 stride 5 dilation 1 padding 1+1, which "
      "reaches over 5: take larger images or a smaller window",
      shape_error);
  CHECK_THROWS_WITH_AS(AveragePool2d<2>{}.output_shape(lines),
                       "the input is a tensor [batch 2, channel 2, width 11], but the layer pools "
                       "images [batch, channel, height, width] of at least one element along every "
                       "axis of space, of grain 1",
                       shape_error);
  CHECK_THROWS_AS(AveragePool2d<pool(2, {.padding = 1})>{}.output_shape(shape_of(0, 2)),
                  shape_error);
  CHECK_THROWS_AS(MaxPool2d<2>{}.output_shape({{Axis::batch, 1}, {Axis::feature, 4}}), shape_error);
  CHECK_THROWS_AS(GlobalAveragePool{}.output_shape(shape_of(2, 0)), shape_error);
  CHECK_THROWS_AS(GlobalAveragePool{}.output_shape({{Axis::batch, 1}, {Axis::channel, 4}}),
                  shape_error);

  // Ranks that split another axis than those of space would take their parts for the whole.
  const Shape tokens{{Axis::batch, 1}, {Axis::channel, 4}, {Axis::sequence, 5}};
  CHECK_THROWS_WITH_AS(
      GlobalMaxPool{}.output_shape(tokens),
      "the input is a tensor [batch 1, channel 4, sequence 5], but the layer pools the planes of "
      "images [batch, channel, (depth,) (height,) width], which must have elements",
      shape_error);
  CHECK_THROWS_AS(GlobalAveragePool{}.output_shape(tokens), shape_error);
  CHECK_THROWS_AS(GlobalMaxPool{}.output_shape({{Axis::batch, 1},
                                                {Axis::channel, 4},
                                                {Axis::sequence, 2},
                                                {Axis::depth, 2},
                                                {Axis::height, 2},
                                                {Axis::width, 2}}),
                  shape_error);

  SingleRank alone;
  Model<Sequential<MaxPool2d<2>>, Context<float, Reference, SingleRank>, Ends<Invariant, Invariant>,
        TrainWithInputGradient>
      model(alone, Seed{1});
  const Tensor<float, Invariant> x(shape_of(1, 2));
  CHECK_THROWS_WITH_AS(model.forward(x.view()),
                       doctest::Contains("0: MaxPool2d<2x2>: the input is a tensor"), shape_error);
}

TEST_CASE("names") {
  CHECK(detail::name_of<MaxPool2d<2>>() == "MaxPool2d<2x2>");
  CHECK(detail::name_of<MaxPool1d<pool(3, {.stride = 1, .padding = same, .dilation = 2})>>() ==
        "MaxPool1d<3, stride 1, padding 2, dilation 2>");
  CHECK(detail::name_of<
            AveragePool2d<pool(3, {.padding = sides(1, 0), .counts_padding = false})>>() ==
        "AveragePool2d<3x3, padding (1+0)x(1+0), not counted>");
  CHECK(detail::name_of<MaxPool1d<pool(3, {.ceil_mode = true})>>() == "MaxPool1d<3, ceil mode>");
  CHECK(detail::name_of<GlobalMaxPool>() == "GlobalMaxPool");
  CHECK(detail::name_of<GlobalAveragePool>() == "GlobalAveragePool");
}
