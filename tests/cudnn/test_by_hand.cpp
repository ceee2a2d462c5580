// Which engine the convolutions take that benchmarks write by hand, on a stand-in for cuDNN.

#include <doctest/doctest.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "cudnn/device_stand_in.hpp"
#include "cudnn/stand_in.hpp"
#include "gpu/convolution_by_hand.hpp"
#include "shardwise/backend/cuda/options.hpp"

using namespace shardwise;
using cudnn_stand_in::Engine;

namespace {

/// Each element of y = x w, for one image of one element, is 6; tries the engines, which take so
/// many milliseconds.
int engine_taken(std::vector<Engine> engines, const std::vector<float>& milliseconds) {
  cudnn_stand_in::of_mode_a = std::move(engines);
  device_stand_in::next_times = milliseconds.data();
  device_stand_in::times_left = static_cast<int>(milliseconds.size());
  detail::cuda::Session session(CudaOptions{});
  alignas(16) const float x = 2, w = 3;
  alignas(16) float y = 0;
  const bench::ConvolutionTensors<float> tensors{
      {1, 1, 1, 1}, 1, bench::Innermost::space, &x, &w, nullptr, &y, nullptr, nullptr};
  by_hand::ConvolutionProduct product(session, detail::cuda::ConvolutionProduct::forward,
                                      CUDNN_DATA_FLOAT, tensors, {{&x, &w, &y}},
                                      [&](const auto& run) {
                                        y = 0;
                                        run();
                                        return y == 6;
                                      });
  y = 0;
  product(0);
  CHECK(y == 6);
  return cudnn_stand_in::last_engine;
}

struct OldEngines {
  ~OldEngines() {
    cudnn_stand_in::of_mode_a = {{}};
    device_stand_in::times_left = 0;
  }
};

}  // namespace

TEST_CASE("by hand: the fastest engine is taken that is right, and none is an error") {
  const OldEngines old;
  const Engine right, wrong{.notes = {}, .error = 1}, refuses{.notes = {}, .fails = true};
  CHECK(engine_taken({right, right, right}, {3, 1, 2}) == 1);
  CHECK(engine_taken({right, wrong, right}, {3, 1, 2}) == 2);
  CHECK(engine_taken({refuses, right}, {5}) == 1);
  CHECK_THROWS_AS(engine_taken({wrong, refuses}, {1}), std::runtime_error);
  CHECK(device_stand_in::alive == 0);
  CHECK(cudnn_stand_in::alive == 0);
}
