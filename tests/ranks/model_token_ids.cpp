// A model whose first input is token ids, and whose second one is features, at 1 to 8 ranks against
// its formula: y = (E[id] + x Aᵀ + a) Bᵀ + b.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "ranks/model_linear_cases.hpp"
#include "ranks/model_observe.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/composition.hpp"
#include "shardwise/model/sum.hpp"
#include "support/filled.hpp"

using namespace shardwise;
using testing::Data;
using testing::Whole;

namespace {

constexpr std::size_t rows = 5, ids = 11, wide = 6;

/// Row id of a table for each id, as a user would write it. It takes ids as they lie, or whole.
template <bool TakesWhole>
struct Lookup {
  static constexpr Saves saves = Saves::input;
  using input_element = std::int32_t;

  template <Layout Wanted>
  using desired_input_layout = std::conditional_t<TakesWhole, Invariant, Wanted>;
  template <Layout Offered, Layout>
  using input_layout = std::conditional_t<TakesWhole, Invariant, Offered>;
  template <Layout In>
  using output_layout = In;
  template <Layout In>
  using parameters = std::tuple<
      ParameterUse<Invariant, std::conditional_t<ShardedLayout<In>, Replicated, Invariant>>>;

  constexpr auto parameter_specs(const Shape&) const {
    return std::array{ParameterSpec{"weight", {{Axis::output, ids}, {Axis::feature, wide}}}};
  }
  constexpr Shape output_shape(Shape in) const {
    in.append({Axis::feature, wide});
    return in;
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    const auto [table] = frame.parameters();
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = table[static_cast<std::size_t>(x[i / wide]) * wide + i % wide];
  }
  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, X x, DY dy, DX) const {
    const auto [gradient] = frame.gradients();
    if (frame.write() == Write::replace) std::fill_n(gradient.data(), ids * wide, 0);
    for (std::size_t i = 0; i < dy.size(); ++i)
      gradient[static_cast<std::size_t>(x[i / wide]) * wide + i % wide] += dy[i];
  }
};

/// Its table is a Lookup or an Embedding.
template <class Table>
struct Net : Graph<2, At<Table, 0>, At<Linear<split::none, 3, wide>, 1>, At<Sum, 2, 3>,
                   At<RowParallelLinear<wide, 4>, 4>> {};

/// The same with a Graph inside, which reads the inputs in the other order.
template <class Table>
struct Inside : Graph<2, At<Table, 1>, At<Linear<split::none, 3, wide>, 0>, At<Sum, 2, 3>> {};
template <class Table>
struct Around : Graph<2, At<Inside<Table>, 1, 0>, At<RowParallelLinear<wide, 4>, 2>> {};

using Batch = Sharded<Axis::batch>;
template <class Ids, class Features>
using InAndOut = Ends<Layouts<Ids, Features>, Invariant>;

constexpr Shape id_shape{{Axis::batch, rows}};
constexpr std::array shapes{id_shape, Shape{{Axis::batch, rows}, {Axis::feature, 3}}};

std::int32_t id_of(std::size_t row) { return static_cast<std::int32_t>((7 * row + 3) % 4); }

struct Expected {
  Whole y, dx, dtable = Whole(ids * wide);
};

Whole number(std::uint64_t n, std::size_t count) {
  return testing::elements(Data::integers, n, count);
}

Expected by_formula() {
  const auto parameter = [](std::size_t i, std::size_t count) {
    return number(testing::number_of_parameter(i), count);
  };
  const Whole table = parameter(0, ids * wide);
  const testing::LinearFormula features{rows, 3, wide, parameter(1, wide * 3), parameter(2, wide)};
  const testing::LinearFormula last{rows, wide, 4, parameter(3, 4 * wide), parameter(4, 4)};
  Expected expected;
  Whole h = features.output(number(10, rows * 3));
  for (std::size_t i = 0; i < h.size(); ++i)
    h[i] += table[static_cast<std::size_t>(id_of(i / wide)) * wide + i % wide];
  expected.y = last.output(h);
  const Whole dh = last.input_gradient(number(20, rows * 4));
  expected.dx = features.input_gradient(dh);
  for (std::size_t i = 0; i < dh.size(); ++i)
    expected.dtable[static_cast<std::size_t>(id_of(i / wide)) * wide + i % wide] += dh[i];
  return expected;
}

