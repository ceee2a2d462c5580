// Ranks along `data` that keep a share of the moments, or of gradients and parameters too: the bits
// are those of ranks that keep all of them.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ranks/model_mesh.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/shardwise.hpp"
#include "shardwise/train/adamw.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;

namespace {

using testing::check_mentions;
using testing::message_of;
using namespace testing::on_meshes;

/// Values of fp16, a master copy of each parameter, and gradients that are sent as bf16.
struct Narrow : Sequential<ColumnParallelLinear<6, 7>, Relu, RowParallelLinear<7, 5>> {};
using Mixed = Precision<fp16, float, float, bf16>;
using Half = Model<Narrow, Context<Mixed, Reference, Ranks>>;

/// Of a Network, whose groups have 111, 9 and 516 elements; 9 are fewer than 12 ranks.
const std::vector<mesh> cut_meshes{
    {.data = 2}, {.data = 3, .tensor = 2}, {.replica = 2, .data = 2, .tensor = 2}, {.data = 12}};
constexpr std::size_t batch_sizes[] = {7, 4, 1, 2, 5};

/// All layers whose parameters are gathered more than once in a step, or used by several layers.
struct Table {};
struct Deep : Sequential<Owns<Table, Linear<split::none, 6, 6>>, Gelu,
                         Recompute<Sequential<ColumnParallelLinear<6, 6>, RowParallelLinear<6, 6>>>,
                         Repeat<2, Residual<Linear<split::none, 6, 6>>>,
                         Borrows<Table, Linear<split::none, 6, 6>>> {};
using Again = Model<Deep, OnMesh>;

constexpr std::array keeps{Keep::whole, Keep::state_over_data, Keep::gradients_over_data,
                           Keep::all_over_data};
/// Those with which layers sum their gradients of a batch into shares.
constexpr std::array keeps_of_gradients{Keep::gradients_over_data, Keep::all_over_data};

/// Of all parameters that the rank's group along `data` has. A collective.
template <class M>
std::vector<typename M::parameter_dtype> values_of(M& model) {
  std::vector<typename M::parameter_dtype> all;
  model.visit_parameters([&](const auto& parameter) {
    const auto here = parameter.value.span();
    all.insert(all.end(), here.begin(), here.end());
  });
  return all;
}

template <class T>
double largest_difference(const std::vector<T>& a, const std::vector<T>& b) {
  double largest = 0;
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

template <class T>
Tensor<T, Whole> images_of(std::int64_t number, const Shape& shape, const MeshPlace& place) {
  const auto exact = made<Whole>(number, shape, place);
  Tensor<T, Whole> rounded(shape, place);
  for (std::size_t i = 0; i < exact.size(); ++i)
    rounded[i] = static_cast<T>(static_cast<accumulate_t<T>>(exact[i]));
  return rounded;
}

/// A model with an optimizer, in steps of several batches.
template <class M, class Rule>
struct Trainer {
  Trainer(Ranks& on, const Rule& rule, Keep keep, const Shape& shape)
      : ranks(on),
        in(shape),
        model(typename M::architecture{}, on, Seed{5}, shape, {.keep = keep}),
        optimizer(model, rule) {}

  /// Adds the loss and the norm to `told`.
  void step(std::size_t batches, const StepOptions& options = {}) {
    std::size_t samples = 0;
    for (std::size_t i = 0; i < batches; ++i) samples += batch_sizes[i];
    Step step(optimizer, samples, options);
    double loss = 0;
    for (std::size_t i = 0; i < batches; ++i) {
      Shape shape = in;
      shape[0].units = batch_sizes[i];
      ++number;
      const auto x = images_of<typename M::dtype>(number, shape, ranks.place());
      loss +=
          step.add(x.view(), labels(batch_sizes[i], number, ranks.place()).view(), CrossEntropy{});
    }
    const StepEnd end = step.finish();
    told.push_back(loss);
    told.push_back(end.norm.value_or(0));
    told.push_back(end.skipped ? 1 : 0);
  }

  Ranks& ranks;
  Shape in;
  M model;
  Optimizer<Rule, M> optimizer;
  std::int64_t number = 20;
  Numbers told{};
};

/// Steps of 1, 3 and 5 batches with both kinds of Keep: losses, norms and parameters have equal
/// bits after each.
template <class M, class Rule>
void check_bits(Ranks& ranks, const Rule& rule, const Shape& in, StepOptions options,
                bool scales = false) {
  Trainer<M, Rule> whole(ranks, rule, Keep::whole, in);
  Trainer<M, Rule> cut(ranks, rule, Keep::state_over_data, in);
  cut.model.run().sending.bucket_bytes = 100;
  const DynamicLossScale too_large{.initial = 1 << 20, .interval = 2};
  LossScaler of_whole(too_large), of_cut(too_large);
  for (const std::size_t batches : {1U, 3U, 5U, 1U}) {
    const auto before = values_of(whole.model);
    options.scaler = scales ? &of_whole : nullptr;
    whole.step(batches, options);
    options.scaler = scales ? &of_cut : nullptr;
    cut.step(batches, options);
    CHECK(cut.told == whole.told);
    CHECK(values_of(cut.model) == values_of(whole.model));
    CHECK((values_of(whole.model) == before) == (whole.told.back() == 1));
  }
  CHECK(of_cut.state() == of_whole.state());
  CHECK((scales ? of_cut.skipped() > 0 && of_cut.skipped() < 4 : of_cut.skipped() == 0));
}

/// Sums in shares have the bits of sums along one axis after the other, and are planned.
template <class M, class Rule>
void check_sums_in_shares(Ranks& ranks, const Rule& rule, const Shape& in) {
  Trainer<M, Rule> plain(ranks, rule, Keep::whole, in);
  Trainer<M, Rule> in_shares(ranks, rule, Keep::whole, in);
  in_shares.model.run().sending.sums_in_shares = true;
  in_shares.model.run().sending.bucket_bytes = 1200;
  for (const std::size_t batches : {1U, 3U}) {
    plain.step(batches, {.clip_norm = 0.5});
    for (const MeshAxis axis : mesh_axes) ranks.along(axis).clear();
    in_shares.step(batches, {.clip_norm = 0.5});
    if (batches == 1)
      check_counts(ranks, plan_step(in_shares.model, in, CrossEntropy{}, {.clip_norm = 0.5}));
    CHECK(in_shares.told == plain.told);
    CHECK(values_of(in_shares.model) == values_of(plain.model));
  }
}

/// Steps of one batch have the bits of Keep::whole, too, if ranks keep shares of the gradients;
/// those of several batches differ by rounding. Returns losses, norms and parameters.
template <class M, class Rule>
Numbers check_shares_of_gradients(Ranks& ranks, const Rule& rule, Keep keep, const Shape& in,
                                  StepOptions options, double rounding, bool scales = false) {
  Trainer<M, Rule> whole(ranks, rule, Keep::whole, in);
  Trainer<M, Rule> cut(ranks, rule, keep, in);
  cut.model.run().sending.bucket_bytes = 100;
  const DynamicLossScale too_large{.initial = 1 << 20, .interval = 2};
  LossScaler of_whole(too_large), of_cut(too_large);
  for (const std::size_t batches : {1U, 1U, 1U, 3U, 5U}) {
    options.scaler = scales ? &of_whole : nullptr;
    whole.step(batches, options);
    options.scaler = scales ? &of_cut : nullptr;
    cut.step(batches, options);
    const double apart = largest_difference(values_of(cut.model), values_of(whole.model));
    if (batches == 1) {
      CHECK(cut.told == whole.told);
      CHECK(apart == 0);
    } else {
      CHECK(largest_difference(cut.told, whole.told) <= rounding);
      CHECK(apart <= rounding);
    }
  }
  CHECK(of_cut.state() == of_whole.state());
  CHECK((scales ? of_cut.skipped() > 0 && of_cut.skipped() < 5 : of_cut.skipped() == 0));
  Numbers result = cut.told;
  for (const auto value : values_of(cut.model)) result.push_back(static_cast<double>(value));
  return result;
}

/// The largest share of each group, added up.
std::size_t largest_share(const Network& model, const MeshPlace& place) {
  detail::ParameterCounter counter(place[tensor]);
  detail::walk<Network::ends, Train>(model.layers(), images, counter);
  std::size_t sum = 0;
  const auto parts = static_cast<std::size_t>(place[data].size);
  for (const detail::Holding holding : detail::holdings)
    sum += (counter.memory.elements_of(holding).size + parts - 1) / parts;
  return sum;
}

// begin: cut
void train_with_shares(Ranks& ranks) {
  Network model(Convolutional{}, ranks, Seed{1}, images);
  Optimizer optimizer(model, AdamW{}, Keep::state_over_data);
  const auto x = made<Whole>(20, images, ranks.place());
  train_step(model, x.view(), labels(7, 0, ranks.place()).view(), CrossEntropy{}, optimizer);
}
// end: cut

// begin: gradients
void train_with_shares_of_gradients(Ranks& ranks) {
  Network model(Convolutional{}, ranks, Seed{1}, images, {.keep = Keep::gradients_over_data});
  Optimizer optimizer(model, AdamW{});
  Step step(optimizer, 2 * 7);
  for (const std::int64_t batch : {20, 21}) {
    const auto x = made<Whole>(batch, images, ranks.place());
    step.add(x.view(), labels(7, batch, ranks.place()).view(), CrossEntropy{});
  }
  step.finish();
}
// end: gradients

// begin: all
void train_with_stored_shares(Ranks& ranks) {
  Network model(Convolutional{}, ranks, Seed{1}, images, {.keep = Keep::all_over_data});
  Optimizer optimizer(model, AdamW{});
  const auto x = made<Whole>(20, images, ranks.place());
  train_step(model, x.view(), labels(7, 0, ranks.place()).view(), CrossEntropy{}, optimizer);
}
// end: all

/// Ends its rank when that is to gather what the optimizers have changed.
struct EndsBeforeGather {
  bool is_on = false;

  void begin(const Work& work) const {
    if (is_on && work.kind == Work::Kind::collective && work.name() == "updated parameters")
      throw std::runtime_error("the machine is gone");
  }
  void end() const noexcept {}
};

}  // namespace

// 784 x 512 + 512 + 512 x 10 elements are split over 4, and 10 are whole.
namespace plans {
struct Digits : Sequential<ColumnParallelLinear<784, 512>, Relu, RowParallelLinear<512, 10>> {};
constexpr mesh sizes{.data = 3, .tensor = 4};
constexpr std::size_t split = 784 * 512 + 512 + 512 * 10;
static_assert(plan<Digits, sizes>(batch{64}, {}, Keep::state_over_data).update ==
              CollectiveList{all_gather(10).over(data),
                             all_gather(split).over(data).split_over(tensor)});
static_assert(plan<Digits, sizes>(batch{64}, {}, Keep::state_over_data).settle ==
              CollectiveList{reduce_scatter(10).over(data),
                             reduce_scatter(split).over(data).split_over(tensor)});
static_assert(plan<Digits, sizes>(batch{64}, {}, Keep::state_over_data).bytes_sent() ==
              plan<Digits, sizes>(batch{64}).bytes_sent());
static_assert(plan<Digits, sizes>(batch{64}).update.empty());
static_assert(plan<Digits, mesh{.tensor = 4}>(batch{64}, {}, Keep::state_over_data).update.empty());
constexpr std::size_t kept_by(int rank, Keep keep) {
  return updated_parameters_of_rank<Ends<Invariant, Invariant>>(
      Digits{}, place_in(sizes, rank), input_shape<Digits>(batch{64}), keep);
}
// begin: kept
static_assert(kept_by(0, Keep::whole) == split / 4 + 10);
static_assert(kept_by(0, Keep::state_over_data) == (split / 4 + 2) / 3 + 4);
// end: kept
static_assert(kept_by(11, Keep::state_over_data) == split / 4 / 3 + 3);
constexpr StateMemory state_with(Keep keep) {
  return state_of_rank<Ends<Invariant, Invariant>, Precision<bf16, float>>(
      Digits{}, place_in(sizes, 0), input_shape<Digits>(batch{64}), AdamW{}.moments(), keep);
}
constexpr std::size_t here = split / 4 + 32;  // the 10 have two cache lines
// begin: state
static_assert(state_with(Keep::whole) == StateMemory{.parameters = 4 * here,
                                                     .copies = 2 * here,
                                                     .gradients = 4 * here,
                                                     .of_batch = 2 * here,
                                                     .moments = 8 * here});
static_assert(state_with(Keep::state_over_data).moments == 8 * ((split / 4 + 2) / 3 + 4));
// end: state
constexpr std::size_t stored = split / 4 / 3 + 32;
constexpr std::size_t largest = (784 * 512 + 512) / 4;  // parameters of a layer
// begin: stored
static_assert(state_with(Keep::all_over_data) == StateMemory{.parameters = 4 * stored,
                                                             .copies = 2 * stored,
                                                             .gradients = 4 * stored,
                                                             .moments = 8 * stored,
                                                             .gathered = 2 * 2 * largest});
// end: stored
// begin: summed
static_assert(state_with(Keep::gradients_over_data) ==
              StateMemory{.parameters = 4 * here,
                          .copies = 2 * here,
                          .gradients = 4 * stored,
                          .moments = 8 * ((split / 4 + 2) / 3 + 4),
                          .gathered = 2 * largest});
// end: summed
constexpr Plan summed_plan() {
  return plan<Digits, sizes>(batch{64}, {}, Keep::gradients_over_data);
}
static_assert(summed_plan().forward == plan<Digits, sizes>(batch{64}).forward);
static_assert(summed_plan().backward ==
              CollectiveList{reduce_scatter(512 * 10).over(data).split_over(tensor),
                             reduce_scatter(10).over(data),
                             reduce_scatter(784 * 512).over(data).split_over(tensor),
                             reduce_scatter(512).over(data).split_over(tensor)});
static_assert(summed_plan().settle.empty());
static_assert(summed_plan().update ==
              plan<Digits, sizes>(batch{64}, {}, Keep::state_over_data).update);
static_assert(summed_plan().bytes_sent() == plan<Digits, sizes>(batch{64}).bytes_sent());
static_assert(
    plan<Digits, mesh{.tensor = 4}>(batch{64}, {}, Keep::gradients_over_data).backward.empty());
constexpr Plan stored_plan() { return plan<Digits, sizes>(batch{64}, {}, Keep::all_over_data); }
static_assert(stored_plan().forward ==
              CollectiveList{all_gather(784 * 512).over(data).split_over(tensor),
                             all_gather(512).over(data).split_over(tensor),
                             all_gather(512 * 10).over(data).split_over(tensor),
                             all_gather(10).over(data), all_reduce(64 * 10).split_over(data)});
static_assert(stored_plan().backward ==
              CollectiveList{all_gather(512 * 10).over(data).split_over(tensor),
                             all_gather(10).over(data),
                             reduce_scatter(512 * 10).over(data).split_over(tensor),
                             reduce_scatter(10).over(data),
                             all_gather(784 * 512).over(data).split_over(tensor),
                             all_gather(512).over(data).split_over(tensor),
                             reduce_scatter(784 * 512).over(data).split_over(tensor),
                             reduce_scatter(512).over(data).split_over(tensor)});
static_assert(stored_plan().settle.empty() && stored_plan().update.empty());
}  // namespace plans

TEST_CASE("steps have the bits of an optimizer that keeps all moments") {
  for (const mesh& sizes : cut_meshes) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [](Ranks& ranks) {
      check_bits<Network>(ranks, Sgd{.learning_rate = 0.05}, images, {});
      check_bits<Network>(ranks, Sgd{.learning_rate = 0.05, .momentum = 0.9, .nesterov = true},
                          images, {.clip_norm = 0.5});
      check_bits<Network>(ranks, AdamW{.weight_decay = 0.1, .decay = Decay::chosen}, images,
                          {.clip_norm = 0.5, .norm = Norm::infinity});
      check_bits<Half>(ranks, AdamW{}, rows, {.clip_norm = 0.5}, true);
      std::vector<Numbers> results;
      for (const Keep keep : keeps_of_gradients) {
        results.push_back(
            check_shares_of_gradients<Network>(ranks, Sgd{.learning_rate = 0.05, .momentum = 0.9},
                                               keep, images, {.clip_norm = 0.5}, 1e-13));
        results.push_back(check_shares_of_gradients<Network>(
            ranks, AdamW{.weight_decay = 0.1, .decay = Decay::chosen}, keep, images,
            {.clip_norm = 0.5, .norm = Norm::infinity}, 1e-2));
        results.push_back(check_shares_of_gradients<Half>(ranks, AdamW{}, keep, rows,
                                                          {.clip_norm = 0.5}, 1e-2, true));
      }
      for (std::size_t i = 0; i < 3; ++i) CHECK(results[i] == results[i + 3]);
    });
  }
}

