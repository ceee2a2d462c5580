// Attention by cuDNN on a GPU against plain loops in double, on the host.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/backend/cuda/cudnn_attention_graph.hpp"
#include "shardwise/backend/cuda/cudnn_attention_plan.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/memory.hpp"
#include "support/effort.hpp"
#include "support/seed.hpp"
#include "unit/backend/attention_problem.hpp"

using namespace shardwise;
using backend_test::AttentionNumbers;
using backend_test::AttentionProblem;
using backend_test::error_of;
using backend_test::heads_of;
using backend_test::tokens_of;
using detail::cuda::AttentionPass;

namespace {

/// An attention whose tensors are on the device.
template <class T>
class OnGpu {
 public:
  OnGpu(Cuda& backend, const AttentionProblem& p)
      : backend_(&backend), pool_(backend.memory()), numbers_(p), of_(numbers_.operands(p)) {
    of_.q = there(numbers_.q), of_.k = there(numbers_.k), of_.v = there(numbers_.v);
    dy_ = there(numbers_.dy), y_ = there(numbers_.y);
    dq_ = there(numbers_.dq), dk_ = there(numbers_.dk), dv_ = there(numbers_.dv);
  }

  void compute() {
    typename Cuda::Attention<T> attention(*backend_);
    attention.forward(of_, y_);
    attention.backward(of_, dy_, dq_, dk_, dv_);
  }
  /// With the results.
  const AttentionNumbers<T>& numbers() {
    here(y_, numbers_.y), here(dq_, numbers_.dq), here(dk_, numbers_.dk), here(dv_, numbers_.dv);
    return numbers_;
  }
  /// Overwrites the results.
  void forget() {
    for (const auto& [at, values] : {std::pair{y_, &numbers_.y},
                                     {dq_, &numbers_.dq},
                                     {dk_, &numbers_.dk},
                                     {dv_, &numbers_.dv}}) {
      std::fill(values->begin(), values->end(), T(7));
      backend_->to_device(values->data(), values->size(), at);
    }
  }
  /// As cuDNN gets it, if it does.
  std::optional<detail::cuda::AttentionProblem> told(detail::cuda::AttentionPass pass) const {
    return detail::cuda::cudnn_attention(of_, pass);
  }

 private:
  T* there(const std::vector<T>& values) {
    T* const at =
        static_cast<T*>(memory_.emplace_back(pool_.take(values.size() * sizeof(T))).data());
    backend_->to_device(values.data(), values.size(), at);
    return at;
  }
  void here(const T* from, std::vector<T>& values) {
    backend_->to_host(from, values.size(), values.data());
  }

  Cuda* backend_;
  Pool pool_;
  std::vector<Buffer> memory_;
  AttentionNumbers<T> numbers_;
  decltype(numbers_.operands({})) of_;
  T *dy_, *y_, *dq_, *dk_, *dv_;
};

/// Weights, slopes and y are rounded to T, as are the results.
template <class T>
void check(const AttentionNumbers<T>& ours, const AttentionProblem& p) {
  const double bound = std::is_same_v<T, bf16> ? 0.03 : 0.005;
  const AttentionNumbers<double> exact = backend_test::attention_by_loops(p);
  CHECK(error_of(ours.y, exact.y) < bound);
  CHECK(error_of(ours.dq, exact.dq) < bound);
  CHECK(error_of(ours.dk, exact.dk) < bound);
  CHECK(error_of(ours.dv, exact.dv) < bound);
}

template <class T>
bool are_same_bits(const AttentionNumbers<T>& a, const AttentionNumbers<T>& b) {
  return a.y == b.y && a.dq == b.dq && a.dk == b.dk && a.dv == b.dv;
}

AttentionProblem random_problem(std::mt19937& random) {
  const auto up_to = [&](std::size_t most) { return 1 + random() % most; };
  const bool causal = random() % 3 != 0;
  const std::size_t length = 7 + up_to(293), readers = up_to(4);
  const std::size_t window = causal && random() % 2 == 0 ? 1 + up_to(length) : 0;
  return {tokens_of(length, causal, window),
          heads_of(8 * up_to(16), readers, 0, readers * up_to(3))};
}

}  // namespace

TEST_CASE_TEMPLATE("attention of any form, with the same bits again", T, bf16, fp16) {
  const unsigned seed = testing::seed();
  MESSAGE("attentions from SHARDWISE_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  Cuda backend;
  for (int i = 0; i < testing::cases(20); ++i) {
    const AttentionProblem p = random_problem(random);
    INFO("number " << i << ": " << p.tokens.queries.here << " rows, " << p.heads.queries
                   << " heads of " << p.heads.size << ", " << p.heads.readers << " readers, window "
                   << p.tokens.window << ", causal " << p.tokens.causal);
    OnGpu<T> attention(backend, p);
    REQUIRE(attention.told(AttentionPass::forward));
    attention.compute();
    const AttentionNumbers<T> first = attention.numbers();
    check(first, p);
    attention.forget();
    attention.compute();
    CHECK(are_same_bits(first, attention.numbers()));
  }
}

TEST_CASE("cuDNN has an engine for attention on this device") {
  Cuda backend;
  const OnGpu<bf16> attention(backend, {tokens_of(300, true, 100), heads_of(64, 2, 0, 4)});
  for (const AttentionPass pass :
       {AttentionPass::forward, AttentionPass::forward_with_sums, AttentionPass::backward})
    CHECK(detail::cuda::CudnnAttentionPlan::of(backend.session(), attention.told(pass).value()));
}

TEST_CASE("attention that cuDNN does not compute runs by loops") {
  Cuda backend;
  AttentionProblem p{tokens_of(60, true), heads_of(16, 2, 0, 4)};
  p.soft_cap = 1.5;
  OnGpu<bf16> attention(backend, p);
  CHECK(!attention.told(AttentionPass::forward));
  attention.compute();
  check(attention.numbers(), p);
}

TEST_CASE("attention in a CUDA graph has the same bits") {
  Cuda backend;
  const AttentionProblem p{tokens_of(128, true), heads_of(64, 2, 0, 4)};
  OnGpu<bf16> attention(backend, p);
  attention.compute();
  const AttentionNumbers<bf16> first = attention.numbers();
  Cuda::Recording recording(backend, [&] { attention.compute(); });
  for (int launch = 0; launch < 2; ++launch) {
    attention.forget();
    recording.launch();
    CHECK(are_same_bits(first, attention.numbers()));
  }
}
