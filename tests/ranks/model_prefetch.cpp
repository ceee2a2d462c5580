// Parameters that ranks store shares of, gathered before the layers that use them run: what models
// learn has the bits of gathers by each layer, and gathers are under way while other layers run.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ranks/model_mesh.hpp"
#include "support/count_allocations.hpp"
#include "support/late_ranks.hpp"
#include "support/messages.hpp"

using namespace shardwise;

namespace {

using testing::check_mentions;
using testing::message_of;
using namespace testing::on_meshes;

using testing::late;
using testing::on_late_mesh;
using Beginning = CountingCommunicator<testing::LateRanks>;
using LateRanks = MeshRanks<Beginning>;
using Events = std::vector<std::ptrdiff_t>;

/// Notes where layers begin, as a 0 in the events, and how much memory the rank needs, and lets a
/// layer fail.
thread_local std::ptrdiff_t layers_until_failure = -1;
thread_local const Pool* pool_of_model = nullptr;
thread_local std::size_t most_lent = 0;
struct Noted {
  void begin(const Work& work) {
    if (pool_of_model != nullptr) most_lent = std::max(most_lent, pool_of_model->lent());
    if (work.kind != Work::Kind::compute) return;
    late.events.push_back(0);
    if (layers_until_failure-- == 0) throw std::runtime_error("a layer fails");
  }
  void end() noexcept {}
};

/// Parameters that two layers use, blocks that run forward again, a Repeat, and branches.
struct Table {};
struct Inner : Recompute<Sequential<ColumnParallelLinear<6, 7>, RowParallelLinear<7, 6>>> {};
struct Deep : Sequential<Owns<Table, Linear<split::none, 6, 6>>, Gelu, Inner, Dropout<1, 4>,
                         Repeat<2, Residual<Linear<split::none, 6, 6>>>,
                         Join<Sum, Linear<split::none, 6, 6>, ColumnParallelLinear<6, 6>>, Inner,
                         Borrows<Table, Linear<split::none, 6, 6>>, Linear<split::none, 6, 5>> {};
using M = Model<Deep, Context<double, Reference, LateRanks, Noted>>;
constexpr std::size_t sizes_of_batches[] = {7, 4, 1, 2, 5};

struct Trainer {
  explicit Trainer(LateRanks& on, const ModelOptions& options = {.keep = Keep::all_over_data})
      : ranks(on), model(on, Seed{5}, options) {}

  Tensor<double, Whole> input(std::size_t samples) {
    return made<Whole>(++number, {{Axis::batch, samples}, {Axis::feature, 6}}, ranks.place());
  }
  void step(std::size_t batches) {
    std::size_t samples = 0;
    for (std::size_t i = 0; i < batches; ++i) samples += sizes_of_batches[i];
    Step step(optimizer, samples, {.clip_norm = 0.5});
    for (std::size_t i = 0; i < batches; ++i) {
      const std::size_t here = sizes_of_batches[i];
      told.push_back(
          step.add(input(here).view(), labels(here, number, ranks.place()).view(), CrossEntropy{}));
    }
    told.push_back(step.finish().norm.value_or(0));
    const auto x = input(3);
    const auto y = model.evaluate(x.view()).span();
    told.insert(told.end(), y.begin(), y.end());
  }
  Numbers values() { return {model.values().begin(), model.values().end()}; }

