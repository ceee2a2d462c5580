// Convolutions around cuDNN's plans, on the stand-in for CUDA's runtime: in the place of a plan
// there are plain loops. What cuDNN itself is told and plans is shown in cudnn/real.cpp.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cuda/host_cuda.hpp"
#include "cuda/stand_in.hpp"
#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/cuda/cudnn_convolution.hpp"
#include "shardwise/backend/reference.hpp"
#include "support/count_allocations.hpp"
#include "support/error_of.hpp"
#include "unit/backend/convolution_problem.hpp"

using namespace shardwise;
using backend_test::ConvolutionFormula;
using detail::ConvolutionProduct;
using detail::cuda::ConvolutionPointers;
using detail::cuda::ConvolutionProblem;
using testing::error_of;
using testing::Machine;

const char* cudnnGetErrorString(cudnnStatus_t) { return "a status of the stand-in"; }

namespace {

/// One that is proposed for every product.
struct Engine {
  double error = 0;  ///< added to all results
  float milliseconds = 1;
  bool fails = false;  ///< when it is run
};

/// In place of CudnnPlan.
class LoopPlan {
 public:
  static inline std::vector<Engine> engines{{}};
  static inline int made = 0;
  static inline int last_engine = -1;
  static inline int alive_and_captured = 0;
  static inline bool computes = true;  ///< or takes no time and no memory
  static inline std::vector<ConvolutionProblem> problems;

  static std::vector<LoopPlan> usable(detail::cuda::Session&, const ConvolutionProblem& problem,
                                      std::size_t most) {
    ++made;
    problems.push_back(problem);
    std::vector<LoopPlan> plans;
    for (std::size_t k = 0; k < std::min(most, engines.size()); ++k)
      plans.push_back(LoopPlan(problem, k));
    return plans;
  }

  LoopPlan(const ConvolutionProblem& problem, std::size_t engine)
      : problem_(problem), engine_(engine) {}
  LoopPlan(LoopPlan&& other) noexcept
      : problem_(other.problem_),
        engine_(other.engine_),
        is_captured_(std::exchange(other.is_captured_, false)) {}
  LoopPlan& operator=(LoopPlan&&) = delete;
  ~LoopPlan() { alive_and_captured -= is_captured_ ? 1 : 0; }

  cudnnStatus_t launch(detail::cuda::Session& session, const ConvolutionPointers& at) const {
    const Engine& engine = engines[engine_];
    if (stand_in::fails("cudnnBackendExecute")) return CUDNN_STATUS_INTERNAL_ERROR;
    if (engine.fails) return CUDNN_STATUS_EXECUTION_FAILED;
    if (stand_in::is_capturing && !std::exchange(is_captured_, true)) ++alive_and_captured;
    last_engine = static_cast<int>(engine_);
    if (!computes) return CUDNN_STATUS_SUCCESS;
    stand_in::push(session.stream().get(), [&] {
      if (problem_.dtype == Dtype::float32) run<float>(at);
      if (problem_.dtype == Dtype::float64) run<double>(at);
      if (problem_.dtype == Dtype::bfloat16) run<bf16>(at);
      if (problem_.dtype == Dtype::float16) run<fp16>(at);
      stand_in::take_time(engine.milliseconds);
    });
    return CUDNN_STATUS_SUCCESS;
  }

 private:
  /// As the library: elements of x that no window reads are not written.
  template <class T>
  void run(const ConvolutionPointers& at) const {
    using A = accumulate_t<T>;
    const ConvolutionFormula formula{problem_.channels, problem_.call};
    const auto* const x = static_cast<const T*>(at.x);
    const auto* const w = static_cast<const T*>(at.w);
    const auto* const y = static_cast<const T*>(at.y);
    std::vector<A> sums(result_size(problem_));
    formula.for_each_product([&](std::size_t o, std::size_t i, std::size_t t) {
      if (problem_.product == ConvolutionProduct::forward)
        sums[o] += static_cast<A>(x[i]) * static_cast<A>(w[t]);
      if (problem_.product == ConvolutionProduct::backward_input)
        sums[i] += static_cast<A>(y[o]) * static_cast<A>(w[t]);
      if (problem_.product == ConvolutionProduct::backward_weight)
        sums[t] += static_cast<A>(y[o]) * static_cast<A>(x[i]);
    });
    ConvolutionPointers pointers = at;
    auto* const result =
        static_cast<T*>(const_cast<void*>(detail::cuda::result_among(pointers, problem_.product)));
    for (std::size_t k = 0; k < sums.size(); ++k) {
      if (problem_.product == ConvolutionProduct::backward_input && !is_told(k)) continue;
      const A old = problem_.write == Write::add ? static_cast<A>(result[k]) : A(0);
      result[k] = static_cast<T>(sums[k] + old + static_cast<A>(engines[engine_].error));
    }
  }

