// Data parallelism: whole weights on every rank, and of each batch a block of samples. Losses,
// gradients and weights are those of one rank, whatever the number of ranks makes of the blocks.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/data/sampler.hpp"
#include "shardwise/shardwise.hpp"
#include "shardwise/train/accuracy.hpp"
#include "support/messages.hpp"
#include "support/trained.hpp"
#include "witness/formula.hpp"

using namespace shardwise;

namespace {

using testing::NamedNumbers;
using testing::TrainingResult;

using Batch = Sharded<Axis::batch>;

constexpr std::size_t features = 9;
constexpr std::size_t classes = 10;
constexpr std::size_t samples = 23;

struct WholeMlp : Sequential<Linear<split::none, features, 13>, Gelu, Dropout<1, 4>,
                             Linear<split::none, 13, classes>> {};
struct SplitMlp : Sequential<ColumnParallelLinear<features, 13>, Gelu, Dropout<1, 4>,
                             RowParallelLinear<13, classes>> {};

/// What one sample is made of; every sample is another.
double feature(std::uint32_t sample, std::size_t i) {
  return witness::made(2, static_cast<std::int64_t>(sample * features + i));
}
std::int32_t label(std::uint32_t sample) {
  return witness::made_label(sample, static_cast<std::int64_t>(classes));
}

/// The part of a batch that a rank needs where inputs are laid out as L.
template <Layout L>
struct BatchPart {
  BatchPart(const SampleBatch& batch, Place place)
      : chosen(std::same_as<L, Batch> ? batch.mine : batch.whole),
        x({{Axis::batch, batch.whole.size()}, {Axis::feature, features}}, place),
        labels({{Axis::batch, batch.whole.size()}}, place),
        target({{Axis::batch, batch.whole.size()}, {Axis::feature, classes}}, place) {
    for (std::size_t row = 0; row < chosen.size(); ++row) {
      for (std::size_t i = 0; i < features; ++i) x[row * features + i] = feature(chosen[row], i);
      labels[row] = label(chosen[row]);
      target[row * classes + static_cast<std::size_t>(labels[row])] = 1;
    }
  }

  std::span<const std::uint32_t> chosen;
  Tensor<double, L> x;
  Tensor<std::int32_t, L> labels;
  Tensor<double, L> target;
};

template <class L>
auto target_of(CrossEntropy, BatchPart<L>& part) {
  return part.labels.view();
}
template <class L>
auto target_of(MeanSquaredError, BatchPart<L>& part) {
  return part.target.view();
}

struct Epochs : TrainingResult {
  std::vector<NamedNumbers> gradients{};  ///< of each step
  std::size_t correct = 0;
};

/// Two epochs on inputs, outputs and labels that are laid out as L.
template <class Architecture, Layout L, Loss Chosen, Communicator C>
Epochs train(C& ranks, const Chosen& loss, std::size_t batch_size) {
  const Place place = place_of(ranks);
  Model<Architecture, Context<double, Reference, C>, Ends<L, L>> model(ranks, Seed{3});
  Optimizer optimizer(model, AdamW{.learning_rate = 0.02});
  DistributedSampler sampler(samples, place, {.batch_size = batch_size, .seed = Seed{4}});
  Epochs result;
  while (sampler.epoch() < 2) {
    BatchPart<L> part(sampler.next(), place);
    Step step(optimizer, part.x.global()[0].extent());
    result.losses.push_back(step.add(part.x.view(), target_of(loss, part), loss));
    model.settle_gradients();
    result.gradients.push_back(testing::gradients_of(model));
    step.finish();
  }
  result.parameters = testing::parameters_of(model);
  DistributedSampler in_order(samples, place, {.batch_size = 5, .shuffles = false});
  while (in_order.epoch() == 0) {
    BatchPart<L> part(in_order.next(), place);
    result.correct += count_correct(model, part.x.view(), part.labels.view());
  }
  return result;
}

/// All numbers here are below 5, and a sum in another order loses some 1e-15. AdamW divides by the
/// root of a gradient's square, which magnifies what is lost of a small gradient.
void check_equal(const Epochs& many, const Epochs& one) {
  check_near(many, one, 1e-11);
  REQUIRE(many.gradients.size() == one.gradients.size());
  for (std::size_t step = 0; step < one.gradients.size(); ++step)
    testing::check_near(many.gradients[step], one.gradients[step], 1e-11);
  CHECK(many.correct == one.correct);
}

template <Loss Chosen>
void check_all_ranks(const Chosen& loss, std::size_t batch_size) {
  CAPTURE(batch_size);
  SingleRank alone;
  const Epochs one = train<WholeMlp, Invariant>(alone, loss, batch_size);
  REQUIRE(one.losses.size() == 2 * ((samples + batch_size - 1) / batch_size));
  CHECK(one.losses.back() < one.losses.front());
  check_equal(train<WholeMlp, Batch>(alone, loss, batch_size), one);
  for (int size = 1; size <= 8; ++size) {
    CAPTURE(size);
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      check_equal(train<WholeMlp, Batch>(ranks, loss, batch_size), one);
    });
  }
}

}  // namespace