  LateRanks& ranks;
  M model;
  Optimizer<AdamW, M> optimizer{model, AdamW{.learning_rate = 0.01}};
  std::int64_t number = 20;
  Numbers told{};
};

/// Of each layer with parameters in Deep, on one rank along `tensor`.
const std::vector<Events> parameters{{36, 6}, {42, 7}, {42, 6}, {36, 6}, {36, 6}, {36, 6},
                                     {36, 6}, {42, 7}, {42, 6}, {36, 6}, {30, 5}};

/// Expected: layer `taken` begins, and `ahead` are gathered meanwhile, as numbers in `parameters`.
struct Runs {
  std::size_t taken;
  std::vector<std::size_t> ahead{};
};

/// Layers that gather are those that nobody gathered ahead of them.
Events events_of(const std::vector<Runs>& all) {
  Events expected;
  std::vector<std::size_t> begun;
  const auto begin = [&](std::size_t number) {
    begun.push_back(number);
    expected.insert(expected.end(), parameters[number].begin(), parameters[number].end());
  };
  for (const Runs& one : all) {
    expected.push_back(0);
    if (std::erase(begun, one.taken) == 0) {
      begin(one.taken);
      begun.pop_back();
    }
    for (const std::ptrdiff_t n : parameters[one.taken]) expected.push_back(-n);
    for (const std::size_t number : one.ahead) begin(number);
  }
  return expected;
}

/// The events since the last clear(), without layers that gather nothing.
Events of_gathering_layers() {
  Events seen;
  for (const std::ptrdiff_t event : late.events) {
    if (event == 0 && !seen.empty() && seen.back() == 0) continue;
    seen.push_back(event);
  }
  while (!seen.empty() && seen.back() == 0) seen.pop_back();
  return seen;
}

Events of_plan(const Plan& plan) {
  Events gathers;
  for (const CollectiveList* part : {&plan.forward, &plan.backward})
    for (const Collective& one : *part)
      if (one.operation == Operation::all_gather && one.axis == data)
        gathers.push_back(static_cast<std::ptrdiff_t>(one.elements));
  return gathers;
}

/// The numbers of calls along `data`, of each operation and number of elements.
template <class F>
std::map<std::pair<int, std::size_t>, int> calls_of(LateRanks& ranks, F&& f) {
  ranks.along(data).clear();
  f();
  std::map<std::pair<int, std::size_t>, int> calls;
  for (const CountedCall& one : ranks.along(data).log())
    ++calls[{static_cast<int>(one.operation), one.elements}];
  return calls;
}

const Shape in_shape{{Axis::batch, 7}, {Axis::feature, 6}};

// begin: memory
constexpr std::size_t gathered(std::size_t layers_ahead) {
  return state_of_rank<Ends<Invariant, Invariant>, float>(
             Repeat<24, Linear<split::none, 512, 512>>{}, place_in({.data = 8}, 0),
             {{Axis::batch, 64}, {Axis::feature, 512}}, AdamW{}.moments(), Keep::all_over_data,
             layers_ahead)
      .gathered;
}
constexpr std::size_t bytes_of_layer = (512 * 512 + 512) * sizeof(float);
static_assert(gathered(0) == 2 * bytes_of_layer);  // the parameters of a layer and their gradients
static_assert(gathered(1) == 3 * bytes_of_layer);
static_assert(gathered(2) == 4 * bytes_of_layer);
// end: memory

/// The same on ranks that cannot begin a gather.
using Plain = Model<Sequential<Linear<split::none, 6, 6>, Linear<split::none, 6, 5>>, OnMesh>;

// begin: train
template <class M, class Ranks>
void train(Ranks& ranks, std::span<const Numbers> batches) {
  M model(ranks, Seed{1}, {.keep = Keep::all_over_data, .layers_ahead = 1});
  Optimizer optimizer(model, AdamW{});
  for (const Numbers& batch : batches) {
    const View<const double, Whole> x(batch.data(), {{Axis::batch, 4}, {Axis::feature, 6}},
                                      ranks.place());
    train_step(model, x, labels(4, 0, ranks.place()).view(), CrossEntropy{}, optimizer);
  }
}
// end: train

}  // namespace

TEST_CASE("the bits are those of layers that gather for themselves") {
  for (const mesh& sizes : std::vector<mesh>{{.data = 1},
                                             {.data = 3},
                                             {.data = 2, .tensor = 2},
                                             {.data = 5},
                                             {.replica = 2, .data = 2, .tensor = 2}}) {
    CAPTURE(sizes);
    on_late_mesh<Beginning>(sizes, [&](LateRanks& ranks) {
      Trainer plain(ranks), near(ranks, {.keep = Keep::all_over_data, .layers_ahead = 1}),
          far(ranks, {.keep = Keep::all_over_data, .sums_meanwhile = true, .layers_ahead = 3});
      for (const std::size_t batches : {1U, 3U, 5U}) {
        const auto calls = calls_of(ranks, [&] { plain.step(batches); });
        CHECK(late.begun == 0);
        for (Trainer* trainer : {&near, &far}) {
          CHECK(calls_of(ranks, [&] { trainer->step(batches); }) == calls);
          CHECK((late.begun > 0) == (sizes.data > 1));
          CHECK(trainer->told == plain.told);
          CHECK(trainer->values() == plain.values());
        }
        late.begun = 0;
      }
    });
  }
}

