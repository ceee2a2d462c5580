// Redistributions over the axes of a mesh: the laws for every pair of layouts over two mesh axes,
// against an oracle that applies the meaning of a layout along one axis after another.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/comm/thread_mesh.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/redistribute/mesh.hpp"
#include "support/messages.hpp"
#include "support/oracle.hpp"

using namespace shardwise;

using testing::check_mentions;
using testing::Meaning;
using testing::PerRank;
using testing::Values;
using enum MeshAxis;

namespace {

using Ranks = MeshRanks<ThreadCommunicator>;
using detail::LayoutValue;
using detail::MeshLayoutValue;

// The oracle. Ranks are numbered with `tensor` innermost.

Meaning meaning_of(const LayoutValue& layout) {
  using enum LayoutValue::Kind;
  constexpr Meaning::Kind kinds[] = {Meaning::Kind::once, Meaning::Kind::same, Meaning::Kind::sum,
                                     Meaning::Kind::block};
  return {kinds[static_cast<std::size_t>(layout.kind)], layout.axis, {}};
}

Shape part_of(const Meaning& layout, Shape shape, Place place) {
  if (layout.kind != Meaning::Kind::block) return shape;
  Dim& dim = shape[shape.find(layout.axis)];
  const std::vector<std::size_t> owner = testing::owners_of_units(dim.units, place.size);
  dim.units = 0;
  for (const std::size_t rank : owner) dim.units += rank == static_cast<std::size_t>(place.rank);
  return shape;
}

/// The parts of all ranks along the mesh axes from `outermost` on.
PerRank lay_out(const MeshLayoutValue& layout, const mesh& sizes, const Shape& shape,
                const Values& value, std::size_t outermost = 0, std::uint64_t seed = 1) {
  if (outermost == mesh_axes.size()) return {value};
  const MeshAxis axis = mesh_axes[outermost];
  const Meaning along = meaning_of(layout[axis]);
  const PerRank parts = testing::lay_out(along, shape, sizes[axis], value, 1000 * seed);
  PerRank held;
  for (int rank = 0; rank < sizes[axis]; ++rank)
    for (Values& part : lay_out(layout, sizes, part_of(along, shape, {rank, sizes[axis]}),
                                parts[static_cast<std::size_t>(rank)], outermost + 1,
                                10 * seed + static_cast<std::uint64_t>(rank)))
      held.push_back(std::move(part));
  return held;
}

/// The tensor of which the ranks hold these parts; none if they contradict each other.
std::optional<Values> tensor_of(const MeshLayoutValue& layout, const mesh& sizes,
                                const Shape& shape, std::span<const Values> held,
                                std::size_t outermost = 0) {
  if (outermost == mesh_axes.size())
    return held[0].size() == shape.elements() ? std::optional(held[0]) : std::nullopt;
  const MeshAxis axis = mesh_axes[outermost];
  const Meaning along = meaning_of(layout[axis]);
  const auto count = static_cast<std::size_t>(sizes[axis]);
  PerRank parts;
  for (int rank = 0; rank < sizes[axis]; ++rank) {
    const std::size_t each = held.size() / count;
    const std::optional<Values> part =
        tensor_of(layout, sizes, part_of(along, shape, {rank, sizes[axis]}),
                  held.subspan(static_cast<std::size_t>(rank) * each, each), outermost + 1);
    if (!part) return std::nullopt;
    parts.push_back(*part);
  }
  Values tensor = parts[0];
  if (along.kind == Meaning::Kind::sum) {
    for (std::size_t rank = 1; rank < count; ++rank)
      for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] += parts[rank][i];
  } else if (along.kind == Meaning::Kind::block) {
    const std::vector<std::size_t> owner = testing::owners(shape, along.axis, sizes[axis]);
    std::vector<std::size_t> used(count);
    tensor.resize(owner.size());
    for (std::size_t i = 0; i < owner.size(); ++i) tensor[i] = parts[owner[i]][used[owner[i]]++];
  } else {
    for (const Values& part : parts)
      if (part != tensor) return std::nullopt;
  }
  return tensor;
}

