// oneDNN's convolutions against sums written out one tap at a time.

#include <doctest/doctest.h>
#include <malloc.h>

#include <cmath>
#include <random>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "unit/backend/convolution_problem.hpp"

using namespace shardwise;
using backend_test::ConvolutionFormula;

static_assert(ConvolutionBackend<OneDnn, float> && ConvolutionBackend<OneDnn, bf16>);
static_assert(!ConvolutionBackend<OneDnn, double>);

TEST_CASE("every product of random convolutions in float") {
  backend_test::check_random_convolutions<OneDnn, float>(2000);
}
TEST_CASE("every product of random convolutions in bfloat16") {
  backend_test::check_random_convolutions<OneDnn, bf16>(1000);
}

TEST_CASE_TEMPLATE("channels that the library keeps in blocks", T, float, bf16) {
  std::mt19937 random(1);
  OneDnn backend;
  const SpatialAxis same{.input = 7, .output = 7, .kernel = 3, .before = 1};
  const SpatialAxis halved{.input = 9, .output = 4, .kernel = 3, .stride = 2, .before = 0};
  const SpatialAxis point{.input = 5, .output = 5};
  const SpatialAxis far{.input = 13, .output = 13};  // images large enough to be left as they lie
  const SpatialAxis skipping{.input = 10, .output = 5, .stride = 2};  // the last row too
  for (const SpatialAxis& axis : {same, halved, point, far, skipping}) {
    for (const ConvolutionChannels& channels :
         {ConvolutionChannels{1, 32, 48}, {1, 3, 64}, {1, 17, 40}, {2, 16, 16}, {32, 1, 1}}) {
      const ConvolutionFormula f{channels, {2, {SpatialAxis{}, axis, axis}}};
      INFO(to_string(f));
      CHECK(backend_test::convolutions_are_exact<OneDnn, T>(backend, f, random));
    }
  }
}

/// Convolutions that oneDNN 2.6.3 itself computes wrongly or refuses, some only on processors with
/// AMX.
TEST_CASE_TEMPLATE("convolutions that the library cannot be trusted with", T, float, bf16) {
  const SpatialAxis none{};
  const std::initializer_list<ConvolutionFormula> convolutions = {
      // Windows longer than an image with a depth: wrong in float, too.
      {{1, 26, 26}, {2, {{{4, 4, 4, 2, 1, 3}, {2, 1, 4, 3, 1, 1}, {3, 1, 3, 3, 2, 0}}}}},
      {{1, 1, 2}, {2, {{{4, 3, 4, 2, 1, 3}, {1, 1, 1, 2, 1, 0}, {4, 1, 4, 3, 2, 3}}}}},
      // Windows that begin before and end behind an image with a depth: wrong in float, too.
      {{1, 2, 1}, {2, {{{4, 4, 4, 2, 1, 3}, {3, 2, 2, 1, 1, 0}, {4, 4}}}}},
      {{1, 16, 16}, {2, {{{6, 3, 5, 3, 1, 4}, {3, 2, 2, 1, 1, 0}, {4, 4}}}}},
      {{1, 16, 16}, {2, {{{2, 3, 5, 1, 1, 4}, {3, 2, 2, 1, 1, 0}, {4, 4}}}}},
      {{1, 16, 16}, {2, {{{2, 4, 7, 1, 1, 6}, {3, 2, 2, 1, 1, 0}, {4, 4}}}}},
      // A depth.
      {{2, 15, 61}, {2, {{{2, 2, 2, 2, 1, 1}, {5, 2, 1, 3, 2, 0}, {6, 4, 2, 1, 3, 2}}}}},
      {{1, 1, 1}, {1, {{{4, 2, 3, 3, 1, 1}, {6, 4, 2, 1, 1, 0}, {4, 4, 4, 1, 1, 3}}}}},
      // A dilation.
      {{1, 35, 65}, {1, {{none, {6, 5, 2, 1, 3, 2}, {10, 9, 4, 1, 3, 3}}}}},
      {{2, 34, 68}, {2, {{none, {10, 9, 2, 1, 2, 1}, {10, 5, 1, 2, 1, 0}}}}},
      // Windows that leave gaps between them.
      {{1, 71, 34}, {1, {{none, {14, 5, 1, 3, 1, 0}, {6, 3, 6, 3, 1, 5}}}}},
      {{1, 84, 106}, {1, {{none, {13, 5, 1, 3, 1, 0}, {11, 3, 6, 3, 1, 0}}}}},
      // Groups: refused.
      {{2, 4, 32}, {1, {{none, none, {6, 4, 5, 3, 1, 4}}}}},
      {{2, 8, 36}, {2, {{none, none, {8, 5, 3, 2, 1, 1}}}}},
  };
  OneDnn backend;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    for (const ConvolutionFormula& f : convolutions) {
      INFO(to_string(f));
      std::mt19937 random(seed);
      CHECK(backend_test::convolutions_are_exact<OneDnn, T>(backend, f, random));
    }
  }
}

