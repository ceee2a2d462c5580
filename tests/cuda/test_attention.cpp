// Attention around cuDNN's plans, on the stand-in for CUDA's runtime: in the place of a plan, the
// graph that cuDNN would get is computed by plain loops. Its real plans are shown in
// cudnn/attention.cpp.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/host_cuda.hpp"
#include "cuda/interpreted_graph.hpp"
#include "cuda/stand_in.hpp"
#include "shardwise/backend/cuda/cudnn_attention.hpp"
#include "support/effort.hpp"
#include "support/seed.hpp"
#include "unit/backend/attention_problem.hpp"

using namespace shardwise;
using namespace shardwise::detail::cuda;
using backend_test::AttentionNumbers;
using backend_test::error_of;
using backend_test::heads_of;
using backend_test::tokens_of;
using testing::HostCuda;
using testing::Machine;
using Attention = backend_test::AttentionProblem;

namespace {

/// In place of CudnnAttentionPlan.
class InterpretedPlan {
 public:
  static inline std::vector<AttentionProblem> made;
  static inline bool has_engines = true;
  static inline int runs = 0;

  static std::optional<InterpretedPlan> of(Session&, const AttentionProblem& problem) {
    made.push_back(problem);
    return has_engines ? std::optional(InterpretedPlan(problem)) : std::nullopt;
  }

  std::size_t workspace_bytes() const { return 1000; }

  cudnnStatus_t launch(Session& session, std::span<const AttentionPointer> pointers,
                       void* workspace) const {
    if (stand_in::fails("cudnnBackendExecute")) return CUDNN_STATUS_INTERNAL_ERROR;
    std::map<std::int64_t, void*> memory;
    for (const auto& [tensor, data] : pointers)
      memory[static_cast<std::int64_t>(tensor)] = const_cast<void*>(data);
    stand_in::push(session.stream().get(), [=, problem = problem_] {
      ++runs;
      const AttentionGraph graph(problem);
      cuda_test::InterpretedGraph(graph.operations(), memory).run();
      std::memset(workspace, 0xFF, 1000);  // nobody else may use it
    });
    return CUDNN_STATUS_SUCCESS;
  }

 private:
  explicit InterpretedPlan(const AttentionProblem& problem) : problem_(problem) {}