TEST_CASE("while a layer runs, the next ones in its direction are gathered, as planned") {
  on_late_mesh<Beginning>({.data = 2}, [](LateRanks& ranks) {
    const auto events_with = [&](std::size_t layers) {
      Trainer trainer(ranks, {.keep = Keep::all_over_data, .layers_ahead = layers});
      const Events planned = of_plan(trainer.model.plan(in_shape));
      late.events.clear();
      Step step(trainer.optimizer, 7);
      step.add(trainer.input(7).view(), labels(7, 0, ranks.place()).view(), CrossEntropy{});
      const Events seen = of_gathering_layers();
      step.finish();
      late.events.clear();
      Events begun;
      std::ranges::copy_if(seen, std::back_inserter(begun), [](auto n) { return n > 0; });
      CHECK(begun == planned);
      return seen;
    };
    // forward, then backward; 2 and 1, and 8 and 7, are recomputed
    CHECK(events_with(1) ==
          events_of({{0, {1}}, {1, {2}}, {2, {3}},  {3, {4}}, {4, {5}},  {5, {6}}, {6, {7}},
                     {7, {8}}, {8, {9}}, {9, {10}}, {10},     {10, {9}}, {9},      {7},
                     {8},      {8, {7}}, {7, {6}},  {6, {5}}, {5, {4}},  {4, {3}}, {3},
                     {1},      {2},      {2, {1}},  {1, {0}}, {0}}));
    CHECK(events_with(2) ==
          events_of({{0, {1, 2}}, {1, {3}},    {2, {4}},    {3, {5}}, {4, {6}},  {5, {7}}, {6, {8}},
                     {7, {9}},    {8, {10}},   {9},         {10},     {10, {9}}, {9},      {7},
                     {8},         {8, {7, 6}}, {7, {5}},    {6, {4}}, {5, {3}},  {4},      {3},
                     {1},         {2},         {2, {1, 0}}, {1},      {0}}));
    CHECK(late.progressed > 0);

    Trainer trainer(ranks, {.keep = Keep::all_over_data, .layers_ahead = 1});
    const auto x = trainer.input(3);
    late.events.clear();
    trainer.model.evaluate(x.view());
    CHECK(of_gathering_layers() == events_of({{0, {1}},
                                              {1, {2}},
                                              {2, {3}},
                                              {3, {4}},
                                              {4, {5}},
                                              {5, {6}},
                                              {6, {7}},
                                              {7, {8}},
                                              {8, {9}},
                                              {9, {10}},
                                              {10}}));
  });
}

TEST_CASE("a rank needs memory for the parameters of one more layer, and allocates no more") {
  on_late_mesh<Beginning>({.data = 2}, [](LateRanks& ranks) {
    std::vector<std::size_t> most;  // bytes lent at a time
    for (const std::size_t layers : {0U, 1U, 2U, 1U}) {
      const bool overlaps = most.size() == 3;
      Trainer trainer(
          ranks, {.keep = Keep::all_over_data, .sums_meanwhile = overlaps, .layers_ahead = layers});
      const auto x = trainer.input(1);
      const auto target = labels(1, 0, ranks.place());
      for (const MeshAxis axis : mesh_axes) ranks.along(axis).reserve(2000);
      pool_of_model = &trainer.model.run().pool;
      CHECK(testing::allocated_after_second([&] {
              late.events.clear();
              most_lent = 0;
              train_step(trainer.model, x.view(), target.view(), CrossEntropy{}, trainer.optimizer);
            }) == 0);
      pool_of_model = nullptr;
      most.push_back(most_lent);
      const auto gathered = [&](std::size_t ahead, bool overlapping = false) {
        return state_of_rank<M::ends, double>(trainer.model.layers(), ranks.place(), in_shape, 2,
                                              Keep::all_over_data, ahead, overlapping)
                   .gathered /
               sizeof(double);
      };
      // backward runs the layers of 42 and 7 or 6 elements, with the ones of 36 and 6 before them
      const std::size_t inner = 48 + 8, outer = 40 + 8;  // whole cache lines
      CHECK(gathered(0) == 2 * inner);
      CHECK(gathered(1) == 2 * inner + inner);
      CHECK(gathered(2) == 2 * inner + inner + outer);
      CHECK(gathered(0, true) == 2 * inner + inner);
      CHECK(gathered(1, true) == 2 * inner + inner + outer);
      Pool pool;
      std::vector<Buffer> more;
      for (std::size_t i = 0; i < layers; ++i) more.push_back(pool.take(inner * sizeof(double)));
      // and the gradients of a layer, with the sums of them all at a time
      for (const std::size_t elements : {inner, std::size_t{42}, std::size_t{7}})
        if (overlaps) more.push_back(pool.take(elements * sizeof(double)));
      CHECK(most.back() <= most.front() + pool.lent());
      if (overlaps)
        CHECK(most.back() > most[layers]);
      else if (layers > 0)
        CHECK(most[layers] > most[layers - 1]);
    }
  });
}

