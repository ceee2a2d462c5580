// Convolutions through cuDNN's graph API, on a stand-in for the library: what it is told, which of
// its engines are used, and what becomes of its errors. Of a GPU nothing is seen here.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "cudnn/device_stand_in.hpp"
#include "cudnn/stand_in.hpp"
#include "shardwise/backend/cuda/cudnn_convolution.hpp"
#include "shardwise/backend/reference.hpp"
#include "support/count_allocations.hpp"
#include "unit/backend/random_convolutions.hpp"

using namespace shardwise;
using cudnn_stand_in::Engine;

namespace {

/// A device of which kernels are loops of the host.
class Device : public Reference {
 public:
  template <Real T>
  using Convolution = detail::cuda::CudnnConvolution<Device, T>;

  explicit Device(const CudaOptions& options = {}) : session_(options) {}
  detail::cuda::Session& session() { return session_; }

 private:
  detail::cuda::Session session_;
};
static_assert(ConvolutionBackend<Device, fp16>);

/// The stand-in proposes these engines while it lives.
struct Proposals {
  explicit Proposals(std::vector<Engine> a, std::vector<Engine> fallback = {}) {
    cudnn_stand_in::of_mode_a = std::move(a);
    cudnn_stand_in::of_fallback = std::move(fallback);
  }
  ~Proposals() {
    cudnn_stand_in::of_mode_a = {{}};
    cudnn_stand_in::of_fallback = {};
  }
};

const ConvolutionCall image{2,
                            {SpatialAxis{},
                             {.input = 5, .output = 5, .kernel = 3, .before = 1},
                             {.input = 4, .output = 2, .kernel = 2, .stride = 2}}};

template <class T = float>
struct Layer {
  explicit Layer(const CudaOptions& options = {}) : backend(options), kernel(backend, {1, 3, 4}) {}

  void forward(const ConvolutionCall& call = image) {
    kernel.forward(call, x.data(), {w.data(), 1}, b.data(), Activation::relu, y.data());
  }
  void backward(Write write = Write::replace, const ConvolutionCall& call = image) {
    kernel.backward(call, x.data(), y.data(), {w.data(), 1}, write, dw.data(), db.data(),
                    dx.data());
  }

