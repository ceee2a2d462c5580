// Normalisations against values from PyTorch, and each dtype against double.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/bias.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/model/model.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;
using testing::Counted;
using testing::Observed;
using testing::Whole;
using witness::Values;

namespace {

using Features = Sharded<Axis::feature>;

/// A layer on a witness's tensors, rounded to R, in the dtype T; x and y are laid out as L.
template <class T, class R, class L, class C, class Norm>
Observed run_on(const Values& c, int ranks) {
  const auto& extents = c.shape("both/y");
  return testing::run_on_witness<T, Ends<L, L>, C>(
      Norm(extents[2], Epsilon{c.number("epsilon")}),
      {{Axis::batch, extents[0]}, {Axis::sequence, extents[1]}, {Axis::feature, extents[2]}}, ranks,
      {15, 16, 18}, testing::RoundedTo<R>{15, c.number("offset")});
}

/// The deviation of x is more than 1/2. Rounding x and its mean moves x - mean by eps |x|, in units
/// of the deviation by 2 eps |x|; the sums of some 40 terms behind it round as often. Over a single
/// feature all of LayerNorm cancels, so differences are relative to 1 at least.
template <class T>
double bound(const Values& c) {
  return 16 * testing::eps<T> * (1 + 2 * c.number("offset"));
}

template <class L, class C, class Norm>
void check_form(const Values& c, const std::string& form, int ranks) {
  CAPTURE(c.path());
  CAPTURE(form);
  CAPTURE(ranks);
  testing::check_agrees(run_on<double, double, L, C, Norm>(c, ranks), c.group(form),
                        bound<double>(c), testing::Relative{});
}

template <class L, class C, template <std::size_t, Affine> class Norm>
void check_against_torch(const std::string& kind, int ranks) {
  for (const Values& c : Values("layers/norms/" + kind).groups()) {
    check_form<L, C, Norm<dynamic, Affine::weight_and_bias>>(c, "both", ranks);
    if constexpr (std::same_as<L, Invariant>) {
      check_form<L, C, Norm<dynamic, Affine::weight>>(c, "weight", ranks);
      check_form<L, C, Norm<dynamic, Affine::none>>(c, "plain", ranks);
    }
  }
}

/// In T against double on the same numbers: sums round in accumulate_t<T>, results once to T.
template <class T, class Norm>
void check_dtype(const std::string& kind) {
  for (const Values& c : Values("layers/norms/" + kind).groups()) {
    if (c.number("offset") > 0 && sizeof(T) == 2) continue;  // no deviation at 10000
    CAPTURE(c.path());
    testing::check_near(run_on<T, T, Invariant, SingleRank, Norm>(c, 1),
                        run_on<double, T, Invariant, SingleRank, Norm>(c, 1),
                        testing::eps<T> / 2 + bound<accumulate_t<T>>(c));
  }
}

}  // namespace

TEST_CASE("double: values of PyTorch") {
  SUBCASE("LayerNorm on whole rows") {
    check_against_torch<Invariant, SingleRank, LayerNorm>("layer", 1);
  }
  SUBCASE("RmsNorm on whole rows") {
    check_against_torch<Invariant, SingleRank, RmsNorm>("rms", 1);
  }
  SUBCASE("over split features") {
    for (const int ranks : {1, 3, 8}) {
      check_against_torch<Features, Counted, LayerNorm>("layer", ranks);
      check_against_torch<Features, Counted, RmsNorm>("rms", ranks);
    }
  }
}

TEST_CASE_TEMPLATE("each dtype rounds once", T, float, bf16, fp16) {
  check_dtype<T, LayerNorm<dynamic>>("layer");
  check_dtype<T, RmsNorm<dynamic>>("rms");
}

TEST_CASE("a mean of 10000 leaves the variance of a float whole") {
  constexpr std::size_t n = 1024;
  Whole x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = 10000 + (i % 2 == 0 ? 1 : -1);  // variance 1, exactly
  for (const int ranks : {1, 3}) {
    testing::run_on_ranks(ranks, [&](testing::Ranks& c) {
      Model<LayerNorm<n>, Context<float, Reference, testing::Ranks>, Ends<Features, Features>>
          model(c, Seed{1});
      const Shape shape{{Axis::batch, 1}, {Axis::feature, n}};
      const auto part = testing::part_of<float, Features>(x, shape, place_of(c));
      const auto y = model.evaluate(part.view());
      testing::Largest largest;
      for (std::size_t i = 0; i < y.size(); ++i)
        largest.see(std::abs(std::abs(static_cast<double>(y[i])) - 1));
      CHECK(largest < 4e-3);  // a sum of 1024 numbers near 10000 rounds to 1, so the mean to 1e-3
    });
  }
}

