// Mixtures of experts at 1 to 8 ranks against their formula and its differences: every dtype and
// split, ranks without experts, experts without rows, equal logits, the balancing loss with
// padding, several batches and a loss scale, files, and Mixtrals of transformers.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "ranks/experts_by_formula.hpp"
#include "ranks/layer_on_ranks.hpp"
#include "ranks/transformers.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/comm/thread_mesh.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/experts.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/llama_files.hpp"
#include "shardwise/train/loss_scaler.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/file_tensors.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;
using testing::filled;
using testing::Mixture;
using testing::Ranks;

namespace {

using Numbers = std::vector<double>;
using Sequence = Sharded<Axis::sequence>;
using Batch = Sharded<Axis::batch>;

constexpr ExpertSizes sizes{.experts = 5, .chosen = 2, .features = 4, .hidden = 3};
constexpr Shape rows{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, sizes.features}};

/// Multiples of 1/4 in [-1, 1], which every dtype has. In the router, tensor 1, experts 1 and 3 are
/// equal, and so are their logits in every row.
double number_of(std::size_t tensor, std::size_t i) {
  if (tensor == 1 && i / sizes.features == 3) i -= 2 * sizes.features;
  return static_cast<double>((i * i * (tensor + 2) + 5 * i + tensor) % 9) / 4 - 1;
}

Numbers numbers(std::size_t tensor, std::size_t count) {
  Numbers made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = number_of(tensor, i);
  return made;
}

Mixture mixture() {
  const auto [experts, chosen, features, hidden] = sizes;
  const std::size_t each = experts * hidden * features;
  return {
      experts,          chosen,           features,        hidden, numbers(1, experts * features),
      numbers(2, each), numbers(3, each), numbers(4, each)};
}

const char* const names[] = {"router", "gate", "up", "down"};

template <class M>
void set_parameters(M& model) {
  std::size_t tensor = 0;
  for (const char* name : names) {
    ++tensor;
    Shape shape;
    model.visit_parameters([&](auto& p) {
      if (p.name == name) shape = p.spec.shape;
    });
    const auto whole = filled<typename M::dtype, Invariant>(
        shape, model.run().place(),
        [&](std::size_t i) { return static_cast<float>(number_of(tensor, i)); });
    model.set(name, whole.view());
  }
}

/// The largest difference, by the largest number.
template <class View>
double relative_difference(const View& found, const Numbers& expected) {
  double largest = 0;
  for (const double number : expected) largest = std::max(largest, std::abs(number));
  const double difference =
      testing::largest_difference_of_part(found, [&](std::size_t i) { return expected[i]; });
  return difference / largest;
}

/// What a model gives, and the gradients of Σ y dy.
struct Expected {
  Numbers y, dx, of_parameters[4];
};

Expected expected_of(const Numbers& x, const Numbers& dy) {
  Mixture of = mixture();
  Numbers rows_of = x;
  const auto choices = of.choose(x);
  CHECK(choices != Mixture::Choices(choices.size(), choices[0]));
  const auto along = [&] {
    const Numbers y = of.output(rows_of, choices);
    return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
  };
  return {of.output(x, choices),
          testing::differences(rows_of, along),
          {testing::differences(of.router, along), testing::differences(of.gate, along),
           testing::differences(of.up, along), testing::differences(of.down, along)}};
}

template <class T>
constexpr double bound = std::is_same_v<T, double>  ? 1e-7  // of differences
                         : std::is_same_v<T, float> ? 1e-6
                         : std::is_same_v<T, fp16>  ? 4e-3
                                                    : 3e-2;

/// Two equal batches of a step, so that gradients are twice those of one.
template <class T, class S, class In>
void check_formula() {
  const Numbers x = numbers(5, rows.elements()), dy = numbers(6, rows.elements());
  const Expected expected = expected_of(x, dy);
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    testing::run_on_ranks(ranks, [&](Ranks& group) {
      Model<Experts<S, sizes>, Context<T, Reference, Ranks>, Ends<In, In>, TrainWithInputGradient>
          model({}, group, Seed{1}, rows);
      set_parameters(model);
      const auto as = [&](const Numbers& of) {
        return filled<T, In>(rows, place_of(group),
                             [&](std::size_t i) { return static_cast<float>(of[i]); });
      };
      const auto given = as(x), slope = as(dy);
      for (int batch = 0; batch < 2; ++batch) {
        CHECK(relative_difference(model.forward(given.view()), expected.y) < bound<T>);
        CHECK(relative_difference(model.backward(slope.view()), expected.dx) < bound<T>);
      }
      model.settle_gradients();
      for (std::size_t p = 0; p < 4; ++p) {
        CAPTURE(names[p]);
        Numbers twice = expected.of_parameters[p];
        for (double& number : twice) number *= 2;
        CHECK(relative_difference(model.gather_gradient(names[p]).view(), twice) < bound<T>);
      }
      CHECK(relative_difference(model.evaluate(given.view()), expected.y) < bound<T>);
    });
  }
}

