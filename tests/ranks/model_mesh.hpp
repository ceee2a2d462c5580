#pragma once
// Models on meshes for tests, and their inputs.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/thread_mesh.hpp"
#include "shardwise/observe/tracer.hpp"
#include "shardwise/redistribute/mesh.hpp"
#include "shardwise/shardwise.hpp"
#include "shardwise/testing/calls.hpp"
#include "shardwise/train/held_alike.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "witness/formula.hpp"

namespace testing::on_meshes {

using namespace shardwise;
using enum MeshAxis;

using Counting = CountingCommunicator<ThreadCommunicator>;
using Ranks = MeshRanks<Counting>;
using OnMesh = Context<double, Reference, Ranks, Tracer>;
using Numbers = std::vector<double>;
using Whole = SamplesOverMesh<Invariant>;

inline constexpr Kernel padded = kernel(3, {.padding = 1});

struct Convolutional
    : Sequential<Conv2d<split::output, 2, 6, padded>, BatchNorm<6>, Relu,
                 Conv2d<split::input, 6, 4, 2>, Relu, To<Sharded<Axis::height>>,
                 Conv2d<split::height, 4, 3, padded>, To<Invariant>, Flatten,
                 ColumnParallelLinear<3 * 4 * 3, 7>, Relu, RowParallelLinear<7, 5>> {};
struct Perceptron : Sequential<ColumnParallelLinear<6, 7>, Gelu, Dropout<1, 4>,
                               RowParallelLinear<7, 5>, Linear<split::none, 5, 5>> {};
using Network = Model<Convolutional, OnMesh>;
using Mlp =
    Model<Perceptron, OnMesh, Ends<Invariant, Sharded<Axis::feature>>, TrainWithInputGradient>;

inline const Shape images{
    {Axis::batch, 7}, {Axis::channel, 2}, {Axis::height, 5}, {Axis::width, 4}};
inline const Shape rows{{Axis::batch, 7}, {Axis::feature, 6}};

/// Of 7 samples; where there are more slices than samples, some are empty.
inline const std::vector<mesh> meshes{{.data = 2, .tensor = 2},
                                      {.data = 2, .tensor = 3},
                                      {.data = 3, .tensor = 2},
                                      {.data = 4, .tensor = 2},
                                      {.data = 8},
                                      {.data = 6, .tensor = 2},
                                      {.replica = 3, .data = 2},
                                      {.replica = 2, .data = 2, .tensor = 2},
                                      {.data = 3, .tensor = 4}};

/// Of samples of 5 tokens, which ranks along `context` cut; of 6 such ranks one has none.
inline const std::vector<mesh> contexts{{.context = 2},
                                        {.context = 3},
                                        {.context = 6},
                                        {.context = 4, .tensor = 2},
                                        {.context = 2, .tensor = 3},
                                        {.data = 2, .context = 2},
                                        {.replica = 2, .context = 3},
                                        {.data = 2, .context = 2, .tensor = 2}};

/// As run_mesh, with ranks that count their calls.
template <class F>
void on_mesh(const mesh& sizes, F&& f) {
  run_ranks(sizes.size(), [&](ThreadCommunicator& world) {
    Ranks ranks(Counting(world), sizes);
    f(ranks);
  });
}

/// The rank's part of a tensor with these elements.
template <class T, Layout L, class Element>
Tensor<T, L> filled(const Shape& shape, const MeshPlace& place, const Element& element) {
  return testing::filled<T, L>(shape, place_for<L>(place), element);
}

/// The rank's part of the made-up tensor with this number.
template <Layout L, class T = double>
Tensor<T, L> made(std::int64_t number, const Shape& shape, const MeshPlace& place) {
  return filled<T, L>(shape, place, [&](std::size_t i) {
    return detail::rounded<T>(witness::made(number, static_cast<std::int64_t>(i)));
  });
}

/// The labels of rows from `first` on.
inline Tensor<std::int32_t, Invariant> labels(std::size_t count, std::int64_t first,
                                              const MeshPlace& place) {
  Tensor<std::int32_t, Invariant> all({{Axis::batch, count}}, place_for<Invariant>(place));
  for (std::size_t row = 0; row < count; ++row)
    all[row] = witness::made_label(static_cast<std::int64_t>(row) + first, 5);
  return all;
}

/// Row `row` has class (7 row + 3 + step) mod 5, as in make_mesh.py.
inline Tensor<std::int32_t, Invariant> labels_of_step(std::int64_t step, const MeshPlace& place) {
  return labels(7, 3 * step, place);  // 7 * 3 is 1 modulo 5
}

/// The elements of a whole tensor, on every rank.
template <class V>
Numbers whole(Ranks& ranks, const V& view) {
  Tensor<double, Invariant> all(view.global(), place_for<Invariant>(ranks.place()));
  Pool pool;
  redistribute(ranks, pool, view, all.view());
  return Numbers(all.data(), all.data() + all.size());
}

inline void clear_calls(Ranks& ranks) {
  for (const MeshAxis axis : mesh_axes) ranks.along(axis).clear();
}

/// The numbers of calls and elements along each axis are those of the plan.
inline void check_counts(Ranks& ranks, const Plan& plan) {
  CollectiveList all;
  for (const CollectiveList* part :
       {&plan.forward, &plan.loss, &plan.backward, &plan.settle, &plan.finish, &plan.update})
    for (const Collective& one : *part) all.add(one);
  for (const MeshAxis axis : mesh_axes) {
    const std::vector<CountedCall> mine = ranks.along(axis).log();
    const auto planned = planned_calls<Counting>(all, ranks.sizes(), axis);
    if (ranks.sizes()[axis] == 1 && planned.empty()) continue;  // may share a group with another
    REQUIRE(mine.size() == planned.size());
    const auto counted = counted_calls(static_cast<Counting&>(ranks), mine);
    CHECK(difference_from_plan(name(axis), planned, counted) == "");
  }
}

/// Whether ranks with other samples hold the same bits.
template <class M>
bool replicas_are_equal(M& model, Ranks& ranks) {
  const auto values = model.values();
  Numbers largest(values.begin(), values.end()), smallest(largest);
  for (const MeshAxis axis : detail::sample_axes) {
    ranks.along(axis).all_reduce(std::span<const double>(largest), std::span(largest),
                                 Reduction::max);
    ranks.along(axis).all_reduce(std::span<const double>(smallest), std::span(smallest),
                                 Reduction::min);
  }
  compare_held(model);
  return largest == smallest;
}

/// All parameters, whole; a collective.
template <class M>
Numbers weights_of(M& model) {
  Numbers all;
  std::vector<std::string> names;
  model.visit_parameters([&](auto& one) { names.push_back(one.name); });
  for (const std::string& name : names) {
    const auto whole = model.gather(name);
    all.insert(all.end(), whole.data(), whole.data() + whole.size());
  }
  return all;
}

/// What some steps and a batch behind them come to.
struct Trained {
  Numbers losses{}, norms{}, weights{};
  Numbers slopes{};  ///< the gradient of an input
  double evaluated = 0;
  std::size_t correct = 0;
};

/// Equal, but for the rounding of sums over ranks.
inline void check_alike(const Trained& many, const Trained& one) {
  CHECK(largest_difference(many.losses, one.losses) < 1e-13);
  CHECK(largest_difference(many.norms, one.norms) < 1e-13);
  CHECK(largest_difference(many.weights, one.weights) < 1e-13);
  CHECK(largest_difference(many.slopes, one.slopes) < 1e-13);
  CHECK(many.evaluated == doctest::Approx(one.evaluated).epsilon(1e-13));
  CHECK(many.correct == one.correct);
}

/// What numbers_of(ranks) is on one rank.
template <class NumbersOf>
auto on_one_rank(NumbersOf numbers_of) {
  decltype(numbers_of(std::declval<Ranks&>())) one;
  on_mesh({}, [&](Ranks& ranks) { one = numbers_of(ranks); });
  return one;
}

/// On every mesh they are those of one rank, up to `bound`.
template <class NumbersOf>
void check_as_on_one_rank(NumbersOf numbers_of, double bound, const std::vector<mesh>& on) {
  const Numbers one = on_one_rank(numbers_of);
  CHECK(one.front() > 0.1);
  for (const mesh& sizes : on) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes,
            [&](Ranks& ranks) { CHECK(largest_difference(numbers_of(ranks), one) <= bound); });
  }
}

