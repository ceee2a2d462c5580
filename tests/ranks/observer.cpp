// What a tracer notes of training steps, held against the plan and against the calls that pass
// below the redistributions.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/observe/write_trace.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/count_allocations.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;
using nlohmann::json;

namespace {

using Counted = CountingCommunicator<testing::Ranks>;

/// The name of a type says nothing safe: JSON has to quote it.
struct Quoted : Linear<split::none, 6, 6> {};

struct Block
    : Residual<
          Sequential<LayerNorm<6>, ColumnParallelLinear<6, 9>, Gelu, RowParallelLinear<9, 6>>> {};
struct Net : Sequential<Quoted, BatchNorm<6>, Repeat<2, Block>, To<Invariant>,
                        ColumnParallelLinear<6, 5>> {};
using RowsToClasses = Ends<Sharded<Axis::batch>, Sharded<Axis::feature>>;

}  // namespace

template <>
struct shardwise::NameOf<Quoted> {
  static std::string name() { return "a \"quoted\"\\\n layer"; }
};

namespace {

constexpr std::size_t samples = 10;
const Shape in{{Axis::batch, samples}, {Axis::feature, 6}};

template <class M, class C>
struct Steps {
  explicit Steps(C& ranks) : model(Net{}, ranks, Seed{1}, in) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.1F * static_cast<float>(i % 7);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 5);
  }

  void step() { train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer, options); }

  M model;
  Optimizer<Sgd, M> optimizer{model, {.learning_rate = 0.01}};
  LossScaler scaler = LossScaler::fixed(2);
  StepOptions options{.clip_norm = 1.0, .scaler = &scaler};
  Tensor<float, Sharded<Axis::batch>> x{in, place_of(model.ranks())};
  Tensor<std::int32_t, Invariant> labels{{{Axis::batch, samples}}, place_of(model.ranks())};
};

template <class C, class O>
using ModelOf = Model<Net, Context<float, Reference, C, O>, RowsToClasses>;

json read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return json::parse(file);
}

/// Nanoseconds, which the file holds as microseconds with three places.
std::int64_t nanoseconds(const json& number) { return std::llround(number.get<double>() * 1000); }

/// The complete events of a row, in the order of the file.
std::vector<json> row(const json& trace, int rank, const std::string& name) {
  int tid = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("name") == "thread_name" && event.at("pid") == rank + 1 &&
        event.at("args").at("name") == name)
      tid = event.at("tid");
  }
  std::vector<json> found;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X" && event.at("pid") == rank + 1 && event.at("tid") == tid)
      found.push_back(event);
  }
  return found;
}

/// The first two events of a row that overlap and are not one inside the other; nothing if none do.
std::string overlap(const std::vector<json>& events) {
  std::vector<std::pair<std::int64_t, std::string>> open;  // when they end, and their names
  std::int64_t last = 0;
  for (const json& event : events) {
    const std::int64_t begin = nanoseconds(event.at("ts"));
    const std::int64_t end = begin + nanoseconds(event.at("dur"));
    const std::string name = event.at("name");
    if (begin < last || end < begin) return name + " is out of order";
    last = begin;
    while (!open.empty() && open.back().first <= begin) open.pop_back();
    if (!open.empty() && end > open.back().first) return name + " and " + open.back().second;
    open.emplace_back(end, name);
  }
  return {};
}

std::vector<std::string> names(const std::vector<json>& events, const char* category) {
  std::vector<std::string> found;
  for (const json& event : events) {
    if (event.at("cat") == category) found.push_back(event.at("name"));
  }
  return found;
}

