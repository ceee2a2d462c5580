// Sums of gradients over the ranks that have other samples, made while backward goes on: what
// models learn has the bits of sums after it, and sums are under way while other layers run.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ranks/model_mesh.hpp"
#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/testing/calls.hpp"
#include "support/late_ranks.hpp"
#include "support/messages.hpp"

using namespace shardwise;

namespace {

using testing::check_mentions;
using testing::message_of;
using namespace testing::on_meshes;

using testing::late;
using testing::LateRanks;
using testing::on_late_mesh;
using Beginning = CountingCommunicator<LateRanks>;
static_assert(BeginsCollectives<Beginning> && !BeginsCollectives<ThreadCommunicator>);

/// Parameters that two layers use, layers that run forward again, and gradients that the ranks
/// along `tensor` owe. Its groups have 93, 12 and 84 elements on one rank.
struct Table {};
struct Deep : Sequential<Owns<Table, Linear<split::none, 6, 6>>, Gelu,
                         Recompute<Sequential<ColumnParallelLinear<6, 7>, RowParallelLinear<7, 6>>>,
                         Dropout<1, 4>, Borrows<Table, Linear<split::none, 6, 6>>,
                         Linear<split::none, 6, 5>> {};
using Mixed = Precision<fp16, float, float, bf16>;

constexpr std::size_t sizes_of_batches[] = {7, 4, 1, 2, 5};

/// Each sample has two tokens, which ranks along `context` cut.
Shape shape_of(std::size_t samples) {
  return {{Axis::batch, samples}, {Axis::sequence, 2}, {Axis::feature, 6}};
}

template <class P, class Rule, class C>
struct Trainer {
  using M = Model<Deep, Context<P, Reference, MeshRanks<C>>>;

  Trainer(MeshRanks<C>& on, const Rule& rule, Keep keep, std::size_t bucket_bytes,
          bool sums_meanwhile = false)
      : ranks(on),
        model(on, Seed{5},
              {.keep = cuts_gradients(keep) ? keep : Keep::whole,
               .bucket_bytes = bucket_bytes,
               .sums_meanwhile = sums_meanwhile}),
        optimizer(model, rule, keep) {}

  void add(Step<M, Rule>& step, std::size_t samples, double factor = 1) {
    const Shape shape = shape_of(samples);
    ++number;
    const auto x = filled<typename M::dtype, Whole>(shape, ranks.place(), [&](std::size_t i) {
      const double value = factor * witness::made(number, static_cast<std::int64_t>(i));
      return static_cast<typename M::dtype>(static_cast<accumulate_t<typename M::dtype>>(value));
    });
    const auto targets =
        filled<std::int32_t, Whole>({shape[0], shape[1]}, ranks.place(), [&](std::size_t row) {
          return witness::made_label(static_cast<std::int64_t>(row) + number, 5);
        });
    told.push_back(step.add(x.view(), targets.view(), CrossEntropy{}));
  }
  void step(std::size_t batches, const StepOptions& options = {}) {
    std::size_t samples = 0;
    for (std::size_t i = 0; i < batches; ++i) samples += sizes_of_batches[i];
    Step step(optimizer, samples, options);
    for (std::size_t i = 0; i < batches; ++i) add(step, sizes_of_batches[i]);
    const StepEnd end = step.finish();
    told.push_back(end.norm.value_or(0));
    told.push_back(end.skipped ? 1 : 0);
  }
  std::vector<typename M::parameter_dtype> values() {
    return {model.values().begin(), model.values().end()};
  }

