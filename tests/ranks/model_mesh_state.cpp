// Optimizers that keep a share of their moments on each rank along `data`: the bits are those of
// optimizers that keep all of them.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
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

template <class M>
std::vector<typename M::parameter_dtype> values_of(M& model) {
  return {model.values().begin(), model.values().end()};
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
        model(typename M::architecture{}, on, Seed{5}, shape),
        optimizer(model, rule, keep) {}

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
  cut.model.set_bucket_bytes(100);
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
  in_shares.model.set_sums_in_shares(true);
  in_shares.model.set_bucket_bytes(1200);
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

/// The largest share of each group, added up.
std::size_t largest_share(const Network& model, const MeshPlace& place) {
  detail::ParameterCounter counter(place[tensor]);
  detail::walk<Network::ends, Train>(model.layers(), images, counter);
  std::size_t sum = 0;
  const auto parts = static_cast<std::size_t>(place[data].size);
  for (const Holding holding : holdings)
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

}  // namespace

// 784 x 512 + 512 + 512 x 10 elements are split over 4, and 10 are whole.
namespace plans {
struct Digits : Sequential<ColumnParallelLinear<784, 512>, Relu, RowParallelLinear<512, 10>> {};
constexpr mesh sizes{.data = 3, .tensor = 4};
constexpr std::size_t split = 784 * 512 + 512 + 512 * 10;
static_assert(plan<Digits, sizes>(batch{64}, {}, Keep::state_over_data).update ==
              collectives{all_gather(10).over(data),
                          all_gather(split).over(data).split_over(tensor)});
static_assert(plan<Digits, sizes>(batch{64}, {}, Keep::state_over_data).settle ==
              collectives{reduce_scatter(10).over(data),
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
    });
  }
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
    for (const Keep keep : {Keep::whole, Keep::state_over_data}) {
      LossScaler scaler{DynamicLossScale{}};
      Network model(Convolutional{}, ranks, Seed{5}, images);
      Optimizer optimizer(model, AdamW{}, keep);
      const auto before = values_of(model);
      for (const Holding holding : {Holding::owing, Holding::alike, Holding::split}) {
        Step step(optimizer, 7, {.clip_norm = 0.5, .scaler = &scaler});
        step.add(made<Whole>(20, images, ranks.place()).view(), labels(7, 0, ranks.place()).view(),
                 CrossEntropy{});
        const std::size_t last = model.run().parameters.elements_of(holding).end() - 1;
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
      Half model(ranks, Seed{1});
      const std::size_t lent = model.run().pool.lent();
      for (const Keep keep : {Keep::whole, Keep::state_over_data}) {
        const StateMemory asked = state_of_rank<Half::ends, Mixed>(model.layers(), ranks.place(),
                                                                   rows, AdamW{}.moments(), keep);
        const Optimizer optimizer(model, AdamW{}, keep);
        CHECK(asked.moments == optimizer.moments().size_bytes());
        CHECK(asked.parameters == model.values().size_bytes());
        CHECK(asked.gradients == model.gradients().size_bytes());
        Pool pool;  // rounds up as that of the model, which has lent nothing else
        const std::vector<Buffer> alike{pool.take(asked.parameters), pool.take(asked.copies),
                                        pool.take(asked.gradients), pool.take(asked.of_batch)};
        CHECK(pool.lent() == lent);
        const std::size_t updated =
            updated_parameters_of_rank<Half::ends>(model.layers(), ranks.place(), rows, keep);
        check_mentions(
            describe(model, rows, keep),
            {"holds " + std::to_string(asked.parameters + asked.copies) +
                 " bytes of parameters and " + std::to_string(asked.gradients + asked.of_batch) +
                 " bytes of gradients, and an optimizer keeps the moments of " +
                 std::to_string(updated) + " parameters",
             keep == Keep::whole || ranks.sizes().data == 1 ? " to settle\n"
                                                            : " bytes to update\n"});
      }
    });
  }
}

TEST_CASE("a step sends what is planned") {
  for (const mesh& sizes : cut_meshes) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [](Ranks& ranks) {
      Trainer<Network, Sgd> trainer(ranks, Sgd{.momentum = 0.9}, Keep::state_over_data, images);
      LossScaler scaler = LossScaler::fixed(8);
      const StepOptions options{.clip_norm = 0.5, .scaler = &scaler};
      std::size_t calls = 0;  // that settle; more of them if buckets are smaller
      for (const std::size_t bytes : {default_bucket_bytes, std::size_t{1200}}) {
        trainer.model.set_bucket_bytes(bytes);
        for (const MeshAxis axis : mesh_axes) ranks.along(axis).clear();
        trainer.step(1, options);
        const Plan plan =
            plan_step(trainer.model, images, CrossEntropy{}, options, Keep::state_over_data);
        CHECK(plan.update.size() == 3);
        CHECK(plan.settle.size() > std::exchange(calls, plan.settle.size()));
        check_counts(ranks, plan);
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
    for (const Keep keep : {Keep::whole, Keep::state_over_data})
      on_mesh({.data = 2, .tensor = 2}, [&](Ranks& ranks) {
        Training training(ranks, AdamW{}, keep, images);
        training.step(3);
        save_checkpoint(path(keep == Keep::whole ? "whole.safetensors" : "cut.safetensors"),
                        training.model, training.optimizer, RunPosition{}, {.names = names});
        training.step(1);
        if (ranks.rank() == 0) next = training.told;
      });
    CHECK(testing::bytes_of(path("cut.safetensors")) ==
          testing::bytes_of(path("whole.safetensors")));
    for (const mesh& sizes : std::vector<mesh>{
             {}, {.data = 4}, {.data = 3, .tensor = 2}, {.replica = 2, .data = 2, .tensor = 3}}) {
      CAPTURE(to_string(sizes));
      for (const Keep keep : {Keep::whole, Keep::state_over_data}) {
        on_mesh(sizes, [&](Ranks& ranks) {
          Training training(ranks, AdamW{}, keep, images);
          load_checkpoint(path("cut.safetensors"), training.model, training.optimizer,
                          {.names = names});
          save_checkpoint(path("again.safetensors"), training.model, training.optimizer,
                          RunPosition{}, {.names = names});
          training.number = 23;
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

TEST_CASE("a model that is on no mesh keeps all of its moments") {
  SingleRank one;
  Model<Narrow, Context<double, Reference, SingleRank>> model(one, Seed{1});
  check_mentions(
      message_of<argument_error>([&] { Optimizer(model, AdamW{}, Keep::state_over_data); }),
      {"Optimizer: Keep::state_over_data", "on no mesh", "MeshRanks"});
  check_mentions(message_of<argument_error>([&] { describe(model, rows, Keep::state_over_data); }),
                 {"plan: Keep::state_over_data", "on no mesh", "MeshRanks"});
}