TEST_CASE("layers that gather their parameters again, or share them, train as on whole ones") {
  const auto check = [](const mesh& sizes, Keep keep) {
    CAPTURE(to_string(sizes));
    CAPTURE(to_string(keep));
    on_mesh(sizes, [&](Ranks& ranks) {
      Trainer<Again, Sgd> whole(ranks, Sgd{}, Keep::whole, rows);
      Trainer<Again, Sgd> cut(ranks, Sgd{}, keep, rows);
      std::size_t reserved = 0;
      for (int step = 0; step < 4; ++step) {
        for (auto* trainer : {&whole, &cut}) {
          trainer->number = 20;
          for (const MeshAxis axis : mesh_axes) ranks.along(axis).clear();
          trainer->step(1);
          check_counts(ranks, plan_step(trainer->model, rows, CrossEntropy{}));
        }
        CHECK(largest_difference(cut.told, whole.told) <= 1e-14);
        CHECK(largest_difference(values_of(cut.model), values_of(whole.model)) <= 1e-14);
        if (step > 1) CHECK(cut.model.run().pool.reserved() == reserved);
        reserved = cut.model.run().pool.reserved();
      }
      const auto x = made<Whole>(3, rows, ranks.place());
      const auto y = whole.model.evaluate(x.view()), z = cut.model.evaluate(x.view());
      for (std::size_t i = 0; i < y.size(); ++i)
        CHECK(z[i] == doctest::Approx(y[i]).epsilon(1e-13));
      Numbers slopes;
      for (auto* trainer : {&whole, &cut}) {
        trainer->model.forward(x.view());
        trainer->model.backward(x.view());
        trainer->model.settle_gradients();
        trainer->model.visit_parameters([](auto& one) { one.gradient[2] *= 2; });
        const auto slope = trainer->model.gather_gradient("0.weight");
        slopes.insert(slopes.end(), slope.data(), slope.data() + slope.size());
        trainer->model.discard_step();
      }
      for (std::size_t i = 0; i < 36; ++i)
        CHECK(slopes[i + 36] == doctest::Approx(slopes[i]).epsilon(1e-13));
      const auto gathered = cut.model.gather("0.weight");
      CHECK(gathered[7] == whole.model.gather("0.weight")[7]);
      whole.model.set("0.weight", gathered.view());
      cut.model.set("0.weight", whole.model.gather("3.0.weight").view());
      CHECK(cut.model.gather("0.weight")[7] == whole.model.gather("3.0.weight")[7]);
    });
  };
  for (const Keep keep : keeps_of_gradients)
    for (const mesh& sizes : {mesh{.data = 3, .tensor = 2}, mesh{.replica = 2, .data = 2}})
      check(sizes, keep);
}