/// Whether a row leaves out an expert whose logit equals one that it takes.
bool has_ties(const Numbers& x) {
  const Mixture of = mixture();
  const auto choices = of.choose(x);
  for (std::size_t r = 0; r < choices.size(); ++r) {
    const Numbers logits = of.logits(x.data() + r * sizes.features);
    const double least = logits[choices[r].back()];
    const auto not_less =
        std::count_if(logits.begin(), logits.end(), [&](double logit) { return logit >= least; });
    if (not_less > static_cast<std::ptrdiff_t>(sizes.chosen)) return true;
  }
  return false;
}

/// The batches of a step with a balancing loss: in the first, rows 3 and 4 are padding.
constexpr std::size_t length = 5, samples[] = {2, 1};
const std::vector<Segment> segments[] = {{{0, 3}, {length, length}}, {}};
constexpr double coefficient = 0.75;

Shape batch_of(std::size_t number) {
  return {{Axis::batch, samples[number]}, {Axis::sequence, length}, rows.back()};
}

/// The router after a step at a rate of 1, in which the layer has a loss `balance` of its own.
/// Values between layers have the layout Along along `tensor`.
template <class Along, class Group, class L>
Numbers trained(Group& group, const L& layer, const StepOptions& options, double balance) {
  const Shape any{{Axis::batch, dynamic}, {Axis::sequence, length}, rows.back()};
  using M = Model<L, Context<double, Reference, Group>, Ends<Along, Along>>;
  M model(layer, group, Seed{1}, any);
  set_parameters(model);
  Optimizer optimizer(model, Sgd{.learning_rate = 1});
  shardwise::Step step(optimizer, samples[0] + samples[1], options);
  for (const std::size_t number : {0U, 1U}) {
    const auto x = filled<double, typename M::input_layout>(
        batch_of(number), model.run().place_at_ends(),
        [&](std::size_t i) { return number_of(5 + number, i); });
    step.add(x.view(), x.view(), MeanSquaredError{}, segments[number]);
  }
  step.finish();
  CHECK(model.layer_losses() == doctest::Approx(balance).epsilon(1e-14));
  const auto router = model.gather("router");
  return {router.data(), router.data() + router.size()};
}

/// The balancing loss of batch `number`, and its gradients.
struct Balance {
  double loss;
  Numbers by_router, by_x;
};

Balance balance_of(std::size_t number) {
  Mixture of = mixture();
  Numbers x = numbers(5 + number, batch_of(number).elements());
  const auto choices = of.choose(x);
  std::vector<bool> counts(choices.size(), true);
  if (number == 0) counts[3] = counts[4] = false;
  const auto loss = [&] { return coefficient * of.balance(x, choices, counts); };
  return {loss(), testing::differences(of.router, loss), testing::differences(x, loss)};
}

/// What a balancing loss changes in a step of two batches, with and without a loss scale.
template <class S, class Along, class Group>
void check_balance(Group& group) {
  const Balance first = balance_of(0), second = balance_of(1);
  const auto of_step = [](double a, double b) { return (2 * a + b) / 3; };  // by samples
  Numbers expected = first.by_router;
  std::transform(expected.begin(), expected.end(), second.by_router.begin(), expected.begin(),
                 of_step);
  for (const double scale : {1.0, 1024.0}) {
    LossScaler scaler = LossScaler::fixed(scale);
    const StepOptions options{.scaler = &scaler};
    const Experts<S, sizes> plain;
    Numbers change = trained<Along>(group, plain, options, 0);
    const Numbers with = trained<Along>(group, plain.balanced_by(coefficient), options,
                                        of_step(first.loss, second.loss));
    std::transform(change.begin(), change.end(), with.begin(), change.begin(), std::minus{});
    CHECK(testing::largest_difference(change, expected) < 1e-8);
  }
}