TEST_CASE("sums over many channels are rounded once") {
  std::mt19937 random(1);
  OneDnn backend;
  const SpatialAxis point{.input = 7, .output = 7};
  const SpatialAxis far{.input = 13, .output = 13};
  const SpatialAxis same{.input = 14, .output = 14, .kernel = 3, .before = 1};
  for (const ConvolutionFormula& f :
       {ConvolutionFormula{{1, 512, 64}, {1, {SpatialAxis{}, point, point}}},
        ConvolutionFormula{{1, 512, 64}, {1, {SpatialAxis{}, far, far}}},
        ConvolutionFormula{{1, 2048, 512}, {1, {SpatialAxis{}, point, point}}},
        ConvolutionFormula{{1, 256, 128}, {1, {SpatialAxis{}, same, same}}}}) {
    INFO(to_string(f));
    CHECK(backend_test::convolutions_are_exact<OneDnn, bf16>(backend, f, random));
  }
}

TEST_CASE("a weight is copied anew when its version or its address changes, and else not") {
  OneDnn backend;
  OneDnn::Convolution<float> kernel(backend, {1, 16, 16});
  const SpatialAxis axis{.input = 4, .output = 4, .kernel = 3, .before = 1};
  const ConvolutionCall call{1, {SpatialAxis{}, axis, axis}};
  const std::vector<float> x(16 * 16, 1);
  std::vector<float> ones(16 * 16 * 9, 1), twos(ones.size(), 2), y(16 * 16);
  const auto corner = [&](const std::vector<float>& w, std::uint64_t version) {
    kernel.forward(call, x.data(), {w.data(), version}, nullptr, Activation::none, y.data());
    return y[0];
  };
  CHECK(corner(ones, 1) == 64);  // 16 channels, 4 taps inside
  CHECK(corner(twos, 1) == 128);
  twos.assign(twos.size(), 3);
  CHECK(corner(twos, 2) == 192);

  std::vector<float> dx(16 * 16), dw(ones.size());
  const auto gradient = [&](std::uint64_t version) {
    kernel.backward(call, x.data(), x.data(), {twos.data(), version}, Write::replace, dw.data(),
                    nullptr, dx.data());
    return dx[0];
  };
  CHECK(gradient(2) == 192);
  twos.assign(twos.size(), 1);
  CHECK(gradient(3) == 64);
}

TEST_CASE_TEMPLATE("what is no number stays so through a fused ReLU", T, float, bf16) {
  OneDnn backend;
  for (const std::size_t channels : {1U, 16U, 20U}) {  // in plain order and in blocks
    for (const std::size_t taps : {1U, 3U}) {
      CAPTURE(channels);
      CAPTURE(taps);
      OneDnn::Convolution<T> kernel(backend, {1, channels, channels});
      const SpatialAxis axis{.input = 13, .output = 13, .kernel = taps, .before = taps / 2};
      const std::size_t plane = 13 * 13;
      std::vector<T> x(channels * plane, T{1}), y(x.size());
      const std::vector<T> w(channels * channels * taps * taps, T{-1});
      x[0] = static_cast<T>(std::nanf(""));
      kernel.forward({1, {SpatialAxis{}, axis, axis}}, x.data(), {w.data(), 1}, nullptr,
                     Activation::relu, y.data());
      for (std::size_t c = 0; c < channels; ++c) {
        CHECK(std::isnan(static_cast<float>(y[c * plane])));
        CHECK(static_cast<float>(y[(c + 1) * plane - 1]) == 0);
      }
    }
  }
}

TEST_CASE("copies of images are kept once for all sizes and layers") {
  OneDnn backend;
  const ConvolutionChannels channels{1, 16, 16};
  const SpatialAxis same{.input = 32, .output = 32, .kernel = 3, .before = 1};
  constexpr std::size_t most = 32, of_image = 16 * 32 * 32;
  const std::vector<float> x(most * of_image), w(16 * 16 * 9);
  std::vector<float> y(x.size()), dw(w.size()), dx(x.size());
  OneDnn::Convolution<float> layers[]{{backend, channels}, {backend, channels}};
  const auto step = [&](auto& layer, std::size_t images) {
    const ConvolutionCall call{images, {SpatialAxis{}, same, same}};
    const Weight<float> weight{w.data(), 1};
    layer.forward(call, x.data(), weight, nullptr, Activation::none, y.data());
    layer.backward(call, x.data(), y.data(), weight, Write::replace, dw.data(), nullptr, dx.data());
  };
  const auto held = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  step(layers[0], most);
  const std::size_t before = held();
  for (std::size_t images = most; images > most - 8; --images)
    for (auto& layer : layers) step(layer, images);
  CHECK(held() < before + most * of_image * sizeof(float));  // weights and primitives
}