TEST_CASE("gradients that are summed over two axes in shares have the bits of plain sums") {
  for (const mesh& sizes : {mesh{.replica = 2, .data = 2, .tensor = 2},
                            mesh{.replica = 2, .data = 3}, mesh{.replica = 3}}) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [](Ranks& ranks) {
      check_sums_in_shares<Network>(ranks, Sgd{.momentum = 0.9}, images);
      check_sums_in_shares<Half>(ranks, AdamW{}, rows);
    });
  }
}

TEST_CASE("a NaN in any group of one rank's gradients skips the step on all ranks") {
  on_mesh({.replica = 2, .data = 2, .tensor = 2}, [](Ranks& ranks) {
    for (const Keep keep : keeps) {
      LossScaler scaler{DynamicLossScale{}};
      Network model(Convolutional{}, ranks, Seed{5}, images, {.keep = keep});
      Optimizer optimizer(model, AdamW{});
      const auto before = values_of(model);
      for (const detail::Holding holding :
           {detail::Holding::owing, detail::Holding::alike, detail::Holding::split}) {
        Step step(optimizer, 7, {.clip_norm = 0.5, .scaler = &scaler});
        step.add(made<Whole>(20, images, ranks.place()).view(), labels(7, 0, ranks.place()).view(),
                 CrossEntropy{});
        const std::size_t last =
            model.run().parameters.gradient_layout().elements_of(holding).end() - 1;
        if (ranks.rank() == 3) model.gradients()[last] = std::nan("");
        CHECK(step.finish().skipped);
        CHECK(values_of(model) == before);
        CHECK(optimizer.steps() == 0);
      }
      CHECK(scaler.skipped() == 3);
    }
  });
}

