// The linear layer between other layouts, with and without a bias, and by what it is used for.

#include <cstddef>

#include "ranks/layer_on_ranks.hpp"
#include "ranks/model_linear_cases.hpp"
#include "shardwise/layers/bias.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::check_all_linear;
using testing::check_linear;
using testing::Counted;

namespace {

using Whole = Ends<Invariant, Invariant>;
using Batch = Ends<Sharded<Axis::batch>, Sharded<Axis::batch>>;
using Sequence = Ends<Sharded<Axis::sequence>, Sharded<Axis::sequence>>;

/// Cases whose rows have an axis `sequence`.
template <class S>
void check_on_sequences() {
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 8})) {
    for (const std::size_t length : {0U, 1U, 5U, 8U}) {
      const testing::LinearCase c{
          "sequence", {{Axis::batch, 2}, {Axis::sequence, length}, {Axis::feature, 7}}, 5};
      check_linear<double, Counted, Sequence, TrainWithInputGradient>(
          Linear<S, dynamic, dynamic>(7, 5), ranks, c);
    }
  }
}

// A model that only goes forward has nothing of training.
template <class M>
concept Trains = requires(M& model, typename M::input_view x, typename M::output_gradient_view dy) {
  model.forward(x);
  model.backward(dy);
  model.settle_gradients();
  model.gradients();
};
template <class M>
concept HasGradients = requires(M& model) {
  model.gradients();
};
template <class Use>
using Bound = Model<Linear<split::none, 7, 5>, Context<float, Reference, SingleRank>, Whole, Use>;
static_assert(Trains<Bound<Train>> && Trains<Bound<TrainWithInputGradient>>);
static_assert(!Trains<Bound<ForwardOnly>> && !HasGradients<Bound<ForwardOnly>>);

}  // namespace

TEST_CASE("without a bias") {
  SUBCASE("not split") {
    check_all_linear<double, Counted, split::none, Whole, TrainWithInputGradient, false>();
  }
  SUBCASE("by output") {
    check_all_linear<double, Counted, split::output, Whole, TrainWithInputGradient, false>();
  }
  SUBCASE("by input") {
    check_all_linear<double, Counted, split::input, Whole, TrainWithInputGradient, false>();
  }
}

TEST_CASE("without the gradient of the input") {
  SUBCASE("not split") { check_all_linear<double, Counted, split::none, Whole, Train>(); }
  SUBCASE("by output") { check_all_linear<double, Counted, split::output, Whole, Train>(); }
  SUBCASE("by input") { check_all_linear<double, Counted, split::input, Whole, Train>(); }
}

TEST_CASE("forward only") {
  SUBCASE("not split") { check_all_linear<double, Counted, split::none, Whole, ForwardOnly>(); }
  SUBCASE("by output") { check_all_linear<double, Counted, split::output, Whole, ForwardOnly>(); }
  SUBCASE("by input") { check_all_linear<double, Counted, split::input, Whole, ForwardOnly>(); }
}

TEST_CASE("a batch over ranks, in uneven shares: gradients are summed once") {
  SUBCASE("not split") { check_all_linear<double, Counted, split::none, Batch>(); }
  SUBCASE("by output") { check_all_linear<double, Counted, split::output, Batch>(); }
  SUBCASE("by input") { check_all_linear<double, Counted, split::input, Batch>(); }
}

TEST_CASE("a sequence over ranks, in uneven shares") {
  SUBCASE("not split") { check_on_sequences<split::none>(); }
  SUBCASE("by output") { check_on_sequences<split::output>(); }
  SUBCASE("by input") { check_on_sequences<split::input>(); }
}

TEST_CASE("an input that is split already, an output that stays split") {
  SUBCASE("row") {
    check_all_linear<double, Counted, split::input, Ends<Sharded<Axis::feature>, Invariant>>();
  }
  SUBCASE("column") {
    check_all_linear<double, Counted, split::output, Ends<Invariant, Sharded<Axis::feature>>>();
  }
}

TEST_CASE("sizes in the type compute what sizes at construction do") {
  const testing::LinearCase c{"uneven", {{Axis::batch, 5}, {Axis::feature, 7}}, 5};
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 8})) {
    check_linear<double, Counted, Whole, TrainWithInputGradient>(Linear<split::none, 7, 5>{}, ranks,
                                                                 c);
    check_linear<double, Counted, Whole, TrainWithInputGradient>(ColumnParallelLinear<7, 5>{},
                                                                 ranks, c);
    check_linear<double, Counted, Whole, TrainWithInputGradient>(RowParallelLinear<dynamic, 5>(7),
                                                                 ranks, c);
  }
}

namespace {

/// y, dx and, over two batches, db of a Bias on integers, against their formulas.
template <class T>
void check_bias() {
  const Shape rows{{Axis::batch, 3}, {Axis::feature, 5}};
  const auto number = [](std::size_t i) { return static_cast<accumulate_t<T>>(i % 7) - 3; };
  SingleRank alone;
  Model<Bias<5>, Context<T, Reference, SingleRank>, Ends<Invariant, Invariant>,
        TrainWithInputGradient>
      model(alone, Seed{1});
  model.set("bias", testing::filled<T, Invariant>({{Axis::feature, 5}}, {}, number).view());
  const auto x = testing::filled<T, Invariant>(rows, {}, number);
  const auto y = model.forward(x.view());
  CHECK(testing::largest_difference_of_part(
            y, [&](std::size_t i) { return number(i) + number(i % 5); }) == 0);
  const auto dx = model.backward(x.view());
  CHECK(testing::largest_difference_of_part(dx, number) == 0);
  model.forward(x.view());
  model.backward(x.view());
  model.settle_gradients();
  CHECK(testing::largest_difference_of_part(
            model.gather_gradient("bias").view(),
            [&](std::size_t i) { return 2 * (number(i) + number(i + 5) + number(i + 10)); }) == 0);
}

template <Layout L>
void check_bias_on_ranks() {
  for (const std::size_t features : {8U, 7U, 2U}) {
    const Shape rows{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, features}};
    testing::check_on_ranks<L>(Bias<dynamic>(features), rows, testing::bit_by_bit);
  }
}

}  // namespace

TEST_CASE("a bias alone") {
  check_bias<double>();
  check_bias<float>();
  check_bias<bf16>();
  check_bias<fp16>();
  check_bias_on_ranks<Invariant>();
  check_bias_on_ranks<Sharded<Axis::feature>>();
  check_bias_on_ranks<Sharded<Axis::sequence>>();
  const auto refused = testing::message_of<shape_error>([] {
    Bias<4>{}.output_shape({{Axis::batch, 2}, {Axis::feature, 5}});
  });
  testing::check_mentions(refused, {"a Bias is added to rows of 4 features"});
}