TEST_CASE("what cannot be normalised is refused") {
  CHECK_THROWS_AS(LayerNorm<4>(Epsilon{-1}), argument_error);
  CHECK_THROWS_AS(RmsNorm<4>(Epsilon{std::nan("")}), argument_error);
  CHECK_THROWS_AS(LayerNorm<4>{}.output_shape({{Axis::batch, 2}, {Axis::feature, 5}}), shape_error);
  CHECK_THROWS_AS(LayerNorm<4>{}.output_shape({{Axis::feature, 4}, {Axis::batch, 4}}), shape_error);
  CHECK_THROWS_WITH_AS(RmsNorm<dynamic>(4).output_shape({{Axis::feature, 5}}),
                       "the input is a tensor [feature 5], but the layer normalises rows of 4 "
                       "features: the innermost axis must be feature with that extent",
                       shape_error);
}

TEST_CASE("names") {
  CHECK(detail::name_of<LayerNorm<512>>() == "LayerNorm<512>");
  CHECK(detail::name_of<LayerNorm<dynamic, Affine::weight>>() == "LayerNorm<dynamic, no bias>");
  CHECK(detail::name_of<RmsNorm<512>>() == "RmsNorm<512>");
  CHECK(detail::name_of<RmsNorm<512, Affine::weight_and_bias>>() == "RmsNorm<512, bias>");
  CHECK(detail::name_of<RmsNorm<512, Affine::none>>() == "RmsNorm<512, no weight>");
}

namespace {

/// Whether a gradient of one number for each of 300 features or channels repeats behind 150 of them
/// as x does, which is dy, too. Sums are made of 256 of them at a time.
template <class L>
bool repeats(const Shape& in, const std::string& name) {
  SingleRank alone;
  Model<L, Context<double, Reference, SingleRank>, Ends<Invariant, Invariant>> model(alone, Seed{1},
                                                                                     in);
  Tensor<double, Invariant> x(in);
  const std::size_t row = x.size() / in[0].extent();
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(static_cast<double>(i / row * 7 + i % (row / 2)));
  model.forward(x.view());
  model.backward(x.view());
  const auto gradient = model.gather_gradient(name);
  return gradient[149] != 0 &&
         std::equal(gradient.data(), gradient.data() + 150, gradient.data() + 150);
}

}  // namespace

TEST_CASE("gradients of features behind the first 256") {
  CHECK(repeats<LayerNorm<300>>({{Axis::batch, 5}, {Axis::feature, 300}}, "weight"));
  CHECK(repeats<LayerNorm<300>>({{Axis::batch, 5}, {Axis::feature, 300}}, "bias"));
  CHECK(repeats<Bias<300>>({{Axis::batch, 5}, {Axis::feature, 300}}, "bias"));
  CHECK(repeats<BatchNorm<300>>({{Axis::batch, 5}, {Axis::feature, 300}}, "weight"));
  CHECK(repeats<BatchNorm<300>>(
      {{Axis::batch, 5}, {Axis::channel, 300}, {Axis::height, 2}, {Axis::width, 1}}, "weight"));
}

TEST_CASE("gradients over many rows keep the digits of a float") {
  // As in unit/backend/test_reference.cpp. x̂ is 1, since x is.
  struct Unscaled {
    constexpr detail::NormRow<float> operator[](std::size_t) const { return {0, 1}; }
  };
  constexpr std::size_t rows = std::size_t{1} << 18;
  const std::vector<float> x(rows, 1), dy(rows, 0.1F);
  Reference backend;
  float dw = 0, db = 0;
  detail::put_norm_gradients<true>(
      backend, rows, detail::NormGradientTerms<Unscaled, float>{{}, 1, x.data(), dy.data()},
      detail::PutNormGradient<true, float>{Write::replace, &dw, &db});
  const double expected = double{0.1F} * rows;
  CHECK(std::abs(dw / expected - 1) < 0x1p-14);
  CHECK(std::abs(db / expected - 1) < 0x1p-14);
}