template <class S, class Along>
void check_balance() {
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    testing::run_on_ranks(ranks, [](Ranks& group) { check_balance<S, Along>(group); });
  }
}

/// A file that has gate and up of an expert by turns, transposed, and down behind an axis of 1:
/// saved at 3 ranks, and loaded at more and at fewer.
template <class S>
void check_file() {
  using M = Model<Experts<S, sizes>, Context<double, Reference, ThreadCommunicator>,
                  Ends<Invariant, Invariant>, ForwardOnly>;
  const TensorNames places{{"gate", FileTensor("e.*.w", 0, true).in_pieces(1, 2)},
                           {"up", FileTensor("e.*.w", 1, true).in_pieces(1, 2)},
                           {"down", FileTensor("e.*.d").behind_ones(1)}};
  const testing::TemporaryFolder folder("shardwise_experts");
  const auto path = folder.path() / "experts.safetensors";
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    M model({}, ranks, Seed{1}, rows);
    set_parameters(model);
    save_weights(path, model, {.names = places});
  });

  const Mixture of = mixture();
  const TensorFiles file(path);
  CHECK(file.tensors().size() == 1 + 2 * of.experts);
  for (std::size_t e = 0; e < of.experts; ++e) {
    const std::string name = "e." + std::to_string(e) + '.';
    Numbers in_turns, down;
    for (std::size_t n = 0; n < of.features; ++n) {
      for (std::size_t h = 0; h < of.hidden; ++h) {
        const std::size_t i = (e * of.hidden + h) * of.features + n;
        in_turns.insert(in_turns.end(), {of.gate[i], of.up[i]});
        down.push_back(of.down[(e * of.features + n) * of.hidden + h]);
      }
    }
    CHECK(testing::numbers_of<double>(file, name + 'w') == in_turns);
    CHECK(testing::numbers_of<double>(file, name + 'd') == down);
    CHECK(file.tensors().at(name + 'w').info.shape ==
          std::vector<std::uint64_t>{of.features, 2 * of.hidden});
    CHECK(file.tensors().at(name + 'd').info.shape ==
          std::vector<std::uint64_t>{1, of.features, of.hidden});
  }

  for (const int size : {1, 2, 5, 8}) {
    CAPTURE(size);
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      M model({}, ranks, Seed{2}, rows);
      load_weights(path, model, {.names = places});
      CHECK(relative_difference(model.gather("router").view(), of.router) == 0);
      CHECK(relative_difference(model.gather("gate").view(), of.gate) == 0);
      CHECK(relative_difference(model.gather("up").view(), of.up) == 0);
      CHECK(relative_difference(model.gather("down").view(), of.down) == 0);
    });
  }
}

template <class P, LlamaForm Form>
void check_mixtral(const std::string& family, int size) {
  LlamaConfig config = read_llama_config(testing::transformers::directory(family));
  config.form.balanced = Form.balanced;
  config.balance = 0.5;
  testing::transformers::check<P>(family, llama<P, Form>(config), llama_tensors(config), size);
}

}  // namespace

TEST_CASE_TEMPLATE("rows and gradients of two batches", T, float, double, bf16, fp16) {
  CHECK(has_ties(numbers(5, rows.elements())));
  check_formula<T, split::expert, Invariant>();
}

TEST_CASE("rows and gradients with all experts on each rank") {
  check_formula<double, split::none, Invariant>();
  check_formula<double, split::none, Batch>();
  check_formula<double, split::none, Sequence>();
}

TEST_CASE("many ranks compute what one does, and send what is planned") {
  using testing::check_on_ranks;
  using testing::up_to_rounding;
  constexpr ExpertSizes few{.experts = 3, .chosen = 3, .features = 6, .hidden = 2};
  constexpr ExpertSizes many{.experts = 9, .chosen = 1, .features = 3, .hidden = 4};
  constexpr Shape wide{{Axis::batch, 2}, {Axis::sequence, 7}, {Axis::feature, 6}};
  constexpr Shape three{{Axis::batch, 3}, {Axis::feature, 3}};  // most experts have no row
  check_on_ranks(Experts<split::expert, few>{}, wide, up_to_rounding);
  check_on_ranks<Sequence>(Experts<>(few), wide, up_to_rounding);
  check_on_ranks(Experts<>(many), three, up_to_rounding);
  check_on_ranks<Sequence>(Experts<split::none>(few), wide, up_to_rounding);
}