/// The losses of three steps of a model in the dtypes of P on the made-up inputs from `number` on.
template <class Net, class P, class E, Layout X>
Numbers losses_in(Ranks& ranks, const Shape& in, double rate) {
  using C = Context<P, Reference, Ranks>;
  Model<Net, C, E> model(Net{}, ranks, Seed{5}, in);
  Optimizer optimizer(model, Sgd{.learning_rate = rate});
  Numbers losses;
  for (std::int64_t n = 0; n < 3; ++n)
    losses.push_back(train_step(model, made<X, typename C::dtype>(30 + n, in, ranks.place()).view(),
                                labels(7, n, ranks.place()).view(), CrossEntropy{}, optimizer));
  return losses;
}

/// Losses and norms of gradients that tests/witness/make_mesh.py prints.
struct Learned {
  Numbers losses{5.5127910524724122, 3.5581513721954288, 3.9190451594373332};
  Numbers norms{19.709116423828554, 11.05829628133136, 14.608949518156443};
};

/// Three steps of a model of a network of that program, whose images lie as X.
template <Layout X, class M>
void check_learns_as_pytorch(M& model, const Learned& learned = {}) {
  Ranks& ranks = model.ranks();
  std::vector<std::pair<std::string, Shape>> parameters;
  model.visit_parameters([&](auto& one) { parameters.emplace_back(one.name, one.spec.shape); });
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto whole =
        made<Invariant>(static_cast<std::int64_t>(i) + 1, parameters[i].second, ranks.place());
    for (std::size_t k = 0; k < whole.size(); ++k) whole[k] /= 2;
    model.set(parameters[i].first, whole.view());
  }
  Optimizer optimizer(model, Sgd{.learning_rate = 0.05, .momentum = 0.9});
  const CrossEntropy loss{.label_smoothing = 0.1};
  Numbers losses, norms;
  for (std::int64_t step = 0; step < 3; ++step) {
    const auto x = made<X>(20 + step, images, ranks.place());
    clear_calls(ranks);
    Step one(optimizer, 7, {.clip_norm = 0.5});
    losses.push_back(one.add(x.view(), labels_of_step(step, ranks.place()).view(), loss));
    norms.push_back(*one.finish().norm);
    check_counts(ranks, plan_step(model, images, loss, {.clip_norm = 0.5}));
  }
  CHECK(largest_difference(losses, learned.losses) < 1e-13);
  CHECK(largest_difference(norms, learned.norms) < 1e-12);
}

}  // namespace testing::on_meshes