/// One step of which a trace is written; checks what each rank can see alone.
void traced_step(int ranks, const std::filesystem::path& path, Plan& plan) {
  testing::run_on_ranks(ranks, [&](testing::Ranks& inner) {
    Counted counted(inner);
    Steps<ModelOf<Counted, Tracer>, Counted> run(counted);
    run.step();
    CHECK(run.model.observer().events().empty());
    CHECK(run.model.observer().dropped() > 0);
    run.model.observer().reserve(200);
    CHECK(run.model.observer().dropped() == 0);
    counted.clear();
    run.step();
    const std::vector<CountedCall> calls(counted.log().begin(), counted.log().end());
    std::vector<CountedCall> noted;
    for (const Tracer::Event& event : run.model.observer().events()) {
      const Collective& sent = event.work.collective;
      if (event.work.kind == Work::Kind::collective)
        noted.push_back({sent.operation, sent.dtype, 0});
    }
    CHECK(noted.size() == calls.size());
    for (std::size_t i = 0; i < std::min(noted.size(), calls.size()); ++i) {
      CHECK(noted[i].operation == calls[i].operation);
      CHECK(noted[i].dtype == calls[i].dtype);
    }
    if (counted.rank() == 0) plan = plan_step(run.model, in, CrossEntropy{}, run.options);
    write_trace(path, counted, run.model.observer());
  });
}

}  // namespace

TEST_CASE("a step is noted as the plan says, one event inside the other or behind it") {
  const testing::TemporaryFolder folder("shardwise_trace");
  const auto path = folder.path() / "trace.json";
  for (const int ranks : testing::rank_counts({1, 2, 3, 4})) {
    CAPTURE(ranks);
    Plan plan;
    traced_step(ranks, path, plan);
    CollectiveList planned;
    for (const CollectiveList* list :
         {&plan.forward, &plan.loss, &plan.backward, &plan.settle, &plan.finish})
      for (const Collective& entry : *list) planned.add(entry);
    REQUIRE(planned.size() > 12);
    const json trace = read(path);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto compute = row(trace, rank, "compute");
      const auto sent = row(trace, rank, "communication");
      CHECK(overlap(compute) == "");
      CHECK(overlap(sent) == "");
      REQUIRE(sent.size() == planned.size());
      for (std::size_t i = 0; i < sent.size(); ++i) {
        CHECK(sent[i].at("name") == name(planned[i].operation));
        CHECK(sent[i].at("args").at("sends") == to_string(planned[i]));
        CHECK(sent[i].at("args").at("bytes") == planned[i].bytes_sent(ranks));
        if (i > 0)  // a rank sends one thing at a time
          CHECK(nanoseconds(sent[i].at("ts")) >=
                nanoseconds(sent[i - 1].at("ts")) + nanoseconds(sent[i - 1].at("dur")));
      }
      CHECK(names(compute, "phase") ==
            std::vector<std::string>{"forward", "loss", "backward", "finish", "settle"});
      CHECK(names(compute, "part") == std::vector<std::string>{"2 Repeat", "2.0 Block", "2.1 Block",
                                                               "2 Repeat", "2.1 Block",
                                                               "2.0 Block"});
      const auto computed = names(compute, "compute");
      REQUIRE(computed.size() == 2 * 13);
      CHECK(computed[0] == "0 a \"quoted\"\\\n layer");
      CHECK(computed[2].starts_with("2.0.0 LayerNorm"));
      CHECK(computed[6] == "2.0 Sum");
      CHECK(computed[8].starts_with("2.1.1 ColumnParallelLinear"));
      CHECK(computed[12].starts_with("4 ColumnParallelLinear"));
      CHECK(computed[13].starts_with("4 ColumnParallelLinear"));
      CHECK(computed[25] == computed[0]);
    }
    CHECK(std::all_of(trace.at("traceEvents").begin(), trace.at("traceEvents").end(),
                      [](const json& event) { return event.at("pid") >= 1; }));
    CHECK(trace.at("traceEvents").dump().find("had no room") == std::string::npos);
  }
}

