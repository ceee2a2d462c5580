// Losses against PyTorch, over every layout, dtype and number of ranks, and what they refuse.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/testing/loss_check.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "support/is_as_expected.hpp"
#include "support/messages.hpp"
#include "unit/train/rows.hpp"
#include "witness/values.hpp"

using namespace testing;

namespace {

const Shape plain{{Axis::batch, 6}, {Axis::feature, 10}};
const Shape sequence{{Axis::batch, 2}, {Axis::sequence, 3}, {Axis::feature, 5}};
const Shape square{{Axis::batch, 4}, {Axis::feature, 5}};

/// PyTorch's losses and gradients.
const witness::Values& theirs() {
  static const witness::Values values("training/losses");
  return values;
}

std::vector<double> shifted_logits() {
  auto logits = made(7, 60, 4);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] += (i / 10) % 2 == 0 ? 1e4 : -1e4;
  return logits;
}

/// Cross-entropy, without and with label smoothing.
template <Layout L, Real T, Communicator C>
void check_case(C& ranks, const std::string& which, const Shape& shape,
                const std::vector<double>& logits, double bound = rounding<T>) {
  const auto labels = made_labels(shape.without_back(), place_of(ranks), shape.back().extent());
  for (const double smoothing : {0.0, 0.1}) {
    const std::string key = smoothing > 0 ? which + "_smooth" : which;
    const double loss = theirs().number(key + "/loss");
    const auto result = loss_of<L, T>(ranks, CrossEntropy{smoothing}, shape, logits, labels.view());
    INFO(key << " as " << layout_name<L>() << " in " << std::string(name(dtype_v<T>)) << " at "
             << ranks.size());
    CHECK(std::abs(result.loss - loss) <= bound * std::max(1.0, loss));
    CHECK(largest_difference(result.gradient, theirs()[key + "/gradient"]) <= bound);
  }
}

template <Layout L, Communicator C>
void check_large(C& ranks) {
  // A logit of 10^4 has a rounding of 2e-12, which is what the shift loses.
  check_case<L, double>(ranks, "shifted", plain, shifted_logits(), 2e-12);
  check_case<L, double>(ranks, "wide", plain, made(7, 60, 10000), 1e-14);
}

template <Layout L, Real T, Communicator C>
void check_plain(C& ranks) {
  check_case<L, T>(ranks, "plain", plain, made(7, 60, 4));
}

template <Layout L, Real T, Communicator C>
void check_sequence(C& ranks) {
  check_case<L, T>(ranks, "sequence", sequence, made(8, 30, 4));
}

template <Real T, Communicator C>
void check_cross_entropy(C& ranks) {
  check_plain<Invariant, T>(ranks);
  check_plain<Feature, T>(ranks);
  check_plain<Batch, T>(ranks);
  check_sequence<Invariant, T>(ranks);
  check_sequence<Feature, T>(ranks);
  check_sequence<Batch, T>(ranks);
  check_sequence<Sequence, T>(ranks);
}

template <Layout L, Real T, Communicator C>
void check_mean_squared(C& ranks) {
  const auto target = tensor_of<T>(square, place_of(ranks), made(6, 20));
  const auto result = loss_of<L, T>(ranks, MeanSquaredError{}, square, made(5, 20), target.view());
  INFO(layout_name<L>() << " in " << std::string(name(dtype_v<T>)) << " at " << ranks.size());
  CHECK(std::abs(result.loss - theirs().number("mean_squared/loss")) <= rounding<T>);
  CHECK(largest_difference(result.gradient, theirs()["mean_squared/gradient"]) <= rounding<T>);
}

template <Real T, Communicator C>
void check_all(C& ranks) {
  check_cross_entropy<T>(ranks);
  check_mean_squared<Invariant, T>(ranks);
  check_mean_squared<Feature, T>(ranks);
  check_mean_squared<Batch, T>(ranks);
}

constexpr int rank_counts[] = {1, 2, 3, 4, 8};

}  // namespace

// 10 classes over 4 and 8 ranks and 5 over 8 are uneven, with empty shards; so are 6 and 4 rows.
TEST_CASE("losses and gradients are PyTorch's in every layout, dtype and number of ranks") {
  SingleRank alone;
  check_all<double>(alone);
  check_all<float>(alone);
  check_all<bf16>(alone);
  check_all<fp16>(alone);
  for (const int size : rank_counts) {
    run_ranks(size, [](ThreadCommunicator& ranks) {
      check_all<double>(ranks);
      check_all<float>(ranks);
      check_all<bf16>(ranks);
      check_all<fp16>(ranks);
    });
  }
}

