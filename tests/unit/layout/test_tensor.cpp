// Tensors: memory of their own for what one rank holds.

#include <doctest/doctest.h>

#include <algorithm>
#include <concepts>
#include <utility>

#include "shardwise/layout/tensor.hpp"

using namespace shardwise;

namespace {
const Shape global{{Axis::batch, 4}, {Axis::feature, 10}};
}

TEST_CASE("a tensor holds its rank's part, and begins as zeros") {
  const Tensor<float, Sharded<Axis::feature>> tensor(global, {3, 4});
  CHECK(tensor.global() == global);
  CHECK(tensor.local() == Shape{{Axis::batch, 4}, {Axis::feature, 2}});
  CHECK(tensor.place() == Place{3, 4});
  CHECK(tensor.size() == 8);
  CHECK(std::all_of(tensor.data(), tensor.data() + tensor.size(), [](float x) { return x == 0; }));
}

TEST_CASE_TEMPLATE("every dtype begins as zero", T, float, double, bf16, fp16) {
  const Tensor<T, Partial> tensor(global, {0, 2});
  CHECK(tensor.size() == 40);
  for (std::size_t i = 0; i < tensor.size(); ++i) CHECK(static_cast<float>(tensor[i]) == 0.F);
}

TEST_CASE("its views show its memory") {
  Tensor<float, Invariant> tensor(global);
  CHECK(tensor.place() == Place{0, 1});
  const View<float, Invariant> view = tensor.view();
  view[5] = 7;
  CHECK(tensor[5] == 7);
  tensor[6] = 8;
  const auto& constant = tensor;
  CHECK(constant.view()[6] == 8);
  CHECK(constant.view().data() == tensor.data());
  CHECK(constant[5] == 7);
  CHECK(view.global() == global);
}

TEST_CASE("a copy has memory of its own, a moved tensor keeps it") {
  Tensor<float, Invariant> tensor(global);
  Tensor<float, Invariant> copy = tensor;
  copy[0] = 1;
  CHECK(tensor[0] == 0);
  const float* memory = copy.data();
  const Tensor<float, Invariant> moved = std::move(copy);
  CHECK(moved.data() == memory);
  CHECK(moved.view()[0] == 1);
}

TEST_CASE("static extents need no shape") {
  using E = Extents<Dim{Axis::batch, 4}, Dim{Axis::feature, 10}>;
  const Tensor<float, Sharded<Axis::batch>, E> tensor(Place{1, 3});
  CHECK(tensor.global() == global);
  CHECK(tensor.size() == 10);
  const Tensor<double, Invariant, E> alone;
  CHECK(alone.size() == 40);
}

TEST_CASE("a shape that is not the one of the type is refused") {
  using E = Extents<Dim{Axis::batch, dynamic}, Dim{Axis::feature, 10}>;
  const Tensor<float, Invariant, E> fits(Shape{{Axis::batch, 99}, {Axis::feature, 10}});
  CHECK(fits.size() == 990);
  CHECK_THROWS_WITH_AS((Tensor<float, Invariant, E>(Shape{{Axis::batch, 4}, {Axis::feature, 11}})),
                       doctest::Contains("[batch ?, feature 10]"), shape_error);
  CHECK_THROWS_WITH_AS((Tensor<float, Invariant, E>(Shape{{Axis::batch, 4}, {Axis::feature, 11}})),
                       doctest::Contains("[batch 4, feature 11]"), shape_error);
  CHECK_THROWS_WITH_AS((Tensor<float, Sharded<Axis::height>>(global, {0, 2})),
                       doctest::Contains("Sharded<height>"), shape_error);
}

TEST_CASE("a tensor is its view where a view is asked for, but not when it is gone") {
  using T = Tensor<float, Invariant>;
  T tensor(global);
  const View<float, Invariant> view = tensor;
  const View<const float, Invariant> read = std::as_const(tensor);
  CHECK(view.data() == tensor.data());
  CHECK(read.data() == tensor.data());
  CHECK(read.global() == global);
  static_assert(std::convertible_to<T&, View<const float, Invariant>>);
  static_assert(!std::convertible_to<T, View<const float, Invariant>>);
  static_assert(!std::convertible_to<const T&, View<float, Invariant>>);
  static_assert(!std::convertible_to<T&, View<const float, Partial>>);
}

TEST_CASE("empty shards are tensors of nothing") {
  Tensor<float, Sharded<Axis::batch>> tensor(global, {7, 8});
  CHECK(tensor.size() == 0);
  CHECK(tensor.view().span().empty());
  CHECK(tensor.view().rows() == 0);
  CHECK(tensor.view().columns() == 10);
}

TEST_CASE("a tensor whose elements cannot be counted is refused") {
  for (const std::size_t rows : {std::size_t{1} << 33, std::size_t{1} << 62, dynamic}) {
    const Shape shape{{Axis::batch, rows}, {Axis::feature, std::size_t{1} << 33}};
    CAPTURE(rows);
    CHECK(!shape.countable());
    CHECK_THROWS_AS((Tensor<float, Invariant>(shape)), shape_error);
    CHECK_THROWS_AS((Tensor<float, Sharded<Axis::batch>>(shape, Place{1, 2})), shape_error);
  }
  CHECK_THROWS_AS((Tensor<float, Invariant>(Shape{{Axis::batch, std::size_t{1} << 62}})),
                  shape_error);
  CHECK(Shape{{Axis::batch, 0}, {Axis::feature, std::size_t{1} << 62}}.countable());
  CHECK(Shape{}.countable());
}