/// The inner product on the global tensor: a rank counts if it is the first along each mesh axis
/// along which the tensor is Invariant.
double inner_product(const MeshLayoutValue& layout, const mesh& sizes, const PerRank& a,
                     const PerRank& b) {
  double sum = 0;
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    const MeshPlace place = place_in(sizes, static_cast<int>(rank));
    bool counts = true;
    for (const MeshAxis axis : mesh_axes)
      counts &= layout[axis].kind != LayoutValue::Kind::invariant || place[axis].rank == 0;
    if (!counts) continue;
    REQUIRE(a[rank].size() == b[rank].size());
    for (std::size_t i = 0; i < a[rank].size(); ++i) sum += double{a[rank][i]} * b[rank][i];
  }
  return sum;
}

// The library, by values: only the steps along one axis are compiled for each pair of layouts.

template <class... Ls>
struct List {
  static constexpr std::size_t size = sizeof...(Ls);
  static constexpr std::array<LayoutValue, size> values{detail::layout_value<Ls>...};
  static constexpr std::array<LayoutValue, size> duals{detail::layout_value<dual_t<Ls>>...};
};
using Plain = List<Invariant, Replicated, Partial, Sharded<Axis::batch>, Sharded<Axis::feature>>;

template <class T>
using Change = detail::MeshRedistribution<detail::NoBackend, Ranks, T>;
template <class T>
using Table = std::array<std::array<typename Change<T>::Step, Plain::size>, Plain::size>;

template <class T, class From, class To>
constexpr typename Change<T>::Step step_of() {
  if constexpr (redistributable<From, To>) {
    return detail::run_axis_step<From, To, detail::NoBackend, ThreadCommunicator, T>;
  } else {
    return nullptr;
  }
}
template <class T, class... Ls>
constexpr Table<T> table_of(List<Ls...>) {
  const auto row = []<class From>(std::type_identity<From>) {
    return std::array<typename Change<T>::Step, Plain::size>{step_of<T, From, Ls>()...};
  };
  return {row(std::type_identity<Ls>{})...};
}

std::size_t number_of(const LayoutValue& layout) {
  std::size_t number = 0;
  while (!(Plain::values[number] == layout)) ++number;
  return number;
}

template <class T>
Change<T> change_of(const MeshLayoutValue& from, const MeshLayoutValue& to) {
  static constexpr Table<T> table = table_of<T>(Plain{});
  Change<T> change{from, to, detail::steps_of(from, to)};
  for (const MeshAxis axis : mesh_axes)
    change.run[static_cast<std::size_t>(axis)] = table[number_of(from[axis])][number_of(to[axis])];
  return change;
}

/// The two steps of a pair in the opposite order; none if it has not two, or if one waits for the
/// other.
std::optional<detail::MeshSteps> other_order(const MeshLayoutValue& from,
                                             const MeshLayoutValue& to) {
  const detail::MeshSteps steps = detail::steps_of(from, to);
  if (steps.size() != 2) return std::nullopt;
  const MeshAxis first = *steps.begin();
  const MeshAxis second = *(steps.begin() + 1);
  if (detail::MeshChange{from, to}.must_wait(second, first)) return std::nullopt;
  detail::MeshSteps other;
  other.add(second);
  other.add(first);
  return other;
}

/// From and to, as numbers of layouts.
struct Pair {
  std::size_t from, to;
  friend bool operator==(const Pair&, const Pair&) = default;
};

/// Layouts, and pairs of them that have a redistribution, each with its adjoint among them.
struct Pairs {
  std::vector<MeshLayoutValue> layouts;
  std::vector<Pair> pairs;

  bool exists(const Pair& pair) const {
    return detail::exists(layouts[pair.from], layouts[pair.to]);
  }
  std::size_t dual(std::size_t layout) const {
    MeshLayoutValue result = layouts[layout];
    for (const MeshAxis axis : mesh_axes) result[axis] = Plain::duals[number_of(result[axis])];
    return static_cast<std::size_t>(std::find(layouts.begin(), layouts.end(), result) -
                                    layouts.begin());
  }
  std::size_t adjoint(const Pair& pair) const {
    const Pair wanted{dual(pair.to), dual(pair.from)};
    return static_cast<std::size_t>(std::find(pairs.begin(), pairs.end(), wanted) - pairs.begin());
  }
  std::string name(const Pair& pair) const {
    return to_string(layouts[pair.from]) + " -> " + to_string(layouts[pair.to]);
  }
};