  AttentionProblem problem_;
};

template <class T>
using Kernel = CudnnAttention<HostCuda, T, InterpretedPlan>;

template <class T>
AttentionNumbers<T> on_device(HostCuda& cuda, const Attention& p, std::size_t offset = 0) {
  AttentionNumbers<T> n(p);
  const testing::OnDevice q(cuda, n.q, offset), k(cuda, n.k), v(cuda, n.v), dy(cuda, n.dy),
      y(cuda, n.y), dq(cuda, n.dq), dk(cuda, n.dk), dv(cuda, n.dv);
  auto of = n.operands(p);
  of.q = q.data(), of.k = k.data(), of.v = v.data();
  Kernel<T>(cuda).forward(of, y.data());
  Kernel<T>(cuda).backward(of, dy.data(), dq.data(), dk.data(), dv.data());
  n.y = y.values(), n.dq = dq.values(), n.dk = dk.values(), n.dv = dv.values();
  return n;
}

/// Whether all results are those of plain loops in double, but for y and weights that are rounded.
template <class T>
void check(HostCuda& cuda, const Attention& p) {
  const double bound = std::is_same_v<T, bf16> ? 0.02 : 0.003;
  const AttentionNumbers<double> exact = backend_test::attention_by_loops(p);
  const AttentionNumbers<T> ours = on_device<T>(cuda, p);
  CHECK(error_of(ours.y, exact.y) < bound);
  CHECK(error_of(ours.dq, exact.dq) < bound);
  CHECK(error_of(ours.dk, exact.dk) < bound);
  CHECK(error_of(ours.dv, exact.dv) < bound);
}

/// The plans that a call makes, and the passes that they run.
struct Counted {
  Counted() { InterpretedPlan::made.clear(), InterpretedPlan::runs = 0; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { InterpretedPlan::has_engines = true; }

  Machine machine;
};

/// Whether cuDNN computes it.
bool is_by_library(const Attention& p) {
  const AttentionNumbers<bf16> n(p);
  return cudnn_attention(n.operands(p), AttentionPass::forward).has_value();
}

}  // namespace

TEST_CASE_TEMPLATE("cuda: attention of any form, forward and backward", T, bf16, fp16) {
  const unsigned seed = testing::seed();
  MESSAGE("attentions from SHARDWISE_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const auto up_to = [&](std::size_t most) { return 1 + random() % most; };
  for (int i = 0; i < testing::cases(12); ++i) {
    const Counted counted;
    HostCuda cuda;
    const std::size_t length = 7 + up_to(17), readers = up_to(3), size = 8 * up_to(3);
    const bool causal = random() % 3 != 0;
    const std::size_t window = causal && random() % 2 == 0 ? up_to(length + 2) : 0;
    const Attention p{tokens_of(length, causal, window),
                      heads_of(size, readers, readers * (random() % 2), readers * up_to(3))};
    INFO("number " << i << ": " << length << " rows, " << p.heads.queries << " heads of " << size
                   << ", " << readers << " readers, window " << window);
    check<T>(cuda, p);
    CHECK(InterpretedPlan::runs == 3);
    CHECK(cuda.loops == 0);
  }
}

TEST_CASE("cuda: graphs of an attention are exact but for roundings to float") {
  const Attention p{tokens_of(23, true, 7), heads_of(8, 2, 0, 4)};
  const AttentionNumbers<double> exact = backend_test::attention_by_loops(p);
  AttentionNumbers<double> n(p);
  std::vector<float> sums(2 * 23 * 4), means(sums.size());
  AttentionProblem problem = *cudnn_attention(n.operands(p), AttentionPass::forward_with_sums);
  std::map<std::int64_t, void*> memory;
  const auto has = [&](AttentionTensor tensor, void* data) {
    memory[static_cast<std::int64_t>(tensor)] = data;
  };
  has(AttentionTensor::q, n.q.data()), has(AttentionTensor::k, n.k.data());
  has(AttentionTensor::v, n.v.data()), has(AttentionTensor::y, n.y.data());
  has(AttentionTensor::sums, sums.data()), has(AttentionTensor::means, means.data());
  has(AttentionTensor::dy, n.dy.data()), has(AttentionTensor::dq, n.dq.data());
  has(AttentionTensor::dk, n.dk.data()), has(AttentionTensor::dv, n.dv.data());
  for (const AttentionPass pass : {AttentionPass::forward_with_sums, AttentionPass::backward}) {
    problem.pass = pass;
    const AttentionGraph graph(problem);
    cuda_test::InterpretedGraph(graph.operations(), memory).run();
  }
  CHECK(error_of(n.y, exact.y) < 1e-7);
  CHECK(error_of(n.dq, exact.dq) < 1e-6);
  CHECK(error_of(n.dk, exact.dk) < 1e-6);
  CHECK(error_of(n.dv, exact.dv) < 1e-6);
}

TEST_CASE("cuda: attention that cuDNN does not compute runs by loops") {
  const Attention whole{tokens_of(20, true), heads_of(16, 2, 0, 4)};
  CHECK(is_by_library(whole));
  CHECK(is_by_library({tokens_of(20, false, 0, 5, 10), heads_of(16, 2, 0, 4)}));
  CHECK(is_by_library({tokens_of(20, true), heads_of(16, 4, 2, 2)}));  // of one group, in part
  CHECK(is_by_library({tokens_of(20, true), heads_of(16, 3, 2, 2)}));  // the last and the first

  std::vector<Sequences::Row> places(2 * 20);
  for (std::size_t row = 0; row < 30; ++row) places[row] = {row / 10 * 10, row / 10 * 10 + 10, 0};
  Attention documents = whole, capped = whole, dropped = whole;
  documents.tokens.sequences = Sequences(20, places.data());
  capped.soft_cap = 1.5;
  dropped.dropped = 0.25;
  const Attention others[] = {documents,
                              capped,
                              dropped,
                              {tokens_of(20, true, 0, 5, 10), heads_of(16, 2, 0, 4)},
                              {tokens_of(20, true), heads_of(12, 2, 0, 4)},
                              {tokens_of(20, true), heads_of(136, 2, 0, 4)},
                              {tokens_of(20, true), heads_of(16, 3, 1, 3)},
                              {tokens_of(20, true), heads_of(16, 3, 2, 4)},
                              {tokens_of(20, true, 0, 20, 0), heads_of(16, 2, 0, 4)},
                              {tokens_of(20, true), heads_of(16, 1, 2, 0)},
                              {tokens_of(20, true), {16, 1, 4, 0, 0, 2, 0}},
                              {tokens_of(20, true), heads_of(0, 1, 0, 2)}};
  for (const Attention& p : others) {
    const Counted counted;
    HostCuda cuda;
    CHECK(!is_by_library(p));
    check<bf16>(cuda, p);
    CHECK(InterpretedPlan::made.empty());
  }
}

TEST_CASE("cuda: attention without an engine, or of unaligned tensors, runs by loops") {
  const Attention p{tokens_of(20, true), heads_of(16, 2, 0, 4)};
  const Counted counted;
  HostCuda cuda;
  InterpretedPlan::has_engines = false;
  check<bf16>(cuda, p);
  CHECK(InterpretedPlan::made.size() == 3);
  check<bf16>(cuda, p);
  CHECK(InterpretedPlan::made.size() == 3);  // it is known by now
  InterpretedPlan::has_engines = true;
  on_device<fp16>(cuda, p, 1);
  CHECK(InterpretedPlan::made.size() == 3);
  stand_in::major = 7;
  HostCuda old;
  check<fp16>(old, p);
  CHECK(InterpretedPlan::made.size() == 3);
}

TEST_CASE("cuda: attention goes backward for as many samples as the workspace has room for") {
  Attention p{tokens_of(20, true), heads_of(16, 1, 0, 4)};
  p.tokens.queries.samples = p.tokens.keys.samples = 3;
  const std::size_t sample = 4 * 64 * 128 * 2;
  for (const std::size_t room : {sample - 1, sample, 2 * sample - 1, 2 * sample, 3 * sample}) {
    CAPTURE(room);
    const Counted counted;
    HostCuda cuda(CudaOptions{.convolution_workspace_bytes = room + 1024});
    check<bf16>(cuda, p);
    const std::size_t at_once = room / sample;
    const std::size_t passes = at_once == 0 ? 0 : (3 + at_once - 1) / at_once;
    CHECK(InterpretedPlan::runs == static_cast<int>(1 + 2 * passes));
    CHECK(InterpretedPlan::made.size() == (at_once == 0 ? 1 : at_once == 2 ? 5 : 3));
  }
}

TEST_CASE("cuda: grouped heads need a workspace for gradients of each query head") {
  AttentionProblem problem{
      AttentionPass::backward, Dtype::bfloat16, 3, 64, 128, 8, 2, 128, false, 0, 1};
  const std::size_t sample = 2 * 8 * (64 * 128 + 2 * 128 * 128);
  CHECK(samples_at_once(problem, 1024 + 2 * sample) == 2);
  CHECK(samples_at_once(problem, 1023 + 2 * sample) == 1);
  CHECK(samples_at_once(problem, 9 * sample) == 3);
  CHECK(samples_at_once(problem, 100) == 0);
  problem.query_rows = 65;  // rows are padded to 64, keys to 128
  problem.key_rows = 257;
  const std::size_t longer = 2 * 8 * (128 * 384 + 2 * 384 * 128);
  CHECK(samples_at_once(problem, 1024 + longer) == 1);
  CHECK(samples_at_once(problem, 1023 + longer) == 0);
}

TEST_CASE("cuda: gradients of an attention that nobody wants are left out") {
  const Attention p{tokens_of(20, true), heads_of(16, 2, 0, 4)};
  const Counted counted;
  HostCuda cuda;
  const AttentionNumbers<bf16> all = on_device<bf16>(cuda, p);
  AttentionNumbers<bf16> n(p);
  const testing::OnDevice q(cuda, n.q), k(cuda, n.k), v(cuda, n.v), dy(cuda, n.dy), dq(cuda, n.dq),
      dv(cuda, n.dv);
  auto of = n.operands(p);
  of.q = q.data(), of.k = k.data(), of.v = v.data();
  bf16* const none = nullptr;
  Kernel<bf16>(cuda).backward(of, dy.data(), dq.data(), none, none);
  CHECK(dq.values() == all.dq);
  Kernel<bf16>(cuda).backward(of, dy.data(), none, none, dv.data());
  CHECK(dv.values() == all.dv);
}

TEST_CASE("cuda: an attention that fails says which one") {
  const Counted counted;
  HostCuda cuda;
  const Attention p{tokens_of(20, true), heads_of(16, 2, 0, 4)};
  AttentionNumbers<bf16> n(p);
  const testing::OnDevice q(cuda, n.q), k(cuda, n.k), v(cuda, n.v), y(cuda, n.y);
  auto of = n.operands(p);
  of.q = q.data(), of.k = k.data(), of.v = v.data();
  Kernel<bf16>(cuda).forward(of, y.data());
  std::string text;
  for (int call = 1; text.find("cudnnBackendExecute") == std::string::npos && call < 20; ++call) {
    stand_in::calls = 0, stand_in::fails_at = call;
    try {
      Kernel<bf16>(cuda).forward(of, y.data());
    } catch (const backend_error& e) {
      text = e.what();
    }
  }
  stand_in::fails_at = 0;
  CHECK(text.find("attention forward of 40 rows, 4 heads of 16 features in bfloat16") !=
        std::string::npos);
  CHECK(text.find("cudnnBackendExecute failed") != std::string::npos);
}