template <class Network, class E>
testing::Observed run(int ranks, const char* table) {
  testing::Recorder recorder(ranks);
  testing::on_ranks<testing::Counted>(ranks, [&](testing::Counted& c) {
    using Ids = detail::nth_layout_t<typename E::offered, 0>;
    using Features = detail::nth_layout_t<typename E::offered, 1>;
    Model<Network, Context<double, Reference, testing::Counted>, E, TrainWithGradientOf<1>> model(
        Network{}, c, Seed{1}, shapes);
    testing::set_parameters(model, Data::integers);
    recorder.put_calls("set", c);
    recorder.with([&](testing::Observed& o) { o.plan = model.plan(shapes); });
    const auto words = testing::filled<std::int32_t, Ids>(id_shape, place_of(c), id_of);
    const auto x = testing::part_of<double, Features>(number(10, rows * 3), shapes[1], place_of(c));
    const auto y = model.forward({words.view(), x.view()});
    recorder.put_calls("forward", c);
    recorder.put("y", y);
    const auto dy =
        testing::part_of<double, Invariant>(number(20, y.size()), y.global(), place_of(c));
    const auto [none, dx] = model.backward(dy.view());
    static_assert(std::same_as<decltype(none), const Nothing>);
    recorder.put_calls("backward", c);
    recorder.put("dx", dx);
    model.settle_gradients();
    recorder.put_calls("settle", c);
    recorder.put("dtable", model.gather_gradient(table).view());
  });
  return recorder.take();
}

template <class Network, class E>
void check_network(const char* table) {
  const Expected expected = by_formula();
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    const testing::Observed seen = run<Network, E>(ranks, table);
    CHECK(seen["y"] == expected.y);
    CHECK(seen["dx"] == expected.dx);
    CHECK(seen["dtable"] == expected.dtable);
    CHECK(seen.copies_are_equal);
    CHECK(difference_from_plan(seen) == "");
  }
}

template <class Table, class E>
void check() {
  check_network<Net<Table>, E>("0.weight");
}

/// Whether the ids are gathered as what they are, first of all.
template <class Table, class E>
constexpr bool gathers_ids = plan_of<E, Train>(Net<Table>{}, 4, shapes).forward[0] ==
                             all_gather(rows, Dtype::int32);

}  // namespace

TEST_CASE("token ids beside features, whole on each rank") {
  check<Lookup<false>, InAndOut<Invariant, Invariant>>();
}
TEST_CASE("token ids and features, rows split") { check<Lookup<false>, InAndOut<Batch, Batch>>(); }
TEST_CASE("token ids that are gathered are gathered as integers") {
  check<Lookup<true>, InAndOut<Batch, Invariant>>();
  CHECK(gathers_ids<Lookup<true>, InAndOut<Batch, Invariant>>);
  CHECK(!gathers_ids<Lookup<false>, InAndOut<Batch, Batch>>);
}
TEST_CASE_TEMPLATE("an embedding beside features", Split, split::output, split::input,
                   split::none) {
  check<Embedding<ids, wide, Split>, InAndOut<Invariant, Invariant>>();
  check<Embedding<ids, wide, Split>, InAndOut<Batch, Batch>>();
  check<Embedding<ids, wide, Split>, InAndOut<Replicated, Batch>>();
}
TEST_CASE("token ids and features that a Graph in another reads in the other order") {
  check_network<Around<Lookup<true>>, InAndOut<Batch, Invariant>>("0.0.weight");
}