TEST_CASE("what the page on meshes shows makes a step") {
  on_mesh({.data = 3, .tensor = 2}, train_with_shares);
  on_mesh({.data = 3, .tensor = 2}, train_with_shares_of_gradients);
  on_mesh({.data = 3, .tensor = 2}, train_with_stored_shares);
}

TEST_CASE("a rank keeps the moments of its share, as the query says") {
  for (const mesh& sizes : cut_meshes) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [](Ranks& ranks) {
      Network model(Convolutional{}, ranks, Seed{1}, images);
      const Optimizer whole(model, AdamW{});
      const Optimizer cut(model, AdamW{}, Keep::state_over_data);
      const auto asked = [&](Keep keep) {
        return 2 * updated_parameters_of_rank<Network::ends>(model.layers(), ranks.place(), images,
                                                             keep);
      };
      const std::size_t mine = cut.moments().size();
      CHECK(mine == asked(Keep::state_over_data));
      CHECK(mine <= 2 * largest_share(model, ranks.place()));
      std::int64_t together = static_cast<std::int64_t>(mine);
      ranks.along(data).all_reduce(std::span<const std::int64_t>(&together, 1),
                                   std::span(&together, 1));
      CHECK(together == static_cast<std::int64_t>(asked(Keep::whole)));
      CHECK(whole.moments().size() >= asked(Keep::whole));  // groups begin at cache lines
      CHECK(cut.keep() == Keep::state_over_data);
    });
  }
}

