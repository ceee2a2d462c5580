// cuDNN itself, as far as it goes without a GPU: what it is told of convolutions, and the plans
// that it makes for devices that are only described to it.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "cudnn/described_device.hpp"
#include "cudnn/told_convolution.hpp"
#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/cuda/cudnn_convolution_graph.hpp"
#include "shardwise/backend/cuda/cudnn_plan.hpp"
#include "support/effort.hpp"
#include "support/messages.hpp"
#include "support/seed.hpp"
#include "unit/backend/convolution_problem.hpp"

using namespace shardwise;
using namespace shardwise::detail::cuda;
using backend_test::ConvolutionFormula;
using cudnn_test::OneProduct;
using cudnn_test::ToldConvolution;
using detail::ConvolutionProduct;
using testing::DescribedDevice;
using testing::message_of;

namespace {

/// How many problems to plan: the environment may ask for more than CI has time for.
int plans_wanted() {
  const char* const given = std::getenv("SHARDWISE_TEST_PLANS");
  return given != nullptr ? std::atoi(given) : testing::cases(960);
}

constexpr PlanLimits exact{false, std::size_t{1} << 30};
constexpr Dtype dtypes[] = {Dtype::float32, Dtype::float64, Dtype::bfloat16, Dtype::float16};

std::string to_string(const ConvolutionProblem& p) {
  const char* const products[] = {"forward", "backward_input", "backward_weight"};
  return std::string(products[static_cast<std::size_t>(p.product)]) +
         (p.write == Write::add ? " +=" : " =") + " in " + std::string(name(p.dtype)) +
         ", aligned to " + std::to_string(p.alignment) + ": " +
         backend_test::to_string(ConvolutionFormula{p.channels, p.call});
}

/// All products of a convolution in a dtype, as kernels ask for them.
std::vector<ConvolutionProblem> products_of(const ConvolutionFormula& f, Dtype dtype,
                                            std::int64_t alignment) {
  const auto problem = [&](ConvolutionProduct product, Write write) {
    return ConvolutionProblem{product, dtype, f.channels, f.call, write, alignment};
  };
  return {problem(ConvolutionProduct::forward, Write::replace),
          problem(ConvolutionProduct::backward_input, Write::replace),
          problem(ConvolutionProduct::backward_weight, Write::replace),
          problem(ConvolutionProduct::backward_weight, Write::add)};
}

/// Calls f(problem) for all products in all dtypes of random convolutions, until there were
/// `count`.
template <class F>
void for_random_problems(int count, F f) {
  const unsigned first = testing::seed();
  MESSAGE(count << " problems from SHARDWISE_TEST_SEED=" << first);
  std::mt19937 random(first);
  for (int done = 0; done < count;) {
    const ConvolutionFormula formula = backend_test::random_convolution(random);
    if (has_no_products(formula.channels, formula.call)) continue;
    for (const Dtype dtype : dtypes) {
      const bool is_aligned = random() % 2 == 0;
      const auto alignment = is_aligned ? 16 : static_cast<std::int64_t>(size_of(dtype));
      for (const ConvolutionProblem& problem : products_of(formula, dtype, alignment)) {
        const std::string text = to_string(problem);
        INFO("seed " << first << ", number " << done << ": " << text);
        f(problem);
        ++done;
      }
    }
  }
}

/// 64 -> 64 channels, 3x3 taps, in bf16.
ConvolutionProblem of_images(std::size_t images, std::size_t extent, ConvolutionProduct product) {
  const SpatialAxis axis{.input = extent, .output = extent, .kernel = 3, .before = 1};
  return {product,        Dtype::bfloat16,
          {1, 64, 64},    {images, {SpatialAxis{}, axis, axis}},
          Write::replace, 16};
}

bool has_note(const CudnnPlan& plan, cudnnBackendNumericalNote_t note) {
  const auto notes = notes_of(plan.proposal());
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

std::vector<OneProduct> products_by_formula(const ConvolutionFormula& f) {
  std::vector<OneProduct> all;
  f.for_each_product([&](std::size_t y, std::size_t x, std::size_t w) {
    all.push_back(
        {static_cast<std::int64_t>(y), static_cast<std::int64_t>(x), static_cast<std::int64_t>(w)});
  });
  return all;
}

std::vector<OneProduct> sorted(std::vector<OneProduct> products) {
  std::sort(products.begin(), products.end());
  return products;
}

}  // namespace

TEST_CASE("cuDNN is told of the products of a convolution, of each once, and of no others") {
  for_random_problems(testing::cases(400), [](const ConvolutionProblem& p) {
    const ConvolutionFormula formula{p.channels, p.call};
    if (formula.y_size() * formula.w_size() > std::size_t{1} << 20) return;
    const ToldConvolution told(p);
    CHECK(sorted(told.products()) == sorted(products_by_formula(formula)));
    CHECK(told.alpha == 1);
    CHECK(told.beta == (p.write == Write::add ? 1 : 0));
    CHECK(told.sums == (p.dtype == Dtype::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
    for (const cudnn_test::ToldTensor* tensor : {&told.x, &told.w, &told.y})
      CHECK(tensor->dtype == cudnn_dtype(p.dtype));
    CHECK(told.x.id == 'x');
    CHECK(told.w.id == 'w');
    CHECK(told.y.id == 'y');
  });
}

TEST_CASE("cuDNN is told of all elements of images, or it is known that some are left out") {
  for_random_problems(testing::cases(400), [](const ConvolutionProblem& p) {
    if (p.product != ConvolutionProduct::backward_input) return;
    const ToldConvolution told(p);
    std::size_t elements = 1;
    for (const std::int64_t size : told.x.sizes) elements *= static_cast<std::size_t>(size);
    CHECK((elements < result_size(p)) == leaves_out(p.call));
  });
}

TEST_CASE("promises: which notes of an engine keep them") {
  const auto keeps = [](cudnnBackendNumericalNote_t note, Dtype dtype, bool tf32 = false) {
    return keeps_promises(note, dtype, tf32);
  };
  for (const Dtype dtype : dtypes) {
    for (const auto note :
         {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
          CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_WINOGRAD,
          CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
          CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13}) {
      CHECK(!keeps(note, dtype));
      CHECK(!keeps(note, dtype, true));
    }
    CHECK(keeps(CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP, dtype));
    const bool is_float = dtype == Dtype::float32;
    CHECK(keeps(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, dtype) == !is_float);
    CHECK(keeps(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, dtype, true));
    CHECK(!keeps(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, dtype));
    CHECK(keeps(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, dtype, true) == is_float);
  }
}

TEST_CASE("cuDNN takes the pointers of a call; a descriptor that it refuses is an error by name") {
  int x = 0, w = 0, y = 0, workspace = 0;
  void* told = nullptr;
  const CudnnDescriptor pack = pointer_pack({&x, &w, &y}, &workspace);
  pack.read(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &told, 1);
  CHECK(told == &workspace);
  CHECK_NOTHROW(pointer_pack({&x, &w, &y}, nullptr));
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  CHECK(message_of<backend_error>([&] {
          tensor.finalize("cudnnBackendFinalize of a tensor");
        }).find("cuDNN: cudnnBackendFinalize of a tensor failed with CUDNN_STATUS_BAD_PARAM") == 0);
  CHECK(message_of<backend_error>([&] {
          tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, std::int64_t{1});
        }).find("cuDNN: cudnnBackendSetAttribute failed with CUDNN_STATUS_BAD_PARAM") == 0);
  std::int64_t id = 0;
  CHECK(message_of<backend_error>([&] {
          tensor.read(CUDNN_ATTR_TENSOR_UNIQUE_ID, &id, 1);
        }).find("cuDNN: cudnnBackendGetAttribute failed with CUDNN_STATUS_") == 0);
}

TEST_SUITE_BEGIN("devices that are only described");

TEST_CASE("every convolution has a plan that keeps promises, for sm_80 and for sm_90") {
  if (!testing::plans_for_described_devices()) return;
  const DescribedDevice a100 = DescribedDevice::a100(), h200 = DescribedDevice::h200();
  std::mt19937 random(testing::seed());
  for_random_problems(plans_wanted(), [&](const ConvolutionProblem& problem) {
    for (const DescribedDevice* device : {&a100, &h200}) {
      CAPTURE(device == &a100);
      const PlanLimits limits{false, random() % 2 * exact.workspace_bytes};
      std::vector<CudnnPlan> plans;
      CHECK_NOTHROW(plans = CudnnPlan::usable(*device, problem, limits, 1));
      REQUIRE(plans.size() == 1);
      CHECK(plans[0].workspace_bytes() <= limits.workspace_bytes);
      CHECK(!has_note(plans[0], CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
      CHECK(!has_note(plans[0], CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION));
      CHECK(!has_note(plans[0], CUDNN_NUMERICAL_NOTE_FFT));
      CHECK(!has_note(plans[0], CUDNN_NUMERICAL_NOTE_WINOGRAD));
      const bool is_float = problem.dtype == Dtype::float32;
      CHECK(!(is_float && has_note(plans[0], CUDNN_NUMERICAL_NOTE_TENSOR_CORE)));
    }
  });
}

TEST_CASE("TF32 is used where it is allowed, and up to eight plans are there to be timed") {
  if (!testing::plans_for_described_devices()) return;
  const DescribedDevice device = DescribedDevice::h200();
  ConvolutionProblem problem = of_images(32, 56, ConvolutionProduct::forward);
  problem.dtype = Dtype::float32;
  const std::vector<CudnnPlan> plans = CudnnPlan::usable(device, problem, exact, 8);
  CHECK(plans.size() > 1);
  CHECK(plans.size() <= 8);
  CHECK(!has_note(plans[0], CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
  PlanLimits tf32 = exact;
  tf32.tf32 = true;
  const std::vector<CudnnPlan> fast = CudnnPlan::usable(device, problem, tf32, 8);
  CHECK(fast.size() == 8);
  CHECK(has_note(fast[0], CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

TEST_CASE("an engine that is wrong for uneven padding is left out there") {
  if (!testing::plans_for_described_devices()) return;
  const DescribedDevice device = DescribedDevice::h200();
  for (const Dtype dtype : dtypes) {
    const auto has_engine_1 = [&](std::size_t outputs) {
      ConvolutionProblem problem = of_images(2, 6, ConvolutionProduct::backward_weight);
      problem.dtype = dtype;
      problem.channels = {1, 3, 5};
      problem.call.space[2].output = outputs;
      const auto plans = CudnnPlan::usable(device, problem, exact, 8);
      return std::any_of(plans.begin(), plans.end(), [](const CudnnPlan& plan) {
        std::int64_t number = -1;
        engine_of(plan.proposal()).read(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &number, 1);
        return number == 1;
      });
    };
    CAPTURE(static_cast<int>(dtype));
    if (size_of(dtype) > 2) CHECK(has_engine_1(6));
    CHECK(!has_engine_1(5));
  }
}

TEST_CASE("tensors that are less aligned get an engine that can read them") {
  if (!testing::plans_for_described_devices()) return;
  const DescribedDevice device = DescribedDevice::h200();
  ConvolutionProblem problem = of_images(8, 16, ConvolutionProduct::backward_weight);
  for (SpatialAxis& axis : problem.call.space) axis.kernel = 1, axis.before = 0;
  const auto is_fast = [&] {
    return has_note(CudnnPlan::usable(device, problem, exact, 1)[0],
                    CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  };
  CHECK(is_fast());
  problem.alignment = 2;
  CHECK(!is_fast());
}

TEST_CASE("many large images keep to tensor cores in the share of memory that is the default") {
  if (!testing::plans_for_described_devices()) return;
  const auto is_fast = [](const DescribedDevice& device, ConvolutionProduct product,
                          std::size_t workspace_bytes) {
    const PlanLimits limits{false, workspace_bytes};
    return has_note(CudnnPlan::usable(device, of_images(96, 224, product), limits, 1)[0],
                    CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  };
  const auto share = [](std::size_t device_bytes) {
    return convolution_workspace_of({.ranks_on_device = 2}, {.name = "", .bytes = device_bytes});
  };
  for (const auto product : {ConvolutionProduct::forward, ConvolutionProduct::backward_input,
                             ConvolutionProduct::backward_weight}) {
    CAPTURE(static_cast<int>(product));
    CHECK(!is_fast(DescribedDevice::h200(), product, std::size_t{1} << 30));
    CHECK(is_fast(DescribedDevice::h200(), product, share(150'754'820'096)));
    CHECK(is_fast(DescribedDevice::a100(), product, share(85'899'345'920)));
  }
}

TEST_CASE("where no engine is to be had, the error says so") {
  if (!testing::plans_for_described_devices()) return;
  const DescribedDevice old({500, 16, 49152, 2097152, 4'294'967'296});
  const std::string text = message_of<backend_error>(
      [&] { CudnnPlan::usable(old, of_images(1, 8, ConvolutionProduct::forward), exact, 1); });
  CAPTURE(text);
  CHECK(text.find("cuDNN " + std::to_string(cudnnGetVersion()) + " has no engine for it") == 0);
}

TEST_SUITE_END();
