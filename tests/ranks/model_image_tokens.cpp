// From images to tokens with a class token in front, at 1 to 8 ranks, against formulas, in every
// layout.

#include <doctest/doctest.h>

#include <cstddef>

#include "ranks/layer_on_ranks.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/class_token.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/planes_to_tokens.hpp"
#include "shardwise/model/model.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"

using namespace shardwise;
using testing::filled;
using testing::largest_difference_of_part;
using testing::message_of;
using testing::Ranks;

namespace {

using Feature = Sharded<Axis::feature>;
using Batch = Sharded<Axis::batch>;

constexpr std::size_t samples = 3, channels = 5, height = 2, width = 3, pixels = height * width;
constexpr Shape images{{Axis::batch, samples},
                       {Axis::channel, channels},
                       {Axis::height, height},
                       {Axis::width, width}};
constexpr Shape tokens{{Axis::batch, samples}, {Axis::sequence, pixels}, {Axis::feature, channels}};

/// Whole numbers.
double number_of(std::size_t i) { return static_cast<double>(i % 13) - 6; }

template <class T>
auto number(std::size_t i) {
  return static_cast<accumulate_t<T>>(number_of(i));
}

/// The element of the images that is element i of the tokens.
std::size_t pixel_of(std::size_t i) {
  const std::size_t channel = i % channels, pixel = i / channels % pixels;
  return (i / channels / pixels * channels + channel) * pixels + pixel;
}

template <class T, Layout In, Layout Out>
void check_planes() {
  CAPTURE(layout_name<In>());
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    testing::run_on_ranks(ranks, [&](Ranks& group) {
      const Place place = place_of(group);
      Model<PlanesToTokens, Context<T, Reference, Ranks>, Ends<In, Out>, TrainWithInputGradient>
          model(PlanesToTokens{}, group, Seed{1}, images);
      auto x = filled<T, In>(images, place, number<T>);
      if (std::same_as<In, Partial> && place.rank > 0) x = Tensor<T, In>(images, place);
      const auto y = model.forward(x.view());
      REQUIRE(y.global() == tokens);
      const auto of_y = [](std::size_t i) { return number_of(pixel_of(i)); };
      if (!std::same_as<Out, Partial> || place.rank == 0)
        CHECK(largest_difference_of_part(y, of_y) == 0);
      const auto dy = filled<T, dual_t<Out>>(
          tokens, place, [&](std::size_t i) { return number<T>(3 * pixel_of(i) + 1); });
      const auto dx = model.backward(dy.view());
      CHECK(largest_difference_of_part(dx, [](std::size_t i) { return number_of(3 * i + 1); }) ==
            0);
    });
  }
}

using Token = ClassToken<channels>;

template <class T, Layout L>
void check_token() {
  CAPTURE(layout_name<L>());
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    testing::run_on_ranks(ranks, [&](Ranks& group) {
      const Place place = place_of(group);
      Model<Token, Context<T, Reference, Ranks>, Ends<L, Invariant>, TrainWithInputGradient> model(
          Token{}, group, Seed{1}, tokens);
      const auto token = filled<T, Invariant>({{Axis::feature, channels}}, place,
                                              [](std::size_t i) { return number<T>(i + 9); });
      model.set("weight", token.view());
      auto x = filled<T, L>(tokens, place, number<T>);
      if (std::same_as<L, Partial> && place.rank > 0) x = Tensor<T, L>(tokens, place);
      constexpr std::size_t sample = (pixels + 1) * channels;
      constexpr Shape longer{
          {Axis::batch, samples}, {Axis::sequence, pixels + 1}, {Axis::feature, channels}};
      const auto dy = filled<T, Invariant>(longer, place, number<T>);
      for (int batch = 0; batch < 2; ++batch) {
        const auto y = model.forward(x.view());
        REQUIRE(y.global() == longer);
        CHECK(largest_difference_of_part(y, [&](std::size_t i) {
                const std::size_t in_sample = i % sample;
                return in_sample < channels ? number_of(in_sample + 9)
                                            : number_of(i - (i / sample + 1) * channels);
              }) == 0);
        const auto dx = model.backward(dy.view());
        CHECK(largest_difference_of_part(dx, [&](std::size_t i) {
                return number_of(i + (i / (pixels * channels) + 1) * channels);
              }) == 0);
      }
      model.settle_gradients();
      const auto gradient = model.gather_gradient("weight");
      CHECK(largest_difference_of_part(gradient.view(), [&](std::size_t i) {
              return 2 * (number_of(i) + number_of(sample + i) + number_of(2 * sample + i));
            }) == 0);
    });
  }
}

}  // namespace

TEST_CASE("pixels become tokens, and their gradients pixels, in each layout") {
  check_planes<double, Invariant, Invariant>();
  check_planes<double, Partial, Partial>();
  check_planes<double, Sharded<Axis::channel>, Feature>();
  check_planes<double, Sharded<Axis::height>, Feature>();
  check_planes<double, Batch, Batch>();
}

TEST_CASE("a class token in front, and its gradient, in each layout") {
  check_token<double, Invariant>();
  check_token<double, Feature>();
  check_token<double, Batch>();
  check_token<double, Sharded<Axis::sequence>>();  // this and the next one become whole
  check_token<double, Partial>();
}

TEST_CASE_TEMPLATE("both of each element type", T, float, bf16, fp16) {
  check_planes<T, Sharded<Axis::channel>, Feature>();
  check_token<T, Feature>();
}

TEST_CASE("gradients are those of differences, and messages those of the plan") {
  using Patches = Sequential<Conv2d<split::output, channels, 4, kernel(2, {.stride = 2})>,
                             PlanesToTokens, ClassToken<4>, Tanh>;
  testing::check_on_ranks<Invariant, Feature>(Patches{}, images, testing::up_to_rounding);
  testing::check_on_ranks<Batch, Invariant>(Patches{}, images, testing::up_to_rounding);
  using Whole = Sequential<PlanesToTokens, ClassToken<channels>, Tanh>;
  testing::check_on_ranks<Batch, Batch>(Whole{}, images, testing::up_to_rounding);
}

TEST_CASE("shapes") {
  CHECK(PlanesToTokens{}.output_shape(
            {{Axis::batch, dynamic}, {Axis::channel, 2, 3}, {Axis::width, dynamic}}) ==
        Shape{{Axis::batch, dynamic}, {Axis::sequence, dynamic}, {Axis::feature, 2, 3}});
  CHECK(message_of<shape_error>([] {
          PlanesToTokens{}.output_shape({{Axis::batch, 2}, {Axis::channel, 3}});
        }) ==
        "the input is a tensor [batch 2, channel 3], but PlanesToTokens takes images [batch, "
        "channel, ...]");
  CHECK(ClassToken<dynamic>(4).output_shape(
            {{Axis::batch, 2}, {Axis::sequence, dynamic}, {Axis::feature, 2, 2}}) ==
        Shape{{Axis::batch, 2}, {Axis::sequence, dynamic}, {Axis::feature, 2, 2}});
  CHECK(message_of<shape_error>([] {
          Token{}.output_shape(tokens.with_back({Axis::feature, 4}));
        }) ==
        "the input is a tensor [batch 3, sequence 6, feature 4], but a ClassToken of 5 features "
        "stands in front of tokens [batch, sequence, feature] with that extent");
  CHECK(!message_of<shape_error>([] { Token{}.output_shape(images); }).empty());
  CHECK(detail::name_of<Token>() == "ClassToken<5>");
}