  /// Whether the library knows of an element of x.
  bool is_told(std::size_t element) const {
    for (std::size_t axis = 3; axis-- > 0; element /= problem_.call.space[axis].input) {
      const SpatialAxis& a = problem_.call.space[axis];
      if (element % a.input >= detail::cuda::extent_read(a)) return false;
    }
    return true;
  }

  ConvolutionProblem problem_;
  std::size_t engine_;
  mutable bool is_captured_ = false;
};

/// A device of which loops are those of the host, at once.
class Device : public Reference {
 public:
  template <Real T>
  using Convolution = detail::cuda::CudnnConvolution<Device, T, LoopPlan>;

  explicit Device(const CudaOptions& options = {}) : session_(options) {}
  detail::cuda::Session& session() { return session_; }

 private:
  detail::cuda::Session session_;
};
static_assert(ConvolutionBackend<Device, fp16>);

/// While it lives, streams do their work at once; then engines are the usual ones again.
struct AtOnce {
  AtOnce() { stand_in::at_once = true; }
  AtOnce(const AtOnce&) = delete;
  AtOnce& operator=(const AtOnce&) = delete;
  ~AtOnce() {
    stand_in::at_once = false;
    LoopPlan::engines = {{}};
    LoopPlan::computes = true;
    CHECK(stand_in::misuse == "");
  }

