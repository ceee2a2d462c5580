// A product that saves an activation's input and multiplies by its slope gives the bits of both
// done apart, and does so wherever nothing moves between the two.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "support/seed.hpp"
#include "support/slope_loops.hpp"

using namespace shardwise;
using testing::Counted;
using testing::Data;
using testing::Observed;
using testing::SlopesDone;
using testing::Sloping;
using testing::Workload;

namespace {

using Whole = Ends<Invariant, Invariant>;
using Batch = Sharded<Axis::batch>;
using Column = ColumnParallelLinear<dynamic, dynamic>;
using Row = RowParallelLinear<dynamic, dynamic>;
using Unsplit = Linear<split::none, dynamic, dynamic>;
using NoBias = Linear<split::none, dynamic, dynamic, false>;

struct Sizes {
  std::size_t batch, in, wide, out;
};

/// SHARDWISE_TEST_SEED of this run.
unsigned first_seed() {
  static const unsigned seed = testing::seed();
  return seed;
}

/// How often a pass through a model saves z, and multiplies by a slope.
struct Expected {
  int saved, multiplied;
};

/// The same run with and without slopes of products: all tensors, and all calls, are the same.
template <class T, class E, class Use, class C, class M>
void same_bits(const M& model, int ranks, const Shape& in, Expected expected) {
  const Workload work{in, Data::reals, true, 3, 2};
  CAPTURE(ranks);
  const Observed apart = testing::observe<M, T, C, E, Use>(model, ranks, work);
  SlopesDone::saved = 0;
  SlopesDone::multiplied = 0;
  const Observed fused = testing::observe<M, T, C, E, Use, Sloping>(model, ranks, work);
  const int passes = ranks * work.passes * work.steps;
  CHECK(SlopesDone::saved == passes * expected.saved);
  CHECK(SlopesDone::multiplied == passes * expected.multiplied);
  REQUIRE(fused.tensors.size() == apart.tensors.size());
  for (const auto& tensor : apart.tensors) {
    CAPTURE(tensor.first);
    CHECK(fused[tensor.first] == tensor.second);
  }
  CHECK(fused.calls == apart.calls);
  CHECK(fused.copies_are_equal);
}

Shape input_of(const Sizes& sizes) {
  return {{Axis::batch, sizes.batch}, {Axis::feature, sizes.in}};
}

template <class T, class E = Whole, class Use = TrainWithInputGradient, class M>
void check_on_threads(const M& model, const Sizes& sizes, Expected expected) {
  CAPTURE(to_string(input_of(sizes)));
  CAPTURE(first_seed());
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8})
    same_bits<T, E, Use, Counted>(model, ranks, input_of(sizes), expected);
}

/// On thread ranks, and on one rank by its type, where nothing moves anywhere.
template <class T, class E = Whole, class Use = TrainWithInputGradient, class M>
void check(const M& model, const Sizes& sizes, Expected expected, Expected alone) {
  check_on_threads<T, E, Use>(model, sizes, expected);
  same_bits<T, E, Use, SingleRank>(model, 1, input_of(sizes), alone);
}
template <class T, class E = Whole, class Use = TrainWithInputGradient, class M>
void check(const M& model, const Sizes& sizes, Expected expected) {
  check<T, E, Use>(model, sizes, expected, expected);
}

constexpr Sizes uneven{5, 7, 11, 3};
constexpr Sizes few{2, 3, 2, 1};  // shards are empty
constexpr Sizes no_samples{0, 7, 11, 3};

Sizes random_sizes() {
  static std::mt19937 numbers(first_seed());
  const auto size = [](std::size_t least) { return least + numbers() % 17; };
  return {size(0), size(1), size(1), size(1)};
}

template <class... Ls>
struct Chain : Sequential<Ls...> {
  using Sequential<Ls...>::Sequential;
};

template <class F>
auto perceptron(const Sizes& s) {
  return Chain<Column, F, Row>(Column(s.in, s.wide), F{}, Row(s.wide, s.out));
}

// Of a type derived from a layer nobody knows what it does.
struct Derived : Row {
  using Row::Row;
};
template <class... Ls>
using LastOf =
    detail::Fusion<Sequential<Ls...>, Setting<Context<float, Sloping, SingleRank>, Train>, Whole,
                   sizeof...(Ls) - 1>;
static_assert(LastOf<Column, GeluTanh, Row>::takes_slope);
static_assert(!LastOf<Column, GeluTanh, Derived>::takes_slope);

}  // namespace

TEST_CASE_TEMPLATE("a perceptron in every dtype", T, float, double, bf16, fp16) {
  for (const Sizes& sizes : {uneven, few, no_samples, random_sizes()})
    check_on_threads<T>(perceptron<GeluTanh>(sizes), sizes, {1, 1});
}

TEST_CASE("activations whose slope the kernel lacks, or that need no input") {
  check<float>(perceptron<Gelu>(uneven), uneven, {0, 0});
  check<float>(perceptron<Relu>(uneven), uneven, {0, 0});
  check<float>(perceptron<Silu>(uneven), uneven, {1, 1});
}