TEST_CASE("large logits neither overflow nor lose their differences") {
  for (const int size : rank_counts) {
    run_ranks(size, [](ThreadCommunicator& ranks) {
      check_large<Invariant>(ranks);
      check_large<Feature>(ranks);
      check_large<Batch>(ranks);
    });
  }
}

namespace {

/// Cross-entropy of one row after the other, with each class as the label.
template <Layout L, Real T, Communicator C>
void check_far(C& ranks) {
  const witness::Values far("far/far_cross_entropy");
  const std::size_t rows = far.shape("x")[0], classes = far.shape("x")[1];
  const Shape row_of{{Axis::batch, 1}, {Axis::feature, classes}};
  Tensor<std::int32_t, Invariant> label(row_of.without_back(), place_of(ranks));
  for (const double smoothing : {0.0, 0.1}) {
    for (std::size_t at = 0; at < rows * classes; ++at) {
      const std::size_t row = at / classes;
      label[0] = static_cast<std::int32_t>(at % classes);
      const std::string key = std::to_string(label[0]) + (smoothing > 0 ? "_smooth" : "");
      INFO("row " << row << " with label " << key << " as " << layout_name<L>() << " in "
                  << std::string(name(dtype_v<T>)) << " at " << ranks.size());
      const auto logits = far["x"].subspan(row * classes, classes);
      const auto result = loss_of<L, T>(ranks, CrossEntropy{smoothing}, row_of,
                                        {logits.begin(), logits.end()}, label.view());
      CHECK(is_as_expected(result.loss, far[key + "/losses"][row], 100 * rounding<T>));
      for (std::size_t k = 0; k < classes; ++k) {
        const double expected = far[key + "/gradient"][row * classes + k];
        CHECK(is_as_expected(result.gradient[k], expected, rounding<T>));
      }
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("logits of infinity and NaN have PyTorch's losses and gradients", T, float,
                   double, bf16, fp16) {
  for (const int size : {1, 2, 4}) {
    run_ranks(size, [](ThreadCommunicator& ranks) {
      check_far<Invariant, T>(ranks);
      check_far<Feature, T>(ranks);
    });
  }
}

TEST_CASE("all ranks have the loss of one, and send what it declares") {
  const auto check = [](const auto& report) { CHECK_MESSAGE(report.passed(), report.text()); };
  const auto labels = made_labels(Shape{plain[0]}, {}, 10);
  check(check_loss<Invariant, Feature, Batch>(CrossEntropy{}, plain, labels));
  check(check_loss<Feature>(CrossEntropy{0.1}, plain, labels));
  check(check_loss<Batch>(MaskedCrossEntropy{}, plain, labels, {.two_batches = false}));
  // Two classes over four and eight ranks have empty shards, and large differences.
  const Shape narrow{{Axis::batch, 3}, {Axis::feature, 2}};
  check(check_loss<Feature>(CrossEntropy{0.5}, narrow, made_labels(Shape{narrow[0]}, {}, 2),
                            {.lowest = -1000, .highest = 1000}));
}

TEST_CASE("every rank gets the same bits") {
  for (const int size : {2, 3, 8}) {
    run_ranks(size, [](ThreadCommunicator& ranks) {
      const auto labels = made_labels(Shape{plain[0]}, place_of(ranks), 10);
      const auto target = tensor_of<float>(plain, place_of(ranks), made(6, 60));
      const double numbers[] = {
          loss_of<Feature, float>(ranks, CrossEntropy{0.1}, plain, made(7, 60), labels.view()).loss,
          loss_of<Batch, float>(ranks, CrossEntropy{}, plain, made(7, 60), labels.view()).loss,
          loss_of<Batch, float>(ranks, MeanSquaredError{}, plain, made(7, 60), target.view()).loss};
      double first[] = {numbers[0], numbers[1], numbers[2]};
      ranks.broadcast(std::span<double>(first), 0);
      for (int i = 0; i < 3; ++i) CHECK(numbers[i] == first[i]);
    });
  }
}

TEST_CASE("a NaN on one rank makes the loss NaN on all") {
  run_ranks(3, [](ThreadCommunicator& ranks) {
    auto logits = made(7, 60);
    logits[59] = std::numeric_limits<double>::quiet_NaN();
    const auto labels = made_labels(Shape{plain[0]}, place_of(ranks), 10);
    const auto target = tensor_of<double>(plain, place_of(ranks), made(6, 60));
    const CrossEntropy entropy;
    const MeanSquaredError squares;
    CHECK(std::isnan(loss_of<Feature, double>(ranks, entropy, plain, logits, labels.view()).loss));
    CHECK(std::isnan(loss_of<Batch, double>(ranks, entropy, plain, logits, labels.view()).loss));
    CHECK(std::isnan(loss_of<Feature, double>(ranks, squares, plain, logits, target.view()).loss));
  });
}

TEST_CASE("a label that is no class is refused on every rank, and nothing is sent") {
  for (const std::int32_t wrong : {-1, 10}) {
    run_ranks(3, [&](ThreadCommunicator& inner) {
      CountingCommunicator ranks(inner);
      auto labels = made_labels(Shape{plain[0]}, place_of(ranks), 10);
      labels[4] = wrong;
      const auto refused = [&](auto layout) {
        using L = decltype(layout);
        const std::string said = message_of<argument_error>([&] {
          using Ctx = Context<float, Reference, decltype(ranks)>;
          Reference backend;
          Run<Ctx> run{ranks, ranks, backend};
          Tensor<float, L> logits(plain, place_of(ranks));
          Tensor<float, L> gradient(plain, place_of(ranks));
          if (gradient.size() > 0) gradient[0] = 7;
          const CrossEntropy loss;
          LossFrame<Ctx, CrossEntropy::exchanges<L>> frame(run, loss.exchange_shapes<L>(plain), {});
          try {
            loss(frame, View<const float, L>(logits.view()), labels.view(), gradient.view());
          } catch (...) {
            CHECK((gradient.size() == 0 || gradient[0] == 7));
            throw;
          }
        });
        check_mentions(said, {"label " + std::to_string(wrong) + " of row 4"});
        check_mentions(said, {"10 classes"});
      };
      refused(Invariant{});
      refused(Feature{});
      refused(Batch{});
      CHECK(ranks.log().empty());
    });
  }
}

TEST_CASE("empty batches, shapes that do not meet and impossible options are refused") {
  SingleRank alone;
  const Shape empty{{Axis::batch, 0}, {Axis::feature, 10}};
  Tensor<std::int32_t, Invariant> none(Shape{{Axis::batch, 0}});
  Tensor<double, Invariant> no_target(empty);
  const auto labels = made_labels(Shape{plain[0]}, {}, 10);
  const auto target = tensor_of<double>(square, {}, made(6, 20));
  const CrossEntropy loss;
  CHECK_THROWS_AS((loss_of<Invariant, double>(alone, loss, empty, {}, none.view())),
                  argument_error);
  CHECK_THROWS_AS((loss_of<Batch, double>(alone, MeanSquaredError{}, empty, {}, no_target.view())),
                  argument_error);
  check_mentions(message_of<shape_error>([&] {
                   loss_of<Invariant, double>(alone, MeanSquaredError{}, plain, made(5, 60),
                                              target.view());
                 }),
                 {"[batch 4, feature 5]"});
  check_mentions(message_of<shape_error>([&] {
                   loss_of<Invariant, double>(alone, loss, square, made(5, 20), labels.view());
                 }),
                 {"[batch 6]"});
  for (const double smoothing : {-0.1, 1.1, std::nan("")}) {
    const CrossEntropy impossible{smoothing};
    CHECK_THROWS_AS(
        (loss_of<Invariant, double>(alone, impossible, plain, made(7, 60), labels.view())),
        argument_error);
  }
}

TEST_CASE("the plan of a loss is known to the compiler") {
  static_assert(
      plan_loss<Invariant>(CrossEntropy{}, Shape{{Axis::batch, 64}, {Axis::feature, 10}}) ==
      CollectiveList{});
  static_assert(plan_loss<Feature>(CrossEntropy{}, Shape{{Axis::batch, 64}, {Axis::feature, 10}}) ==
                CollectiveList{all_reduce(64), all_reduce(128)});
  static_assert(plan_loss<Feature>(CrossEntropy{0.1}, Shape{{Axis::batch, 64}, {Axis::feature, 10}},
                                   Dtype::bfloat16) ==
                CollectiveList{all_reduce(64), all_reduce(192)});
  static_assert(plan_loss<Batch>(CrossEntropy{}, Shape{{Axis::batch, 64}, {Axis::feature, 10}},
                                 Dtype::float64) == CollectiveList{all_reduce(1, Dtype::float64)});
  static_assert(plan_loss<Feature>(MeanSquaredError{}, Shape{{Axis::feature, 10}}) ==
                CollectiveList{all_reduce(1, Dtype::float64)});
  constexpr Shape logits{{Axis::batch, 64}, {Axis::feature, 10}};
  constexpr Collective one = all_reduce(1, Dtype::float64);
  static_assert(plan_loss<Invariant>(MaskedCrossEntropy{}, logits) == CollectiveList{});
  static_assert(plan_loss<Feature>(MaskedCrossEntropy{}, logits) ==
                plan_loss<Feature>(CrossEntropy{}, logits));
  static_assert(plan_loss<Batch>(MaskedCrossEntropy{}, logits) == CollectiveList{one, one});
}