/// All layouts along these mesh axes, each of them of `Plain`, and no pair.
Pairs layouts_over(std::initializer_list<MeshAxis> axes) {
  Pairs result{std::vector<MeshLayoutValue>(1), {}};
  for (const MeshAxis axis : axes) {
    std::vector<MeshLayoutValue> more;
    for (const MeshLayoutValue& layout : result.layouts)
      for (const LayoutValue& along : Plain::values) {
        more.push_back(layout);
        more.back()[axis] = along;
      }
    result.layouts = std::move(more);
  }
  return result;
}

Pairs all_pairs() {
  Pairs all = layouts_over({data, tensor});
  for (std::size_t from = 0; from < all.layouts.size(); ++from)
    for (std::size_t to = 0; to < all.layouts.size(); ++to)
      if (all.exists({from, to})) all.pairs.push_back({from, to});
  return all;
}

template <class T>
Values run(Ranks& ranks, Pool& pool, const Change<T>& change, const Shape& shape,
           const Values& mine) {
  std::vector<T> in;
  for (const float value : mine) in.push_back(static_cast<T>(value));
  std::vector<T> out(detail::local_shape(change.to, shape, ranks.place()).elements(), T{99.F});
  detail::NoBackend none;
  detail::run_steps(none, ranks, pool, change, shape, static_cast<const T*>(in.data()), out.data());
  Values result;
  for (const T value : out) result.push_back(static_cast<float>(value));
  return result;
}

/// Each pair once, on the tensor that belongs to the number of its first layout. The adjoint of a
/// pair is one of the pairs, so its result is there too.
template <class T>
void check_laws(const Pairs& all, const mesh& sizes, const Shape& shape) {
  std::vector<Values> tensors;
  std::vector<PerRank> held;
  for (std::size_t layout = 0; layout < all.layouts.size(); ++layout) {
    tensors.push_back(testing::small_integers(layout, shape.elements()));
    held.push_back(lay_out(all.layouts[layout], sizes, shape, tensors.back()));
  }
  std::vector<PerRank> results(all.pairs.size(), PerRank(held[0].size()));
  run_mesh(sizes, [&](Ranks& ranks) {
    Pool pool;
    const auto rank = static_cast<std::size_t>(ranks.rank());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto [from, to] = all.pairs[i];
      results[i][rank] = run(ranks, pool, change_of<T>(all.layouts[from], all.layouts[to]), shape,
                             held[from][rank]);
    }
  });
  int broken = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Pair& pair = all.pairs[i];
    const MeshLayoutValue& to = all.layouts[pair.to];
    const bool kept = tensor_of(to, sizes, shape, results[i]) == tensors[pair.from];
    const double left = inner_product(to, sizes, results[i], held[all.dual(pair.to)]);
    const double right =
        inner_product(all.layouts[pair.from], sizes, held[pair.from], results[all.adjoint(pair)]);
    if (kept && left == right) continue;
    MESSAGE(all.name(pair) << " on " << to_string(sizes) << ", " << to_string(shape) << ": value "
                           << kept << ", <R x, y> " << left << ", <x, R* y> " << right);
    if (++broken == 20) break;  // more would say nothing new
  }
  CHECK(broken == 0);
}

const std::vector<mesh> meshes{
    {.data = 2, .tensor = 2}, {.data = 2, .tensor = 3}, {.data = 3, .tensor = 2}};
const std::vector<Shape> shapes{
    {{Axis::batch, 7}, {Axis::sequence, 2}, {Axis::feature, 5}},     // uneven
    {{Axis::feature, 5, 2}, {Axis::sequence, 1}, {Axis::batch, 9}},  // other order, and a grain
    {{Axis::batch, 1}, {Axis::feature, 2}}};                         // ranks without elements

}  // namespace

TEST_CASE("laws: every pair over two mesh axes, on every mesh and shape") {
  const Pairs all = all_pairs();
  REQUIRE(all.pairs.size() == 556);
  for (const mesh& sizes : meshes)
    for (const Shape& shape : shapes) check_laws<float>(all, sizes, shape);
}