TEST_CASE("a query and a description tell the bytes that a rank allocates for its state") {
  std::vector<mesh> all = cut_meshes;
  all.push_back({.tensor = 3});
  for (const mesh& sizes : all) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [](Ranks& ranks) {
      for (const Keep keep : keeps) {
        Half model(ranks, Seed{1}, {.keep = keep});
        const std::size_t lent = model.run().pool.lent();
        const StateMemory asked = state_of_rank<Half::ends, Mixed>(model.layers(), ranks.place(),
                                                                   rows, AdamW{}.moments(), keep);
        const Optimizer optimizer(model, AdamW{});
        CHECK(asked.moments == optimizer.moments().size_bytes());
        CHECK(asked.parameters == model.values().size_bytes());
        CHECK(asked.gradients == model.gradients().size_bytes());
        Pool pool;  // rounds up as that of the model, which has lent nothing else
        std::vector<Buffer> alike;
        for (const std::size_t bytes :
             {asked.parameters, asked.copies, asked.gradients, asked.of_batch})
          if (bytes > 0) alike.push_back(pool.take(bytes));
        CHECK(pool.lent() == lent);
        const std::size_t updated =
            updated_parameters_of_rank<Half::ends>(model.layers(), ranks.place(), rows, keep);
        check_mentions(
            describe(model, rows),
            {"holds " + std::to_string(asked.parameters + asked.copies) +
                 " bytes of parameters and " + std::to_string(asked.gradients + asked.of_batch) +
                 " bytes of gradients, and an optimizer keeps the moments of " +
                 std::to_string(updated) + " parameters",
             detail::gathers_updated(keep) && ranks.sizes().data > 1 ? " bytes to update\n"
                                                                     : " to settle\n"});
      }
    });
  }
}

