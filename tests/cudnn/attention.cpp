// The plans of attentions that cuDNN itself makes for GPUs that are only described to it. It
// compiles them for these GPUs, and gives the code to a stand-in for the driver.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdlib>
#include <random>
#include <string>

#include "cudnn/described_device.hpp"
#include "shardwise/backend/cuda/cudnn_attention_graph.hpp"
#include "shardwise/backend/cuda/cudnn_attention_plan.hpp"
#include "shardwise/backend/cuda/cudnn_operations.hpp"
#include "shardwise/backend/cuda/cudnn_plan.hpp"
#include "support/effort.hpp"
#include "support/seed.hpp"
#include "unit/backend/attention_problem.hpp"

using namespace shardwise;
using namespace shardwise::detail::cuda;
using testing::DescribedDevice;

extern "C" int shardwise_test_loaded();

namespace {

struct Device {
  DescribedDevice described;
  int capability;
};

/// How many problems to plan, of which each takes a second: the environment may ask for more than
/// CI has time for.
int plans_wanted() {
  const char* const given = std::getenv("SHARDWISE_TEST_ATTENTIONS");
  return given != nullptr ? std::atoi(given) : testing::cases(12);
}

/// Any that a kernel may ask for.
AttentionProblem random_problem(std::mt19937& random) {
  const auto up_to = [&](std::size_t most) { return 1 + random() % most; };
  const auto rows = [&] { return up_to(random() % 2 == 0 ? 20 : 600); };
  backend_test::AttentionProblem p;
  const bool causal = random() % 3 != 0;
  const std::size_t length = rows(), here = causal ? length : rows(), readers = up_to(4);
  const std::size_t window = causal && random() % 2 == 0 ? up_to(length) : 0;
  p.heads = backend_test::heads_of(8 * up_to(16), readers, 0, readers * up_to(4));
  p.tokens = backend_test::tokens_of(length, causal, window, 0, here);
  const auto pass = static_cast<AttentionPass>(random() % 3);
  const auto asked = [&](auto numbers) {
    return cudnn_attention(numbers.operands(p), pass).value();
  };
  return random() % 2 == 0 ? asked(backend_test::AttentionNumbers<bf16>(p))
                           : asked(backend_test::AttentionNumbers<fp16>(p));
}

std::string to_string(const AttentionProblem& p) {
  const char* const passes[] = {"forward", "forward with sums", "backward"};
  std::string text = passes[static_cast<std::size_t>(p.pass)];
  const auto add = [&](const char* name, std::size_t number) {
    text += std::string(", ") + name + ' ' + std::to_string(number);
  };
  add("samples", p.samples), add("rows", p.query_rows), add("key rows", p.key_rows);
  add("heads", p.query_heads), add("key heads", p.key_heads), add("size", p.size);
  add("causal", p.causal ? 1 : 0), add("window", p.window);
  return text + ", " + std::string(name(p.dtype));
}

/// What the kernel allows.
std::size_t room_for(const AttentionProblem& p) {
  std::size_t room = 1024;
  while (samples_at_once(p, room) < p.samples) room += room / 64;
  return room;
}

void check_plan(const AttentionProblem& problem, const Device& device) {
  INFO(to_string(problem) << " for " << device.capability);
  const auto plan = CudnnAttentionPlan::of(device.described, problem, room_for(problem));
  REQUIRE(plan.has_value());
  CHECK(shardwise_test_loaded() == device.capability);
  for (const cudnnBackendNumericalNote_t note : notes_of(plan->plan().proposal()))
    CHECK(note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
}

}  // namespace

TEST_SUITE_BEGIN("devices that are only described");

TEST_CASE("every attention has a plan on tensor cores that keeps promises, for sm_80 and sm_90") {
  if (!testing::plans_for_described_devices()) return;
  const Device devices[] = {{DescribedDevice::a100(), 80}, {DescribedDevice::h200(), 90}};
  const unsigned seed = testing::seed();
  const int count = plans_wanted();
  MESSAGE(count << " problems from SHARDWISE_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (int number = 0; number < count; ++number) {
    CAPTURE(number);
    check_plan(random_problem(random), devices[number % 2]);
  }
}

TEST_CASE("heads that the library has no engine for are those that it is not asked for") {
  if (!testing::plans_for_described_devices()) return;
  const DescribedDevice device = DescribedDevice::a100();
  const AttentionProblem problem{
      AttentionPass::backward, Dtype::bfloat16, 2, 64, 64, 4, 4, 64, true, 0, 0.125F};
  for (const std::size_t size : {4U, 12U, 136U}) {
    CAPTURE(size);
    AttentionProblem other = problem;
    other.size = size;
    CHECK(!CudnnAttentionPlan::of(device, other, std::size_t{1} << 30));
  }
  for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
    AttentionProblem other = problem;
    other.dtype = dtype;
    CHECK(!CudnnAttentionPlan::of(device, other, std::size_t{1} << 30));
  }
}

TEST_CASE("a workspace that is too small is no plan") {
  if (!testing::plans_for_described_devices()) return;
  const DescribedDevice device = DescribedDevice::h200();
  const AttentionProblem problem{
      AttentionPass::backward, Dtype::bfloat16, 2, 256, 256, 4, 4, 64, true, 0, 0.125F};
  CHECK(!CudnnAttentionPlan::of(device, problem, std::size_t{2} * 4 * 256 * 256));
}

TEST_SUITE_END();