TEST_CASE_TEMPLATE("laws: every pair in the other dtypes, on every mesh and on every shape", T,
                   double, bf16, fp16) {
  const Pairs all = all_pairs();
  for (std::size_t i = 0; i < meshes.size(); ++i) check_laws<T>(all, meshes[i], shapes[i]);
}

TEST_CASE("laws: 40 changes along three mesh axes at once, and their adjoints") {
  Pairs some = layouts_over({data, context, tensor});
  for (std::uint64_t draw = 0; some.pairs.size() < 80; ++draw) {
    const Pair pair{testing::scrambled(1, draw) % some.layouts.size(),
                    testing::scrambled(2, draw) % some.layouts.size()};
    if (!some.exists(pair) ||
        detail::steps_of(some.layouts[pair.from], some.layouts[pair.to]).size() < 3)
      continue;
    some.pairs.push_back(pair);
    some.pairs.push_back({some.dual(pair.to), some.dual(pair.from)});
  }
  for (const Shape& shape : shapes)
    check_laws<float>(some, {.data = 2, .context = 2, .tensor = 2}, shape);
}

TEST_CASE("any order of steps that exists gives the same elements") {
  const Pairs all = all_pairs();
  std::vector<Pair> pairs;
  for (const Pair& pair : all.pairs)
    if (other_order(all.layouts[pair.from], all.layouts[pair.to])) pairs.push_back(pair);
  REQUIRE(pairs.size() > 200);
  const mesh sizes{.data = 2, .tensor = 3};
  const Values value = testing::small_integers(1, shapes[0].elements());
  std::vector<char> equal(static_cast<std::size_t>(sizes.size()), 1);
  run_mesh(sizes, [&](Ranks& ranks) {
    Pool pool;
    const auto rank = static_cast<std::size_t>(ranks.rank());
    for (const Pair& pair : pairs) {
      const MeshLayoutValue& from = all.layouts[pair.from];
      Change<float> change = change_of<float>(from, all.layouts[pair.to]);
      const Values x = lay_out(from, sizes, shapes[0], value)[rank];
      const Values rx = run(ranks, pool, change, shapes[0], x);
      change.steps = *other_order(from, change.to);
      if (run(ranks, pool, change, shapes[0], x) != rx) equal[rank] = 0;
    }
  });
  CHECK(equal == std::vector<char>(equal.size(), 1));
}

TEST_CASE("along an axis of one rank nothing moves") {
  const Pairs all = all_pairs();
  check_laws<float>(all, {.tensor = 3}, shapes[0]);
  check_laws<float>(all, {.data = 3}, shapes[0]);
  run_mesh({}, [&](Ranks& ranks) {
    Pool pool;
    const Values x = testing::small_integers(1, shapes[0].elements());
    for (const auto& [from, to] : all.pairs)
      CHECK(run(ranks, pool, change_of<float>(all.layouts[from], all.layouts[to]), shapes[0], x) ==
            x);
    CHECK(pool.reserved() == 0);
  });
}

namespace {

using Rows = Sharded<Axis::batch>;
using Columns = Sharded<Axis::feature>;
template <class Data, class Tensor>
using DataTensor = Over<On<data, Data>, On<tensor, Tensor>>;

/// Whether From -> To, of views and by types, gives what the table of values gives.
template <class From, class To>
bool same_by_types(Ranks& ranks, const Shape& shape) {
  const mesh& sizes = ranks.sizes();
  const auto rank = static_cast<std::size_t>(ranks.rank());
  const MeshLayoutValue from = detail::layout_value<From>;
  const MeshLayoutValue to = detail::layout_value<To>;
  const Values x = lay_out(from, sizes, shape, testing::small_integers(1, shape.elements()))[rank];
  Pool pool;
  Tensor<float, To> out(shape, place_for<To>(ranks.place()));
  redistribute(ranks, pool,
               View<const float, From>(std::span(x), shape, place_for<From>(ranks.place())),
               out.view());
  return Values(out.data(), out.data() + out.size()) ==
         run(ranks, pool, change_of<float>(from, to), shape, x);
}

}  // namespace