TEST_CASE("a step takes memory for the whole parameters or gradients of one layer at a time") {
  on_mesh({.data = 2}, [](Ranks& ranks) {
    std::vector<std::size_t> beyond;                      // the state, in bytes of the model's pool
    const std::size_t layer = (40 + 8) * sizeof(double);  // of 36 and 6 elements, at cache lines
    for (const Keep keep : {Keep::whole, Keep::gradients_over_data, Keep::all_over_data}) {
      Trainer<Again, Sgd> trainer(ranks, Sgd{}, keep, rows);
      for (int i = 0; i < 3; ++i) trainer.step(2);
      const StateMemory asked = state_of_rank<Again::ends, double>(
          trainer.model.layers(), ranks.place(), rows, Sgd{}.moments(), keep);
      CHECK(asked.gathered == layer * beyond.size());
      Pool pool;
      const Buffer state[] = {pool.take(asked.parameters), pool.take(asked.gradients)};
      beyond.push_back(trainer.model.run().pool.reserved() - pool.reserved());
    }
    Pool pool;
    const Buffer gradients = pool.take(layer);
    const Buffer sent[] = {pool.take(36 * sizeof(double)), pool.take(6 * sizeof(double)),
                           pool.take(36 * sizeof(double)), pool.take(2 * sizeof(std::size_t))};
    CHECK(beyond[1] > beyond[0]);
    CHECK(beyond[1] - beyond[0] <= pool.reserved());
    const Buffer parameters = pool.take(layer);
    CHECK(beyond[2] > beyond[1]);
    CHECK(beyond[2] - beyond[0] <= pool.reserved());
  });
}