TEST_CASE("where an event happened is said as descriptions number layers") {
  const testing::TemporaryFolder folder("shardwise_trace");
  Plan plan;
  traced_step(2, folder.path() / "trace.json", plan);
  const auto sent = row(read(folder.path() / "trace.json"), 0, "communication");
  const json& statistics = sent.front();
  CHECK(statistics.at("args").at("layer") == "1");
  CHECK(statistics.at("args").at("moves") == "Partial -> Replicated");
  CHECK(statistics.at("args").at("phase") == "forward");
  const json& norm = sent.back();
  CHECK_FALSE(norm.at("args").contains("layer"));
  CHECK(norm.at("args").at("moves") == "norm of the gradients");
  CHECK(norm.at("args").at("phase") == "finish");
}

TEST_CASE("a step whose events have no room goes on, and its trace says so") {
  const testing::TemporaryFolder folder("shardwise_trace");
  const auto path = folder.path() / "trace.json";
  testing::run_on_ranks(2, [&](testing::Ranks& inner) {
    Counted ranks(inner);
    ranks.reserve(1000);
    Steps<ModelOf<Counted, Tracer>, Counted> run(ranks);
    Tracer& tracer = run.model.observer();
    tracer.reserve(1000);
    run.step();
    const std::size_t needed = tracer.events().size();
    tracer.reserve(11);
    run.step();
    CHECK(tracer.events().size() == 11);
    CHECK(tracer.dropped() == needed - 11);
    for (const Tracer::Event& event : tracer.events()) CHECK(event.end >= event.begin);
    write_trace(path, ranks, tracer);
    tracer.clear();
    CHECK(tracer.events().empty());
    CHECK(tracer.dropped() == 0);
    run.model.evaluate(run.x.view());
    CHECK(tracer.events().front().work.name() == "evaluate");
    CHECK(tracer.events()[1].within == 0);
  });
  const json trace = read(path);
  CHECK(overlap(row(trace, 1, "compute")) == "");
  CHECK(trace.dump().find("events had no room") != std::string::npos);
}

TEST_CASE("an event that has no room does not end the one around it") {
  using namespace std::chrono_literals;
  Tracer tracer;
  tracer.reserve(1);
  for (int i = 0; i < 2; ++i) tracer.begin(phase([] { return std::string("a phase"); }));
  std::this_thread::sleep_for(1ms);
  tracer.end();
  std::this_thread::sleep_for(20ms);
  tracer.end();
  tracer.end();
  CHECK(tracer.dropped() == 1);
  CHECK(tracer.events()[0].end - tracer.events()[0].begin >= 21'000'000);
}

TEST_CASE("noting allocates nothing") {
  testing::run_on_ranks(2, [&](testing::Ranks& inner) {
    Counted ranks(inner);
    ranks.reserve(1000);
    Steps<ModelOf<Counted, Tracer>, Counted> run(ranks);
    run.model.observer().reserve(1000);
    run.step();
    run.step();
    run.model.observer().clear();
    const std::size_t before = testing::allocations;
    run.step();
    CHECK(testing::allocations == before);
    CHECK(run.model.observer().events().size() > 50);
  });
}

TEST_CASE("a trace of nothing, and one that cannot be written") {
  const testing::TemporaryFolder folder("shardwise_trace");
  SingleRank alone;
  const Tracer nothing;
  write_trace(folder.path() / "trace.json", alone, nothing);
  CHECK(read(folder.path() / "trace.json").at("traceEvents").size() == 4);
  CHECK_THROWS_WITH_AS(write_trace(folder.path() / "no folder" / "trace.json", alone, nothing),
                       doctest::Contains("no folder/trace.json: cannot be created: No such file"),
                       data_error);
}

TEST_CASE("one rank that the compiler knows sends nothing, and notes nothing of the kind") {
  SingleRank alone;
  Steps<ModelOf<SingleRank, Tracer>, SingleRank> run(alone);
  run.model.observer().reserve(1000);
  run.step();
  for (const Tracer::Event& event : run.model.observer().events())
    CHECK(event.work.kind != Work::Kind::collective);
  CHECK(run.model.observer().events().size() > 50);
}