  MeshRanks<C>& ranks;
  M model;
  Optimizer<Rule, M> optimizer;
  std::int64_t number = 20;
  Numbers told{};
};

/// Of 1 to 8 ranks.
const std::vector<mesh> overlap_meshes{{.data = 1},
                                       {.data = 2},
                                       {.data = 3},
                                       {.data = 2, .tensor = 2},
                                       {.data = 5},
                                       {.data = 2, .tensor = 3},
                                       {.data = 7},
                                       {.replica = 2, .data = 2, .tensor = 2},
                                       {.replica = 2, .data = 2, .context = 2}};

/// Steps of 1, 3 and 5 batches: losses, norms and parameters have the bits of plain sums.
template <class P, class Rule>
void check_bits(const Rule& rule, Keep keep, bool scales) {
  for (const mesh& sizes : overlap_meshes) {
    CAPTURE(sizes);
    on_late_mesh<Beginning>(sizes, [&](auto& ranks) {
      Trainer<P, Rule, Beginning> plain(ranks, rule, keep, 100), over(ranks, rule, keep, 100, true);
      const DynamicLossScale too_large{.initial = 1 << 20, .interval = 2};
      LossScaler of_plain(too_large), of_over(too_large);
      StepOptions options{.clip_norm = 0.5}, of_overlapping{.clip_norm = 0.5};
      if (scales) options.scaler = &of_plain, of_overlapping.scaler = &of_over;
      for (const std::size_t batches : {1U, 3U, 5U, 1U}) {
        plain.step(batches, options);
        CHECK(late.begun == 0);
        over.step(batches, of_overlapping);
        CHECK((late.begun > 2) == (detail::sample_ranks(sizes) > 1));
        CHECK(late.touched == 0);
        late = {};
        CHECK(over.told == plain.told);
        CHECK(over.values() == plain.values());
      }
      CHECK(of_over.state() == of_plain.state());
    });
  }
}

using Net = Model<Deep, Context<double, Reference, Ranks>>;

// begin: train
void train(Ranks& ranks, std::span<const Numbers> batches) {
  Net model(ranks, Seed{1}, {.sums_meanwhile = true});
  Optimizer optimizer(model, AdamW{});
  for (const Numbers& batch : batches) {
    const View<const double, Whole> x(batch.data(), {{Axis::batch, 4}, {Axis::feature, 6}},
                                      ranks.place());
    train_step(model, x, labels(4, 0, ranks.place()).view(), CrossEntropy{}, optimizer);
  }
}
// end: train

}  // namespace

TEST_CASE("the bits are those of sums after backward") {
  check_bits<double>(AdamW{.learning_rate = 0.01}, Keep::whole, false);
  check_bits<Mixed>(Sgd{.learning_rate = 0.1, .momentum = 0.9}, Keep::whole, true);
}

TEST_CASE("the bits are the same where each rank keeps a share of the moments") {
  check_bits<double>(AdamW{.learning_rate = 0.01}, Keep::state_over_data, false);
  check_bits<Mixed>(Sgd{.learning_rate = 0.1, .momentum = 0.9}, Keep::state_over_data, true);
}

TEST_CASE("the bits are the same where each rank stores a share of the gradients") {
  check_bits<double>(AdamW{.learning_rate = 0.01}, Keep::gradients_over_data, false);
  check_bits<Mixed>(Sgd{.learning_rate = 0.1, .momentum = 0.9}, Keep::gradients_over_data, true);
  check_bits<double>(Sgd{.learning_rate = 0.1, .momentum = 0.9}, Keep::all_over_data, true);
}

TEST_CASE("the sums of one layer are under way while the layer before it goes backward") {
  // The last layer has nothing beside it. Those two of each layer go on with the calls of Borrows,
  // Dropout, the two layers of the block that runs forward again, these two backward, Gelu and
  // Owns.
  on_late_mesh<Beginning>({.data = 2}, [](auto& ranks) {
    Trainer<Mixed, Sgd, Beginning> trainer(ranks, Sgd{}, Keep::gradients_over_data, 100, true);
    for (const std::size_t batches : {1U, 3U}) {
      late = {};
      trainer.step(batches);
      CHECK(late.begun == 5 * 2 * static_cast<int>(batches));
      CHECK(late.progressed == 8 * 2 * static_cast<int>(batches));
      CHECK(late.most == 2);
      CHECK(late.under_way == 0);
      CHECK(late.touched == 0);
    }
  });
}

TEST_CASE("sums are under way while other layers go backward, each as soon as it can") {
  // None fills whole lines, so biases come first. The group that ranks hold alike has biases of 6
  // elements of Owns, 6 of the row-parallel layer and 5 of the last one, and weights of 36 of Owns
  // and 30 of the last layer; the split one a bias of 7, and weights of 42 and 42. In buckets of 12
  // elements, backward begins 2 sums in the last layer, then none in Borrows, 3 in the row-parallel
  // layer, 5 in the column-parallel layer, and 5 in Owns. Each call of a layer lets those go on
  // that have begun before it: the calls are those of the test above.
  on_late_mesh<Beginning>({.data = 2}, [](auto& ranks) {
    Trainer<double, Sgd, Beginning> trainer(ranks, Sgd{}, Keep::whole, 100, true);
    for (const std::size_t batches : {1U, 3U}) {
      late = {};
      trainer.step(batches);
      CHECK(late.begun == 2 + 3 + 5 + 5);
      CHECK(late.progressed == 5 * 2 + 5 + 2 * 10);
      CHECK(late.touched == 0);
    }
  });
}