TEST_CASE("whole parameters of shares, and their gradients, begin at cache lines") {
  on_mesh({.data = 2}, [](Ranks& ranks) {
    Trainer<Again, Sgd> trainer(ranks, Sgd{}, Keep::all_over_data, rows);
    trainer.step(1);
    const auto begins_at_line = [](const void* data) {
      return reinterpret_cast<std::uintptr_t>(data) % 64 == 0;
    };
    auto& run = trainer.model.run();
    for (std::size_t number = 0; number < run.of_layers.size(); ++number) {
      detail::WholeParameters<OnMesh, true> whole(run, number, false);
      whole.begin_gradients();
      REQUIRE(run.of_layers[number].count == 2);
      CHECK(begins_at_line(whole.value(1)));  // behind the 36 elements of a weight
      CHECK(begins_at_line(whole.gradient(1)));
    }
  });
}

TEST_CASE("a step sends what is planned") {
  for (const mesh& sizes : cut_meshes) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [](Ranks& ranks) {
      for (const Keep keep : keeps) {
        if (keep == Keep::whole) continue;
        Trainer<Network, Sgd> trainer(ranks, Sgd{.momentum = 0.9}, keep, images);
        LossScaler scaler = LossScaler::fixed(8);
        const StepOptions options{.clip_norm = 0.5, .scaler = &scaler};
        std::size_t calls = 0;  // that settle; more of them if buckets are smaller
        for (const std::size_t bytes : {default_bucket_bytes, std::size_t{1200}}) {
          trainer.model.run().sending.bucket_bytes = bytes;
          for (const MeshAxis axis : mesh_axes) ranks.along(axis).clear();
          trainer.step(1, options);
          const Plan plan = plan_step(trainer.model, images, CrossEntropy{}, options);
          CHECK(plan.update.size() == (detail::gathers_updated(keep) ? 3 : 0));
          if (!cuts_gradients(keep))
            CHECK(plan.settle.size() > std::exchange(calls, plan.settle.size()));
          check_counts(ranks, plan);
        }
      }
    });
  }
}

TEST_CASE("a checkpoint has the same bytes whatever ranks keep, and goes on on any mesh") {
  const testing::TemporaryFolder folder("shardwise_state");
  const auto path = [&](const char* name) { return folder.path() / name; };
  const TensorNames turned{{"9.weight", FileTensor("turned", 0, true)},
                           {"0.bias", FileTensor("pairs").in_pieces(2, 4)},
                           {"1.weight", FileTensor("pairs", 2).in_pieces(2, 4)},
                           {"9.bias", FileTensor("deep").behind_ones(2)},
                           {"0.weight", FileTensor("kernel.*")},
                           {"3.weight", FileTensor("map.*")}};
  using Training = Trainer<Network, AdamW>;
  for (const TensorNames& names : {TensorNames{}, turned}) {
    Numbers next;
    for (const Keep keep : keeps)
      on_mesh({.replica = 2, .data = 2, .tensor = 2}, [&](Ranks& ranks) {
        Training training(ranks, AdamW{}, keep, images);
        training.step(1);
        save_checkpoint(path(keep == Keep::whole ? "whole.safetensors" : "cut.safetensors"),
                        training.model, training.optimizer, RunPosition{}, {.names = names});
        training.step(1);
        if (ranks.rank() == 0) next = training.told;
        if (ranks.rank() == 0 && keep != Keep::whole)
          CHECK(testing::bytes_of(path("cut.safetensors")) ==
                testing::bytes_of(path("whole.safetensors")));
      });
    for (const mesh& sizes : std::vector<mesh>{
             {}, {.data = 8}, {.data = 3, .tensor = 2}, {.replica = 2, .data = 2, .tensor = 3}}) {
      CAPTURE(to_string(sizes));
      for (const Keep keep : keeps) {
        on_mesh(sizes, [&](Ranks& ranks) {
          Training training(ranks, AdamW{}, keep, images);
          load_checkpoint(path("cut.safetensors"), training.model, training.optimizer,
                          {.names = names});
          save_checkpoint(path("again.safetensors"), training.model, training.optimizer,
                          RunPosition{}, {.names = names});
          training.number = 21;
          training.step(1);
          CHECK(training.told[0] == doctest::Approx(next[3]).epsilon(1e-12));
        });
        CHECK(testing::bytes_of(path("again.safetensors")) ==
              testing::bytes_of(path("cut.safetensors")));
      }
    }
  }
}