  Device backend;
  typename Device::Convolution<T> kernel;
  std::vector<T> x = std::vector<T>(3 * 120, static_cast<T>(1)), w = std::vector<T>(72),
                 b = std::vector<T>(4), y = std::vector<T>(3 * 40), dw = std::vector<T>(72),
                 db = std::vector<T>(4), dx = std::vector<T>(120);
};

/// Which engine a forward call uses.
template <class T = float>
int engine_used(const CudaOptions& options = {}) {
  Layer<T> layer(options);
  layer.forward();
  return cudnn_stand_in::last_engine;
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const memory_error& e) {
    return std::string("memory_error: ") + e.what();
  } catch (const backend_error& e) {
    return std::string("backend_error: ") + e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("random convolutions are exact in every dtype") {
  backend_test::check_random_convolutions<Device, float>(300);
  backend_test::check_random_convolutions<Device, double>(100);
  backend_test::check_random_convolutions<Device, bf16>(60);
  backend_test::check_random_convolutions<Device, fp16>(60);
  CHECK(cudnn_stand_in::runs > 1000);
  CHECK(cudnn_stand_in::mismatches == 0);
  CHECK(cudnn_stand_in::alive == 0);
  CHECK(device_stand_in::alive == 0);
}

TEST_CASE("without an engine for unequal padding, images are padded, and all is as exact") {
  Engine equal;
  equal.pads_unequally = false;
  const Proposals proposals({equal});
  backend_test::check_random_convolutions<Device, float>(300);
  backend_test::check_random_convolutions<Device, double>(100);
  backend_test::check_random_convolutions<Device, bf16>(60);
  backend_test::check_random_convolutions<Device, fp16>(60);
  CHECK(cudnn_stand_in::alive == 0);
  CHECK(device_stand_in::alive == 0);

  CudaOptions options;
  options.time_candidates = true;
  Layer layer(options);
  const ConvolutionCall edge{
      2, {SpatialAxis{}, {.input = 5, .output = 4, .kernel = 3, .before = 1}, image.space[2]}};
  layer.forward(edge);
  layer.backward(Write::replace, edge);
  const int blocks = device_stand_in::blocks;
  const int plans = cudnn_stand_in::plans;
  testing::allocations = 0;
  cudnn_stand_in::allocations = &testing::allocations;
  layer.forward(edge);
  layer.backward(Write::replace, edge);
  cudnn_stand_in::allocations = nullptr;
  CHECK(testing::allocations == 0);
  CHECK(device_stand_in::blocks == blocks);
  CHECK(cudnn_stand_in::plans == plans);
}

TEST_CASE("unequal padding that is refused before engines are asked for is as good") {
  cudnn_stand_in::takes_unequal_padding = false;
  backend_test::check_random_convolutions<Device, float>(100);
  cudnn_stand_in::takes_unequal_padding = true;
}

TEST_CASE("only engines that keep promises are used") {
  const auto noted = [](cudnnBackendNumericalNote_t note) { return Engine{{note}}; };
  Engine refuses;
  refuses.has_plan = false;
  const Proposals proposals({noted(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC),
                             noted(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION),
                             noted(CUDNN_NUMERICAL_NOTE_FFT), noted(CUDNN_NUMERICAL_NOTE_WINOGRAD),
                             refuses, noted(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS),
                             noted(CUDNN_NUMERICAL_NOTE_TENSOR_CORE),
                             noted(CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP)});
  CHECK(engine_used<float>() == 7);
  CudaOptions tf32;
  tf32.tf32 = true;
  CHECK(engine_used<float>(tf32) == 5);
  CHECK(engine_used<bf16>() == 6);
  CHECK(engine_used<double>() == 6);
}

TEST_CASE("a second heuristic is asked where the first knows nothing") {
  const Proposals proposals({{{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}}}, {Engine{}});
  CHECK(engine_used() == 1);
  const Proposals none({});
  const std::string text = error_of([] { engine_used(); });
  CHECK(text.find("backend_error: convolution forward of 2 images, 3 -> 4 channels in float32: "
                  "cuDNN ") == 0);
  CHECK(text.find("no engine") != std::string::npos);
}

TEST_CASE("workspace is that of the options, where an engine does with it") {
  CudaOptions options;
  options.convolution_workspace_bytes = 1000;
  Engine large, small;
  large.workspace_bytes = 5000;
  small.workspace_bytes = 1000;
  {
    const Proposals proposals({large, small});
    CHECK(engine_used(options) == 1);
  }
  const Proposals proposals({large});
  CHECK(engine_used(options) == 0);
}

TEST_CASE("the fastest of the proposals is used if the options say so, and trials change nothing") {
  CudaOptions options;
  options.time_candidates = true;
  Engine fails, wrong;
  fails.fails = true;
  wrong.error = 1000;
  const Proposals proposals({wrong, fails, Engine{}, wrong});
  const float times[] = {3, 1, 2};
  Layer layer(options);
  const auto next_times = [&] {
    device_stand_in::next_times = times;
    device_stand_in::times_left = 3;
  };
  next_times();
  layer.forward();
  CHECK(device_stand_in::times_left == 0);
  CHECK(cudnn_stand_in::last_engine == 2);
  CHECK(layer.y[0] == 0);
  next_times();
  layer.dw.assign(layer.dw.size(), 7);
  layer.kernel.backward(image, layer.x.data(), layer.y.data(), {layer.w.data(), 1}, Write::add,
                        layer.dw.data(), nullptr, nullptr);
  CHECK(layer.dw[0] == 7);  // y is zero, and the trials added to memory of their own

  device_stand_in::is_capturing = true;
  const ConvolutionCall another{3, image.space};
  CHECK(error_of([&] { layer.forward(another); }).find("captured") != std::string::npos);
  device_stand_in::is_capturing = false;
}

TEST_CASE("plans are kept for the calls that differ, and a known call allocates nothing of ours") {
  Layer layer;
  cudnn_stand_in::plans = 0;
  layer.forward();
  layer.backward();
  CHECK(cudnn_stand_in::plans == 3);
  const int blocks = device_stand_in::blocks;
  testing::allocations = 0;
  cudnn_stand_in::allocations = &testing::allocations;
  layer.forward();
  layer.backward();
  cudnn_stand_in::allocations = nullptr;
  CHECK(testing::allocations == 0);
  CHECK(cudnn_stand_in::plans == 3);
  layer.backward(Write::add);
  CHECK(cudnn_stand_in::plans == 4);
  layer.forward({1, image.space});
  layer.forward();
  CHECK(cudnn_stand_in::plans == 5);
  CHECK(device_stand_in::blocks == blocks);
}

TEST_CASE("plans that a graph recorded stay, whatever runs afterwards") {
  Layer layer;
  layer.forward();
  device_stand_in::is_capturing = true;
  layer.forward();
  layer.backward();  // planned while it is recorded
  device_stand_in::is_capturing = false;
  CHECK(cudnn_stand_in::captured_plans == 3);
  cudnn_stand_in::plans = 0;
  const auto run_others = [&] {
    for (std::size_t rows = 1; rows <= 9; ++rows) {
      const ConvolutionCall other{1, {SpatialAxis{}, {.input = rows, .output = rows}, {}}};
      layer.forward(other);
      layer.backward(Write::replace, other);
    }
  };
  run_others();
  CHECK(cudnn_stand_in::plans == 27);
  CHECK(cudnn_stand_in::captured_plans == 3);
  layer.forward();
  layer.backward();
  CHECK(cudnn_stand_in::plans == 27);
  run_others();
  CHECK(cudnn_stand_in::plans == 54);  // others are dropped as ever
}

TEST_CASE("tensors that are less aligned get a plan of their own") {
  Layer layer;
  cudnn_stand_in::plans = 0;
  layer.forward();
  layer.kernel.forward(image, layer.x.data() + 1, {layer.w.data(), 1}, nullptr, Activation::none,
                       layer.y.data());
  CHECK(cudnn_stand_in::plans == 2);
}

TEST_CASE("a call that fails ends in an error of ours that names it, and nothing leaks") {
  const auto step = [] {
    CudaOptions options;
    options.time_candidates = true;
    Layer layer(options);
    layer.forward();
    layer.backward(Write::add);
  };
  const Proposals proposals({Engine{}, Engine{}});
  for (int* const calls :
       {&cudnn_stand_in::calls_until_failure, &device_stand_in::calls_until_failure}) {
    int errors = 0;
    int k = 0;
    for (;; ++k) {
      *calls = k;
      const std::string text = error_of(step);  // any other exception ends the test
      errors += text.empty() ? 0 : 1;
      CHECK(cudnn_stand_in::alive == 0);
      CHECK(device_stand_in::alive == 0);
      if (*calls >= 0) break;  // nothing failed
    }
    *calls = -1;
    MESSAGE(errors << " of " << k << " failures end in an error, the others are mended");
    CHECK(errors > k / 2);
  }
  cudnn_stand_in::failure = CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  cudnn_stand_in::calls_until_failure = 0;
  CHECK(error_of(step).find("memory_error: ") == 0);
  cudnn_stand_in::failure = CUDNN_STATUS_INTERNAL_ERROR;
}