TEST_CASE("layers that are not split, on whole tensors and on rows of ranks") {
  const auto model_of = [](const Sizes& s) {
    return Chain<Unsplit, GeluTanh, NoBias, Silu, Unsplit>(
        Unsplit(s.in, s.wide), GeluTanh{}, NoBias(s.wide, s.wide), Silu{}, Unsplit(s.wide, s.out));
  };
  for (const Sizes& sizes : {uneven, few, random_sizes()}) {
    check_on_threads<double>(model_of(sizes), sizes, {2, 2});
    check_on_threads<bf16, Ends<Batch, Batch>, Train>(model_of(sizes), sizes, {2, 2});
  }
}

TEST_CASE("what moves behind the first layer, or in front of the last one") {
  const Sizes s = random_sizes();
  // Sums of ranks, which come back as a reduction.
  check<float>(Chain<Row, GeluTanh, Column>(Row(s.in, s.wide), GeluTanh{}, Column(s.wide, s.out)),
               s, {0, 0}, {0, 1});
  // Sums of ranks that are scattered, and gathered behind the slope.
  check<float>(Chain<Row, GeluTanh, Row>(Row(s.in, s.wide), GeluTanh{}, Row(s.wide, s.out)), s,
               {0, 1});
  check<float>(Chain<Row, Silu, Unsplit>(Row(s.in, s.wide), Silu{}, Unsplit(s.wide, s.out)), s,
               {0, 1});
  check<float>(Chain<Column, GeluTanh, To<Invariant>, Unsplit>(Column(s.in, s.wide), GeluTanh{}, {},
                                                               Unsplit(s.wide, s.out)),
               s, {1, 0});
  check<float>(Chain<Column, To<Invariant>, GeluTanh, Unsplit>(Column(s.in, s.wide), {}, GeluTanh{},
                                                               Unsplit(s.wide, s.out)),
               s, {0, 1});
}

TEST_CASE("two activations in a row, and one at either end") {
  const Sizes s = random_sizes();
  check<float>(Chain<Column, GeluTanh, Silu, Row>(Column(s.in, s.wide), GeluTanh{}, Silu{},
                                                  Row(s.wide, s.out)),
               s, {1, 1});
  check<float>(
      Chain<Column, Silu, Dropout<1, 4>, Row>(Column(s.in, s.wide), Silu{}, {}, Row(s.wide, s.out)),
      s, {1, 0});
  const Chain<GeluTanh, Unsplit, GeluTanh> ends(GeluTanh{}, Unsplit(s.in, s.out), GeluTanh{});
  check<float>(ends, s, {1, 1});
  check<float, Whole, Train>(ends, s, {1, 0});
  check<float, Whole, ForwardOnly>(ends, s, {0, 0});
}

TEST_CASE("residual and repeated blocks") {
  using Inner = Chain<Column, GeluTanh, Row>;
  const auto model_of = [](const Sizes& s) {
    const Inner inner(Column(s.wide, s.out), GeluTanh{}, Row(s.out, s.wide));
    using Repeated = Repeat<3, Residual<Inner>>;
    return Chain<Unsplit, Repeated, Silu, Unsplit>(
        Unsplit(s.in, s.wide), Repeated(Residual<Inner>(inner)), Silu{}, Unsplit(s.wide, s.out));
  };
  for (const Sizes& sizes : {uneven, few, random_sizes()})
    check_on_threads<double>(model_of(sizes), sizes, {3, 4});
}

TEST_CASE("an evaluation and another batch leave nothing behind") {
  const Sizes sizes = uneven;
  const auto run = [&]<class B>(B) {
    SingleRank alone;
    const auto architecture = perceptron<GeluTanh>(sizes);
    const Shape in{{Axis::batch, sizes.batch}, {Axis::feature, sizes.in}};
    Model<std::remove_const_t<decltype(architecture)>, Context<float, B, SingleRank>, Whole,
          TrainWithInputGradient>
        model(architecture, alone, Seed{4}, in);
    const auto x = [&](std::uint64_t number, std::size_t rows) {
      const Shape shape{{Axis::batch, rows}, {Axis::feature, sizes.in}};
      return testing::part_of<float, Invariant>(
          testing::elements(Data::reals, number, shape.elements()), shape, {});
    };
    std::vector<float> numbers;
    const auto note = [&](const auto& view) {
      numbers.insert(numbers.end(), view.data(), view.data() + view.size());
    };
    const auto first = x(1, 5), other = x(2, 9), last = x(3, 4);
    model.forward(first.view());
    note(model.evaluate(other.view()));
    const auto y = model.forward(last.view());
    CHECK_THROWS_AS((model.evaluate(other.view()), model.backward(y)), argument_error);
    const Tensor<float, Invariant> dy = model.to_host(model.forward(last.view()));
    note(model.backward(dy.view()));
    model.settle_gradients();
    note(View<const float, Invariant>(model.gradients().data(),
                                      {{Axis::feature, model.gradients().size()}}, {}));
    return numbers;
  };
  SlopesDone::saved = 0;
  const std::vector<float> apart = run(Reference{});
  CHECK(SlopesDone::saved == 0);
  CHECK(run(Sloping{}) == apart);
  CHECK(SlopesDone::saved == 3);
}