TEST_CASE("ranks that are to keep different things are all told") {
  on_mesh({.data = 2, .tensor = 2}, [](Ranks& ranks) {
    Network model(Convolutional{}, ranks, Seed{1}, images);
    const Keep keep = ranks.rank() == 2 ? Keep::whole : Keep::state_over_data;
    check_mentions(message_of<collective_error>([&] { Optimizer(model, AdamW{}, keep); }),
                   {"ranks disagree on what an Optimizer keeps",
                    "ranks 0, 1, 3 have Keep::state_over_data", "rank 2 has Keep::whole"});
  });
}

TEST_CASE("an optimizer of a model that stores shares can keep nothing else") {
  on_mesh({.data = 2}, [](Ranks& ranks) {
    const auto check = [&](Keep keep, Keep other) {
      Half model(ranks, Seed{1}, {.keep = keep});
      check_mentions(message_of<argument_error>([&] { Optimizer(model, AdamW{}, other); }),
                     {"Optimizer: " + to_string(other), "made with " + to_string(keep),
                      "Give the Keep to the Model"});
    };
    check(Keep::whole, Keep::all_over_data);
    check(Keep::all_over_data, Keep::state_over_data);
    check(Keep::state_over_data, Keep::gradients_over_data);
    check(Keep::gradients_over_data, Keep::all_over_data);
  });
}

TEST_CASE("a model that is on no mesh keeps all of its moments") {
  SingleRank one;
  Model<Narrow, Context<double, Reference, SingleRank>> model(one, Seed{1});
  check_mentions(
      message_of<argument_error>([&] { Optimizer(model, AdamW{}, Keep::state_over_data); }),
      {"Optimizer: Keep::state_over_data", "on no mesh", "MeshRanks"});
  using Narrow_ = decltype(model);
  check_mentions(
      message_of<argument_error>([&] { Narrow_(one, Seed{1}, {.keep = Keep::all_over_data}); }),
      {"Model: Keep::all_over_data", "on no mesh", "MeshRanks"});
  check_mentions(message_of<argument_error>([&] { describe(model, rows, Keep::state_over_data); }),
                 {"plan: Keep::state_over_data", "on no mesh", "MeshRanks"});
}

TEST_CASE("ranks whose update is in between say so, and what to do") {
  std::array<std::string, 2> said;
  const auto run = [&](ThreadCommunicator& world) {
    using Here = Context<double, Reference, MeshRanks<ThreadCommunicator>, EndsBeforeGather>;
    MeshRanks<ThreadCommunicator> ranks(world, {.data = 2});
    Model<Perceptron, Here> model(ranks, Seed{5});
    Optimizer optimizer(model, Adam{}, Keep::state_over_data);
    const auto x = made<Whole>(30, rows, ranks.place());
    const auto target = labels(7, 0, ranks.place());
    model.observer().is_on = ranks.rank() == 1;
    try {
      train_step(model, x.view(), target.view(), CrossEntropy{}, optimizer);
    } catch (const std::exception& e) {
      said[static_cast<std::size_t>(ranks.rank())] = e.what();
      throw;
    }
  };
  check_mentions(message_of<rank_error>([&] { run_ranks(2, run); }), {"the machine is gone"});
  check_mentions(said[0], {"parameters are partly updated, so load the last checkpoint: ",
                           "rank 1 threw: the machine is gone"});
}