TEST_CASE("the sum along a second axis begins when the next layer has gone backward") {
  // As above, in two sums of each bucket. The 2 buckets of the last layer begin along the second
  // axis behind the row-parallel layer, before its own 3; these behind the column-parallel one, the
  // 5 of that one behind Owns, and the last 5 at the end.
  for (const Keep keep : {Keep::whole, Keep::state_over_data})
    on_late_mesh<Beginning>({.replica = 2, .data = 2}, [&](auto& ranks) {
      Trainer<double, Sgd, Beginning> trainer(ranks, Sgd{}, keep, 100, true);
      late = {};
      trainer.step(3);
      CHECK(late.begun == 2 * (2 + 3 + 5 + 5));
      CHECK(late.progressed == 5 * 2 + 5 + 2 * 10);
      if (keep != Keep::whole) return;  // of a share there may be nothing, and no end to see
      const auto first_end = std::ranges::find_if(late.events, [](auto n) { return n < 0; });
      CHECK(first_end - late.events.begin() == 2);
      CHECK(late.touched == 0);
    });
}

TEST_CASE("ranks make the same calls in another order") {
  for (const bool in_shares : {false, true}) {
    CAPTURE(in_shares);
    on_late_mesh<Beginning>({.replica = 2, .data = 2}, [&](auto& ranks) {
      using On = Trainer<double, Sgd, Beginning>;
      On plain(ranks, Sgd{}, Keep::whole, 100), over(ranks, Sgd{}, Keep::whole, 100, true);
      const auto calls_of = [&](On& trainer) {
        trainer.model.run().sending.sums_in_shares = in_shares;
        for (const MeshAxis axis : {data, replica}) ranks.along(axis).clear();
        trainer.step(3);
        std::vector<std::pair<int, std::size_t>> calls;
        for (const MeshAxis axis : {data, replica})
          for (const CountedCall& call : ranks.along(axis).log())
            calls.push_back(
                {static_cast<int>(axis) * 100 + static_cast<int>(call.operation), call.elements});
        std::ranges::sort(calls);
        return calls;
      };
      const auto calls = calls_of(plain);
      CHECK(calls.size() > 30);
      CHECK(calls_of(over) == calls);
      CHECK(over.told == plain.told);
      CHECK(over.values() == plain.values());
    });
  }
}

TEST_CASE("the sums of a rank's share are planned, and half as many bytes as whole sums") {
  const Shape in = shape_of(7);
  const auto settle_of = [&](auto& trainer, Keep keep) {
    return plan_step(trainer.model, {in}, CrossEntropy{}, {}, keep).settle;
  };
  for (const mesh& sizes : {mesh{.data = 3}, mesh{.replica = 2, .data = 2, .tensor = 2}}) {
    CAPTURE(sizes);
    // Of a group that `tensor` splits, the ranks with fewer gradients may have fewer buckets.
    // 11 numbers: of a sum after backward, where each rank has as many, a bucket has 9.
    const std::size_t bucket_bytes = sizes.tensor > 1 ? default_bucket_bytes : 90;
    on_late_mesh<Beginning>(sizes, [&](auto& ranks) {
      using On = Trainer<double, Sgd, Beginning>;
      On cut(ranks, Sgd{}, Keep::state_over_data, bucket_bytes, true);
      const On plain(ranks, Sgd{}, Keep::state_over_data, bucket_bytes);
      for (const bool in_shares : {false, true}) {
        cut.model.run().sending.sums_in_shares = in_shares;
        for (const MeshAxis axis : mesh_axes) ranks.along(axis).clear();
        const StepOptions options{.clip_norm = 0.5};
        cut.step(1, options);
        const Plan plan =
            plan_step(cut.model, {in}, CrossEntropy{}, options, Keep::state_over_data);
        CollectiveList all;
        for (const CollectiveList* part : {&plan.loss, &plan.settle, &plan.finish, &plan.update})
          for (const Collective& one : *part) all.add(one);
        for (const MeshAxis axis : {data, replica}) {
          const std::vector<CountedCall> mine = ranks.along(axis).log();
          auto planned = planned_calls<Beginning>(all, ranks.sizes(), axis);
          if (ranks.sizes()[axis] == 1) continue;
          REQUIRE(mine.size() == planned.size());
          auto counted = counted_calls(static_cast<Beginning&>(ranks), mine);
          const auto by_size = [](const CountedCall& call) {
            return std::pair(call.operation, call.elements);
          };
          std::ranges::sort(planned, {}, by_size);
          std::ranges::sort(counted, {}, by_size);
          CHECK(difference_from_plan(name(axis), planned, counted) == "");
        }
      }
      cut.model.run().sending.sums_in_shares = false;
      const CollectiveList whole = settle_of(plain, Keep::whole);
      CHECK(settle_of(cut, Keep::whole) == whole);
      const CollectiveList of_share = settle_of(cut, Keep::state_over_data);
      if (sizes.data == 3)
        CHECK(2 * of_share.bytes_sent(sizes) == whole.bytes_sent(sizes));
      else
        CHECK(of_share.size() == settle_of(plain, Keep::state_over_data).size());
    });
  }
}