TEST_CASE("losses, gradients and weights of any number of ranks are those of one") {
  for (const std::size_t batch_size : {7U, 23U}) check_all_ranks(CrossEntropy{0.1}, batch_size);
  check_all_ranks(MeanSquaredError{}, 7);
}

TEST_CASE("a batch with fewer samples than ranks leaves ranks empty and changes nothing") {
  check_all_ranks(CrossEntropy{}, 3);
  check_all_ranks(MeanSquaredError{}, 1);
}

TEST_CASE("tensor-parallel ranks see the same batches and learn the same") {
  SingleRank alone;
  const CrossEntropy loss;
  const Epochs one = train<WholeMlp, Invariant>(alone, loss, 7);
  for (const int size : {2, 3, 8}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      check_equal(train<SplitMlp, Invariant>(ranks, loss, 7), one);
    });
  }
}

TEST_CASE("split labels may be beside any whole ones, and those of another rank are refused") {
  run_ranks(3, [](ThreadCommunicator& ranks) {
    const Place place = place_of(ranks);
    Model<WholeMlp, Context<double, Reference, ThreadCommunicator>, Ends<Batch, Batch>> model(
        ranks, Seed{3});
    DistributedSampler sampler(samples, place, {.batch_size = 7, .seed = Seed{4}});
    const SampleBatch batch = sampler.next();
    BatchPart<Batch> mine(batch, place);
    BatchPart<Invariant> whole(batch, place);
    Optimizer optimizer(model, Sgd{});
    const auto loss_of = [&](const auto& target, const auto& loss) {
      Step step(optimizer, 7);
      return step.add(mine.x.view(), target.view(), loss);
    };
    CHECK(loss_of(whole.labels, CrossEntropy{}) == loss_of(mine.labels, CrossEntropy{}));

    const Place other{(place.rank + 1) % 3, 3};
    DistributedSampler of_other(samples, other, {.batch_size = 7, .seed = Seed{4}});
    const BatchPart<Batch> next(of_other.next(), other);
    const doctest::Contains refusal("the labels or targets are the part of rank");
    CHECK_THROWS_WITH_AS(loss_of(next.labels, CrossEntropy{}), refusal, argument_error);
    CHECK_THROWS_WITH_AS(loss_of(next.target, MeanSquaredError{}), refusal, argument_error);
  });
}

TEST_CASE("a label that is no class ends the job and names its row of the whole batch") {
  const std::string said = testing::message_of([&] {
    run_ranks(4, [](ThreadCommunicator& ranks) {
      const Place place = place_of(ranks);
      Model<WholeMlp, Context<double, Reference, ThreadCommunicator>, Ends<Batch, Batch>> model(
          ranks, Seed{3});
      DistributedSampler sampler(samples, place, {.batch_size = 7, .seed = Seed{4}});
      BatchPart<Batch> part(sampler.next(), place);
      if (place.rank == 3) part.labels[0] = 10;
      Optimizer optimizer(model, Sgd{});
      train_step(model, part.x.view(), part.labels.view(), CrossEntropy{}, optimizer);
    });
  });
  CHECK(said.find("label 10 of row 6 is no class") != std::string::npos);
}