  Machine machine;
};

const ConvolutionCall image{2,
                            {SpatialAxis{},
                             {.input = 5, .output = 5, .kernel = 3, .before = 1},
                             {.input = 4, .output = 2, .kernel = 2, .stride = 2}}};

template <class T = float>
struct Layer {
  explicit Layer(const CudaOptions& options = {}) : backend(options), kernel(backend, {1, 3, 4}) {
    LoopPlan::made = 0;
    LoopPlan::problems.clear();
  }

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

}  // namespace

TEST_CASE("cuda: random convolutions are exact in every dtype") {
  const AtOnce at_once;
  const int alive = stand_in::alive;
  LoopPlan::made = 0;
  backend_test::check_random_convolutions<Device, float>(300);
  backend_test::check_random_convolutions<Device, double>(100);
  backend_test::check_random_convolutions<Device, bf16>(60);
  backend_test::check_random_convolutions<Device, fp16>(60);
  CHECK(LoopPlan::made > 1000);
  CHECK(stand_in::alive == alive);
}

TEST_CASE("cuda: convolutions may use an eighth of a device's memory, or what the options say") {
  const Machine machine;
  const auto allowed = [](const CudaOptions& options) {
    return detail::cuda::Session(options).convolution_workspace_bytes();
  };
  CudaOptions options;
  CHECK(allowed(options) == std::size_t{1} << 27);
  stand_in::free_bytes = 1000;  // of no concern: it differs between runs
  CHECK(allowed(options) == std::size_t{1} << 27);
  options.ranks_on_device = 4;
  CHECK(allowed(options) == std::size_t{1} << 25);
  options.convolution_workspace_bytes = 77;
  CHECK(allowed(options) == 77);
  options.ranks_on_device = 0;
  CHECK_THROWS_WITH_AS(
      allowed(options),
      "Cuda: CudaOptions::ranks_on_device is 0, but this rank is one of them: count all that share "
      "the device",
      argument_error);
}

TEST_CASE("cuda: the fastest plan of a convolution is used, and trials change nothing") {
  const AtOnce at_once;
  CudaOptions options;
  options.time_candidates = true;
  LoopPlan::engines = {{1000, 3}, {0, 0, true}, {0, 1}, {1000, 2}};
  Layer layer(options);
  layer.forward();
  CHECK(LoopPlan::last_engine == 2);
  CHECK(layer.y[0] == 0);
  layer.dw.assign(layer.dw.size(), 7);
  layer.kernel.backward(image, layer.x.data(), layer.y.data(), {layer.w.data(), 1}, Write::add,
                        layer.dw.data(), nullptr, nullptr);
  CHECK(layer.dw[0] == 7);  // y is zero, and the trials added to memory of their own

  LoopPlan::engines = {{0, 0, true}, {0, 0, true}};
  const ConvolutionCall another{3, image.space};
  CHECK(error_of([&] { layer.forward(another); })
            .find("backend_error: convolution forward of 3 images, 3 -> 4 channels in float32: "
                  "cuDNN: cudnnBackendExecute failed with a status of the stand-in") == 0);
  stand_in::is_capturing = true;
  CHECK(error_of([&] { layer.forward(another); }).find("engines cannot be timed while") !=
        std::string::npos);
  stand_in::is_capturing = false;
  LoopPlan::engines = {{0, 3}, {0, 1}};
  Layer untimed;
  untimed.forward();
  CHECK(LoopPlan::last_engine == 0);
}

TEST_CASE("cuda: plans are kept for convolutions that differ, and a known one allocates nothing") {
  const AtOnce at_once;
  Layer layer;
  layer.forward();
  layer.backward();
  CHECK(LoopPlan::made == 3);
  const int blocks = stand_in::allocations;
  LoopPlan::computes = false;
  testing::allocations = 0;
  layer.forward();
  layer.backward();
  CHECK(testing::allocations == 0);
  LoopPlan::computes = true;
  CHECK(LoopPlan::made == 3);
  layer.backward(Write::add);
  CHECK(LoopPlan::made == 4);
  layer.forward({1, image.space});
  layer.forward();
  CHECK(LoopPlan::made == 5);
  CHECK(stand_in::allocations == blocks);
}

TEST_CASE("cuda: plans that a graph recorded stay, whatever runs afterwards") {
  const AtOnce at_once;
  Layer layer;
  layer.forward();
  stand_in::is_capturing = true;
  layer.forward();
  layer.backward();  // planned while it is recorded
  stand_in::is_capturing = false;
  CHECK(LoopPlan::alive_and_captured == 3);
  LoopPlan::made = 0;
  const auto run_others = [&] {
    for (std::size_t rows = 1; rows <= 9; ++rows) {
      const ConvolutionCall other{1, {SpatialAxis{}, {.input = rows, .output = rows}, {}}};
      layer.forward(other);
      layer.backward(Write::replace, other);
    }
  };
  run_others();
  CHECK(LoopPlan::made == 27);
  CHECK(LoopPlan::alive_and_captured == 3);
  layer.forward();
  layer.backward();
  CHECK(LoopPlan::made == 27);
  run_others();
  CHECK(LoopPlan::made == 54);  // others are dropped as ever
}

TEST_CASE("cuda: images that are less aligned get a plan of their own") {
  const AtOnce at_once;
  Layer layer;
  layer.forward();
  layer.kernel.forward(image, layer.x.data() + 1, {layer.w.data(), 1}, nullptr, Activation::none,
                       layer.y.data());
  REQUIRE(LoopPlan::problems.size() == 2);
  CHECK(LoopPlan::problems[0].alignment == 16);
  CHECK(LoopPlan::problems[1].alignment == 4);
}

TEST_CASE("cuda: a call of a convolution that fails ends in an error of ours, and nothing leaks") {
  const AtOnce at_once;
  const int alive = stand_in::alive;
  LoopPlan::engines = {{}, {}};
  const auto step = [] {
    CudaOptions options;
    options.device = 1;  // the thread's own is 0
    options.time_candidates = true;
    Layer layer(options);
    layer.forward();
    layer.backward(Write::add);
  };
  stand_in::calls = 0;
  step();
  const int calls = stand_in::calls;
  int errors = 0;
  for (int k = 1; k <= calls; ++k) {
    stand_in::calls = 0;
    stand_in::fails_at = k;
    errors += error_of(step).empty() ? 0 : 1;  // any other exception ends the test
    CHECK(stand_in::alive == alive);
    stand_in::fails_at = 0;
    cudaSetDevice(0);
  }
  MESSAGE(errors << " of " << calls << " failures end in an error, the others are mended");
  CHECK(errors > calls / 2);
  CHECK(cudaGetLastError() == cudaSuccess);
}