TEST_CASE("views over a mesh are redistributed as their types say, plain ones along tensor") {
  for (const mesh& sizes : meshes) {
    std::vector<char> same(static_cast<std::size_t>(sizes.size()), 1);
    run_mesh(sizes, [&](Ranks& ranks) {
      using Twice = DataTensor<Rows, Rows>;
      const bool all = same_by_types<DataTensor<Partial, Partial>, Twice>(ranks, shapes[0]) &&
                       same_by_types<Twice, DataTensor<Replicated, Replicated>>(ranks, shapes[0]) &&
                       same_by_types<DataTensor<Rows, Columns>, Partial>(ranks, shapes[0]) &&
                       same_by_types<Invariant, DataTensor<Columns, Partial>>(ranks, shapes[0]) &&
                       same_by_types<Partial, Invariant>(ranks, shapes[0]) &&
                       same_by_types<Twice, Twice>(ranks, shapes[0]);
      same[static_cast<std::size_t>(ranks.rank())] = static_cast<char>(all);
    });
    CHECK(same == std::vector<char>(same.size(), 1));
  }
}

namespace {

/// Checks that From -> To gives each rank the elements that To says, `held` many, and keeps the
/// adjoint law.
template <class From, class To>
void check_halo(const mesh& sizes, const Shape& shape, const std::vector<std::size_t>& held) {
  using Adjoint = adjoint_t<Redistribute<From, To>>;
  std::vector<std::size_t> got(held.size());
  std::vector<char> right(held.size());
  PerRank x(held.size()), rx(held.size()), y(held.size()), ry(held.size());
  run_mesh(sizes, [&](Ranks& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    const Values numbers = testing::small_integers(1, shape.elements());
    const auto fill = [&](auto view) {
      for_each_global_run(view, [&](std::size_t whole, std::size_t local, std::size_t length) {
        for (std::size_t i = 0; i < length; ++i) view[local + i] = numbers[whole + i];
      });
    };
    Pool pool;
    Tensor<float, From> in(shape, ranks.place());
    Tensor<float, To> out(shape, ranks.place());
    Tensor<float, To> expected(shape, ranks.place());
    fill(in.view());
    fill(expected.view());
    redistribute(ranks, pool, std::as_const(in).view(), out.view());
    got[rank] = out.size();
    right[rank] = std::equal(out.data(), out.data() + out.size(), expected.data());

    Tensor<float, typename Adjoint::from> summands(shape, ranks.place());
    Tensor<float, typename Adjoint::to> sum(shape, ranks.place());
    y[rank] = testing::small_integers(2 + rank, summands.size());
    std::copy(y[rank].begin(), y[rank].end(), summands.data());
    redistribute(ranks, pool, std::as_const(summands).view(), sum.view());
    x[rank].assign(in.data(), in.data() + in.size());
    rx[rank].assign(out.data(), out.data() + out.size());
    ry[rank].assign(sum.data(), sum.data() + sum.size());
  });
  CHECK(got == held);
  CHECK(right == std::vector<char>(held.size(), 1));
  const double left = inner_product(detail::layout_value<To>, sizes, rx, y);
  CHECK(left != 0);
  CHECK(left == inner_product(detail::layout_value<From>, sizes, x, ry));
}

}  // namespace

TEST_CASE("halos are exchanged along their mesh axes, on the parts that the others leave") {
  constexpr Window three{.kernel = 3, .before = 1, .after = 1};
  using OneFrom = Over<On<data, Rows>, On<context, Sharded<Axis::height>>>;
  using OneTo = Over<On<data, Rows>, On<context, Haloed<Axis::height, three>>>;
  check_halo<OneFrom, OneTo>({.data = 2, .context = 3},
                             {{Axis::batch, 3}, {Axis::height, 7}, {Axis::width, 2}},
                             {16, 16, 12, 8, 8, 6});
  // 5 and 4 of 7 rows, and 3, 4 and 2 of 5 columns. Corners are sent along both mesh axes.
  using TwoFrom = Over<On<context, Sharded<Axis::height>>, On<tensor, Sharded<Axis::width>>>;
  using TwoTo =
      Over<On<context, Haloed<Axis::height, three>>, On<tensor, Haloed<Axis::width, three>>>;
  check_halo<TwoFrom, TwoTo>({.context = 2, .tensor = 3},
                             {{Axis::batch, 2}, {Axis::height, 7}, {Axis::width, 5}},
                             {30, 40, 20, 24, 32, 16});
}