TEST_CASE("gradients that are settled before the end of a step are whole on every rank") {
  on_late_mesh<Beginning>({.data = 3, .tensor = 2}, [](auto& ranks) {
    using On = Trainer<Mixed, Sgd, Beginning>;
    On plain(ranks, Sgd{}, Keep::whole, 100), over(ranks, Sgd{}, Keep::state_over_data, 100, true);
    const auto gradients_of = [](On& trainer) {
      Step step(trainer.optimizer, 7);
      trainer.add(step, 7);
      trainer.model.settle_gradients();
      const auto gradients = trainer.model.run().parameters.gradients();
      const std::vector<float> all(gradients.begin(), gradients.end());
      trainer.told.push_back(gradient_norm(trainer.model));
      step.finish();
      return all;
    };
    CHECK(gradients_of(over) == gradients_of(plain));
    CHECK(over.told == plain.told);
    CHECK(over.values() == plain.values());
  });
}

TEST_CASE("a step that fails leaves no sum under way") {
  on_late_mesh<Beginning>({.data = 2}, [](auto& ranks) {
    Trainer<double, Sgd, Beginning> plain(ranks, Sgd{}, Keep::whole, 100);
    Trainer<double, Sgd, Beginning> over(ranks, Sgd{}, Keep::whole, 100, true);
    const auto check_three_batches = [&] {
      over.number = plain.number;
      over.told.clear();
      plain.told.clear();
      over.step(3);
      plain.step(3);
      CHECK(over.told == plain.told);
      CHECK(over.values() == plain.values());
    };
    {
      Step step(over.optimizer, 11);
      over.add(step, 7);
      CHECK_THROWS_AS(over.add(step, 4, std::numeric_limits<double>::infinity()), numeric_error);
      CHECK(late.begun == 0);
    }
    check_three_batches();
    {
      Step step(over.optimizer, 7);
      over.add(step, 7);
      const Tensor<double, Whole> x({{Axis::batch, 2}, {Axis::feature, 6}}, ranks.place());
      const Tensor<double, dual_t<Whole>> dy({{Axis::batch, 2}, {Axis::feature, 5}}, ranks.place());
      over.model.forward(x.view());
      const std::string message =
          message_of<argument_error>([&] { over.model.backward(dy.view()); });
      check_mentions(message, {"Deep: backward after the batch that completed the samples"});
    }
    {
      const Tensor<double, Whole> x({{Axis::batch, 2}, {Axis::feature, 6}}, ranks.place());
      const Tensor<double, dual_t<Whole>> dy({{Axis::batch, 2}, {Axis::feature, 5}}, ranks.place());
      Step step(over.optimizer, 7);
      over.model.reserve_flights(2);
      over.model.forward(x.view(), {.flight = Flight{1}});
      over.model.backward_input(dy.view(), Flight{1});
      over.add(step, 7);
      const std::string message =
          message_of<argument_error>([&] { over.model.backward_parameters(Flight{1}); });
      check_mentions(message, {"backward_parameters in flight 1 after settle_gradients"});
    }
    check_three_batches();
    CHECK(late.touched == 0);
  });
}

TEST_CASE("the program of the page trains") {
  on_mesh({.data = 2},
          [](Ranks& ranks) { train(ranks, std::vector<Numbers>(2, Numbers(4 * 6, 0.5))); });
}
