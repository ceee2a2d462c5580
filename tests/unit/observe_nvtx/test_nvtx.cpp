// The ranges that NVIDIA's profilers are told of, seen by a tool of NVTX that is linked into this
// program. No profiler and no GPU takes part.

#include <doctest/doctest.h>
#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/observe/nvtx.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"

using namespace shardwise;

namespace {

/// What a tool was told: ranges by depth and title, and the titles that were made.
struct Told {
  std::string domain;
  std::deque<std::string> titles;
  std::vector<std::string> ranges;
  std::size_t depth = 0;
};
Told told;

nvtxDomainHandle_t create(const char* name) {
  told.domain = name;
  return reinterpret_cast<nvtxDomainHandle_t>(&told);
}
nvtxStringHandle_t make_title(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(&told.titles.emplace_back(text));
}
int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* range) {
  if (range->messageType != NVTX_MESSAGE_TYPE_REGISTERED) return -1;
  const auto* title = reinterpret_cast<const std::string*>(range->message.registered);
  told.ranges.push_back(std::string(2 * told.depth++, ' ') + *title);
  return 0;
}
int pop(nvtxDomainHandle_t) {
  --told.depth;
  return 0;
}

int start_tool(NvtxGetExportTableFunc_t get_table) {
  const auto* tables = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (tables->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
  *table[NVTX_CBID_CORE2_DomainRegisterStringA] = reinterpret_cast<NvtxFunctionPointer>(make_title);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

struct Net : Sequential<ColumnParallelLinear<3, 4>, Gelu, RowParallelLinear<4, 2>> {};

}  // namespace

TEST_CASE("a step is ranges inside each other, whose titles are made once") {
  InitializeInjectionNvtx2_fnptr = start_tool;  // NVTX calls it before the first range
  run_ranks(1, [](ThreadCommunicator& ranks) {
    Model<Net, Context<float, Reference, ThreadCommunicator, NvtxObserver>> model(ranks, Seed{1});
    Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
    Tensor<float, Invariant> x({{Axis::batch, 2}, {Axis::feature, 3}}, place_of(ranks));
    Tensor<float, Invariant> target({{Axis::batch, 2}, {Axis::feature, 2}}, place_of(ranks));
    const auto step = [&] {
      told.ranges.clear();
      train_step(model, x.view(), target.view(), MeanSquaredError{}, optimizer);
    };
    step();
    const std::vector<std::string> first = told.ranges;
    const std::size_t titles = told.titles.size();
    CHECK(first ==
          std::vector<std::string>{"forward", "  0: ColumnParallelLinear<3, 4>",
                                   "    ColumnParallelLinear<3, 4>", "  1: Gelu", "    Gelu",
                                   "  2: RowParallelLinear<4, 2>", "    RowParallelLinear<4, 2>",
                                   "  all_reduce: Partial -> Invariant", "loss", "backward",
                                   "  2: RowParallelLinear<4, 2>", "    RowParallelLinear<4, 2>",
                                   "  1: Gelu", "    Gelu", "  0: ColumnParallelLinear<3, 4>",
                                   "    ColumnParallelLinear<3, 4>", "finish", "  settle"});
    CHECK(told.depth == 0);
    CHECK(told.domain == "shardwise");
    step();
    CHECK(told.ranges == first);
    CHECK(told.titles.size() == titles);
  });
}