TEST_CASE("a maximum is taken along all axes of an all-reduce, also in place") {
  using From = DataTensor<Partial, Partial>;
  const Shape one{{Axis::batch, 1}};
  for (const mesh& sizes :
       std::vector<mesh>{{.data = 2, .tensor = 2}, {.data = 4}, {.tensor = 4}}) {
    std::array<float, 4> largest{};
    std::array<float, 4> in_place{};
    run_mesh(sizes, [&](Ranks& ranks) {
      const auto rank = static_cast<std::size_t>(ranks.rank());
      const Place along_tensor = place_for<Invariant>(ranks.place());
      Pool pool;
      in_place[rank] = static_cast<float>((ranks.rank() * 3 + 1) % 5);
      const View<const float, From> in(&in_place[rank], one, ranks.place());
      redistribute(ranks, pool, in, View<float, Invariant>(&largest[rank], one, along_tensor),
                   Reduction::max);
      redistribute(ranks, pool, in, View<float, Invariant>(&in_place[rank], one, along_tensor),
                   Reduction::max);
    });
    CHECK(largest == std::array<float, 4>{4, 4, 4, 4});
    CHECK(in_place == largest);
  }
}

TEST_CASE("a maximum and shared memory are refused by the layouts alone, before anybody waits") {
  using Both = DataTensor<Partial, Columns>;  // an all-reduce, and then an all-gather
  using Summed = DataTensor<Partial, Partial>;
  for (const mesh& sizes : std::vector<mesh>{{.data = 2, .tensor = 2}, {.data = 2}, {}}) {
    std::string maximum, shared, shifted;
    run_mesh(sizes, [&](Ranks& ranks) {
      if (ranks.rank() != 0) return;
      const Place along_tensor = place_for<Invariant>(ranks.place());
      Pool pool;
      Values memory(shapes[0].elements() + 1), other(shapes[0].elements());
      const auto message = [&]<class From>(std::type_identity<From>, float* out, Reduction by) {
        const View<const float, From> in(memory.data(), shapes[0], ranks.place());
        const View<float, Invariant> view(out, shapes[0], along_tensor);
        return testing::message_of([&] { redistribute(ranks, pool, in, view, by); });
      };
      maximum = message(std::type_identity<Both>{}, other.data(), Reduction::max);
      shared = message(std::type_identity<Both>{}, memory.data(), Reduction::sum);
      shifted = message(std::type_identity<Summed>{}, memory.data() + 1, Reduction::sum);
    });
    const std::string change = "Over<On<data, Partial>, On<tensor, Sharded<feature>>> -> Invariant";
    check_mentions(maximum, {change + ": max was asked for", "only the movement of an all-reduce"});
    check_mentions(shared, {change, "overlap in memory", "give the output other memory"});
    check_mentions(shifted, {"On<tensor, Partial>> -> Invariant", "exactly the same memory"});
  }
}

TEST_CASE("views of another place or shape are refused on every rank, before anybody waits") {
  std::array<std::string, 4> places;
  std::array<std::string, 4> sizes;
  run_mesh({.data = 2, .tensor = 2}, [&](Ranks& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    Pool pool;
    const Tensor<float, DataTensor<Rows, Partial>> in(shapes[0], ranks.place());
    Tensor<float, Invariant> of_all(shapes[0], place_of(ranks));
    places[rank] =
        testing::message_of([&] { redistribute(ranks, pool, in.view(), of_all.view()); });
    Tensor<float, Invariant> longer(shapes[1], place_for<Invariant>(ranks.place()));
    sizes[rank] = testing::message_of([&] { redistribute(ranks, pool, in.view(), longer.view()); });
  });
  check_mentions(places[3], {"rank 1 of 2 along data, rank 1 of 2 along tensor",
                             "Over<On<data, Sharded<batch>>, On<tensor, Partial>> -> Invariant",
                             "another place or mesh", "place_for<Layout>(ranks.place())"});
  for (const std::string& message : sizes)
    check_mentions(message, {"the input is a tensor", "they must be equal"});
}