TEST_CASE("the program of the page trains, also on ranks that cannot begin a gather") {
  const std::vector<Numbers> batches(2, Numbers(4 * 6, 0.5));
  on_late_mesh<Beginning>({.data = 2}, [&](LateRanks& ranks) {
    train<M>(ranks, batches);
    CHECK(late.begun > 0);
  });
  on_mesh({.data = 2}, [&](Ranks& ranks) {
    train<Plain>(ranks, batches);
    Plain model(ranks, Seed{1}, {.keep = Keep::all_over_data, .layers_ahead = 1});
    CHECK(model.run().traffic == nullptr);  // so nothing is gathered ahead, and needs memory
  });
}

TEST_CASE("a pass that fails leaves nothing under way, and the model as before") {
  const auto check = [](LateRanks& ranks, Keep keep) {
    Trainer plain(ranks, {.keep = keep});
    Trainer near(
        ranks,
        {.keep = keep, .sums_meanwhile = true, .layers_ahead = cuts_parameters(keep) ? 1U : 0U});
    near.step(1);
    plain.step(1);
    std::ptrdiff_t places = 0;  // where a step of two batches, or the evaluation behind it, fails
    for (bool fails = true; fails; ++places) {
      for (Trainer* trainer : {&near, &plain}) {
        layers_until_failure = places;
        fails = message_of<std::runtime_error>([&] { trainer->step(2); }) == "a layer fails";
        layers_until_failure = -1;
      }
      CHECK(late.under_way == 0);
      CHECK(near.model.run().pool.lent() == plain.model.run().pool.lent());
    }
    CHECK(places > 60);
    near.step(3);
    plain.step(3);
    CHECK(near.told == plain.told);
    CHECK(near.values() == plain.values());
  };
  for (const Keep keep : {Keep::gradients_over_data, Keep::all_over_data})
    on_late_mesh<Beginning>({.data = 2}, [&](LateRanks& ranks) { check(ranks, keep); });
}

TEST_CASE("a rank that fails ends the others, also while they gather ahead") {
  const std::string message = message_of<error>([] {
    on_late_mesh<Beginning>({.data = 3}, [](LateRanks& ranks) {
      Trainer trainer(ranks, {.keep = Keep::all_over_data, .layers_ahead = 1});
      if (ranks.rank() == 1) layers_until_failure = 4;
      trainer.step(1);
    });
  });
  check_mentions(message, {"a layer fails"});
}

TEST_CASE("options that a model cannot have are refused on all ranks") {
  on_late_mesh<Beginning>({.data = 2}, [](LateRanks& ranks) {
    const auto message_with = [&](const ModelOptions& options) {
      return message_of<error>([&] { M model(ranks, Seed{1}, options); });
    };
    check_mentions(message_with({.layers_ahead = 1}), {"Model: layers_ahead for Keep::whole"});
    check_mentions(
        message_with({.keep = Keep::all_over_data, .layers_ahead = ranks.rank() == 0 ? 1U : 0U}),
        {"ranks disagree on how many layers the model gathers ahead", "rank 0 has 1",
         "rank 1 has 0"});
    using Evaluated = Model<Deep, M::context, Ends<Invariant, Invariant>, ForwardOnly>;
    check_mentions(
        message_of<error>([&] { Evaluated model(ranks, Seed{1}, {.sums_meanwhile = true}); }),
        {"Model: sums_meanwhile sums gradients, and this model has none"});
  });
  SingleRank alone;
  using OnOne = Model<Linear<split::none, 6, 5>, Context<double, Reference, SingleRank>>;
  for (const ModelOptions& options : {ModelOptions{.sums_meanwhile = true}, {.layers_ahead = 1}})
    check_mentions(message_of<error>([&] { OnOne model(alone, Seed{1}, options); }),
                   {"Model: sums_meanwhile and layers_ahead are for messages along the axes of a "
                    "mesh"});
}