TEST_CASE("a balancing loss and its gradient, over the batches of a step and under a loss scale") {
  check_balance<split::expert, Invariant>();
  check_balance<split::none, Invariant>();
  check_balance<split::none, Sequence>();
}

TEST_CASE("a balancing loss of rows that lie over several axes of a mesh") {
  for (const mesh& sizes : {mesh{.data = 2, .context = 2, .tensor = 2}, mesh{.data = 3},
                            mesh{.context = 3, .tensor = 2}})
    run_mesh(sizes, [](MeshRanks<ThreadCommunicator>& ranks) {
      check_balance<split::expert, Invariant>(ranks);
      check_balance<split::none, Invariant>(ranks);
    });
}

TEST_CASE("a balancing loss and its gradient by the input, without a step") {
  const Balance expected = balance_of(0);
  for (const int ranks : testing::rank_counts({1, 2, 3, 8})) {
    testing::run_on_ranks(ranks, [&](Ranks& group) {
      const auto layer = Experts<split::expert, sizes>{}.balanced_by(coefficient);
      Model<std::remove_const_t<decltype(layer)>, Context<double, Reference, Ranks>,
            Ends<Invariant, Invariant>, TrainWithInputGradient>
          model(layer, group, Seed{1}, batch_of(0));
      set_parameters(model);
      const auto x = filled<double, Invariant>(batch_of(0), place_of(group),
                                               [](std::size_t i) { return number_of(5, i); });
      const Tensor<double, Invariant> nothing(batch_of(0), place_of(group));
      for (const int step : {1, 2}) {
        CAPTURE(step);
        model.forward(x.view(), {.segments = segments[0]});
        CHECK(relative_difference(model.backward(nothing.view()), expected.by_x) < 1e-7);
        model.next_step();
        CHECK(model.layer_losses() == doctest::Approx(expected.loss).epsilon(1e-14));
      }
      for (double& value : model.values()) value *= 1e4;  // of such logits exp is infinite
      model.values_changed();
      model.forward(x.view(), {.segments = segments[0]});
      model.backward(nothing.view());
      CHECK(std::isfinite(model.layer_losses()));
    });
  }
}

TEST_CASE("a file in which tensors of experts are by turns, transposed and behind an axis of 1") {
  check_file<split::expert>();
  check_file<split::none>();
}

TEST_CASE("Mixtrals of transformers") {
  constexpr LlamaForm windowed{.experts = true, .window = 4};
  constexpr LlamaForm balanced{.experts = true, .balanced = true};
  for (const int size : {1, 2, 3, 4, 5, 8}) {
    check_mixtral<TensorParallel, windowed>("mixtral", size);
    check_mixtral<TensorParallel, balanced>("mixtral_balanced", size);
  }
  for (const int size : {1, 2, 3, 5}) {
    check_mixtral<SequenceParallel, windowed>("mixtral", size);
    check_mixtral<ContextParallel, windowed>("mixtral", size);
  }
  check_mixtral<SequenceParallel, balanced>("mixtral_balanced", 3);
}

TEST_CASE("choices that no row can make") {
  for (const std::size_t chosen : {0U, 4U}) {
    CAPTURE(chosen);
    const ExpertSizes wrong{.experts = 3, .chosen = chosen, .features = 2, .hidden = 2};
    CHECK_THROWS_WITH_AS(Experts<>{wrong},
                         ("Experts: each row is to choose " + std::to_string(chosen) +
                          " of 3 experts; it must be at least one, and no more than there are")
                             .c_str(),
                         argument_error);
  }
  CHECK_THROWS_AS(Experts<>({.experts = 0, .chosen = 0, .features = 2, .hidden = 2}),
                  argument_error);
  CHECK_THROWS_AS((Experts<split::expert, sizes>{}.balanced_by(-1)), argument_error);
  CHECK_THROWS_AS((Experts<split::expert, sizes>{}.output_shape({{Axis::feature, 5}})),
                  shape_error);
}
