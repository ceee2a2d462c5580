// Shapes: where axes stand, how many elements they span, and how messages print them.

#include <doctest/doctest.h>

#include "shardwise/core/shape.hpp"

using namespace shardwise;

TEST_CASE("extents are units times grain") {
  CHECK(Dim{Axis::feature, 5, 49}.extent() == 245);
  CHECK(Dim{Axis::feature, 7}.extent() == 7);
  CHECK(Dim{Axis::batch, 0, 3}.extent() == 0);
  CHECK(Dim{}.extent() == 0);
  CHECK_FALSE(Dim{Axis::batch, dynamic}.known());
  CHECK(Dim{Axis::batch, dynamic, 3}.extent() == dynamic);
}

TEST_CASE("a shape counts its elements and rows") {
  const Shape shape{{Axis::batch, 2}, {Axis::sequence, 3}, {Axis::feature, 4, 5}};
  CHECK(shape.rank() == 3);
  CHECK(shape.elements() == 120);
  CHECK(shape.elements(0, 2) == 6);
  CHECK(shape.elements(1, 1) == 1);
  CHECK(shape.rows() == 6);
  CHECK(shape.back() == Dim{Axis::feature, 4, 5});
  CHECK(Shape{}.elements() == 1);
  CHECK(Shape{}.rows() == 1);
  CHECK(Shape{{Axis::feature, 9}}.rows() == 1);
  CHECK(Shape{{Axis::batch, 0}, {Axis::feature, 4}}.elements() == 0);
  CHECK(Shape{{Axis::batch, 3}, {Axis::feature, 0}}.rows() == 3);
}

TEST_CASE("axes are found by name") {
  const Shape shape{{Axis::batch, 2}, {Axis::feature, 4}};
  CHECK(shape.find(Axis::batch) == 0);
  CHECK(shape.find(Axis::feature) == 1);
  CHECK(shape.find(Axis::channel) == 2);
  CHECK(shape.has(Axis::feature));
  CHECK_FALSE(shape.has(Axis::channel));
}

TEST_CASE("shapes are equal if axes, units and grains are") {
  const Shape shape{{Axis::batch, 2}, {Axis::feature, 4}};
  CHECK(shape == Shape{{Axis::batch, 2}, {Axis::feature, 4}});
  CHECK_FALSE(shape == Shape{{Axis::batch, 2}});
  CHECK_FALSE(shape == Shape{{Axis::batch, 3}, {Axis::feature, 4}});
  CHECK_FALSE(shape == Shape{{Axis::batch, 2}, {Axis::channel, 4}});
  CHECK_FALSE(shape == Shape{{Axis::batch, 2}, {Axis::feature, 2, 2}});
  CHECK_FALSE(shape == Shape{{Axis::feature, 4}, {Axis::batch, 2}});
}

TEST_CASE("elements are countable if 16 bytes of each are") {
  constexpr std::size_t most = static_cast<std::size_t>(-1) / 16, large = std::size_t{1} << 62;
  CHECK(Shape{{Axis::batch, 2}, {Axis::feature, 4, 5}}.countable());
  CHECK(Shape{{Axis::batch, most}}.countable());
  CHECK_FALSE(Shape{{Axis::batch, most + 1}}.countable());
  CHECK(Shape{{Axis::batch, most / 3}, {Axis::feature, 3}}.countable());
  CHECK_FALSE(Shape{{Axis::batch, most / 3 + 1}, {Axis::feature, 3}}.countable());
  CHECK_FALSE(Shape{{Axis::batch, 1U << 30}, {Axis::height, 1U << 20}, {Axis::width, 1U << 20}}
                  .countable());
  CHECK(Shape{{Axis::feature, most / 5, 5}}.countable());
  CHECK_FALSE(Shape{{Axis::feature, large, 4}}.countable());  // 2 to the 64
  CHECK(Shape{{Axis::feature, large, 0}}.countable());
  CHECK(Shape{{Axis::batch, 0}, {Axis::feature, large}}.countable());
  CHECK_FALSE(Shape{{Axis::batch, dynamic}}.countable());
}

TEST_CASE("the innermost axis can be replaced") {
  const Shape shape{{Axis::batch, 2}, {Axis::feature, 4}};
  CHECK(shape.with_back({Axis::feature, 9}) == Shape{{Axis::batch, 2}, {Axis::feature, 9}});
  CHECK(Shape{}.with_back({Axis::feature, 9}) == Shape{{Axis::feature, 9}});
  CHECK(shape == Shape{{Axis::batch, 2}, {Axis::feature, 4}});
}

TEST_CASE("the innermost axis can be left out, if there is one") {
  CHECK(Shape{{Axis::batch, 2}, {Axis::feature, 4}}.without_back() == Shape{{Axis::batch, 2}});
  CHECK(Shape{{Axis::batch, 2}}.without_back() == Shape{});
  CHECK(Shape{}.without_back() == Shape{});
}

TEST_CASE("extents in a type admit shapes with these axes and sizes") {
  using Rows = Extents<Dim{Axis::batch, dynamic}, Dim{Axis::feature, 4}>;
  CHECK(Rows::admits({{Axis::batch, 2}, {Axis::feature, 4}}));
  CHECK(Rows::admits({{Axis::batch, 9}, {Axis::feature, 4}}));
  CHECK_FALSE(Rows::admits({{Axis::batch, 2}, {Axis::feature, 5}}));
  CHECK_FALSE(Rows::admits({{Axis::batch, 2}, {Axis::feature, 2, 2}}));
  CHECK_FALSE(Rows::admits({{Axis::sequence, 2}, {Axis::feature, 4}}));
  CHECK_FALSE(Rows::admits({{Axis::batch, 2}, {Axis::channel, 4}}));
  CHECK_FALSE(Rows::admits({{Axis::batch, 2}}));
  CHECK_FALSE(Rows::admits({{Axis::batch, 2}, {Axis::feature, 4}, {Axis::height, 1}}));
  CHECK_FALSE(Rows::admits(Shape{}));
  CHECK(Extents<>::admits({{Axis::batch, 2}}));
  CHECK(Extents<>::admits(Shape{}));
  CHECK(Rows::pattern() == Shape{{Axis::batch, dynamic}, {Axis::feature, 4}});
  CHECK_FALSE(Rows::is_static);
  CHECK_FALSE(Extents<Dim{Axis::batch, 2}, Dim{Axis::feature, dynamic}>::is_static);
  CHECK_FALSE(Extents<>::is_static);
  CHECK(Extents<Dim{Axis::batch, 2}, Dim{Axis::feature, 4}>::is_static);
  CHECK(Extents<Dim{Axis::batch, 2}>::is_static);
}

TEST_CASE("six axes fit and a seventh is refused") {
  Shape shape;
  for (std::size_t i = 0; i < Shape::max_rank; ++i) shape.append({Axis::batch, i});
  CHECK(shape.rank() == 6);
  CHECK_THROWS_WITH_AS(shape.append({Axis::batch, 1}), doctest::Contains("at most 6"),
                       argument_error);
  CHECK(shape.rank() == 6);
}

TEST_CASE("shapes print units, grains and what is not known") {
  CHECK(to_string(Shape{}) == "[]");
  CHECK(to_string(Shape{{Axis::batch, 64}, {Axis::feature, 32, 49}}) ==
        "[batch 64, feature 32*49]");
  CHECK(to_string(Shape{{Axis::batch, dynamic}, {Axis::height, 3}}) == "[batch ?, height 3]");
  CHECK(to_string(Shape{{Axis::batch, 1}, {Axis::feature, 2, 16, 4}}) ==
        "[batch 1, feature 2*16 read by 4]");
}

TEST_CASE("every axis has its own name") {
  CHECK(name(Axis::batch) == "batch");
  CHECK(name(Axis::sequence) == "sequence");
  CHECK(name(Axis::feature) == "feature");
  CHECK(name(Axis::channel) == "channel");
  CHECK(name(Axis::height) == "height");
  CHECK(name(Axis::width) == "width");
  CHECK(name(Axis::output) == "output");
  CHECK(name(Axis::input) == "input");
  CHECK(name(Axis::depth) == "depth");
  CHECK(name(Axis::expert) == "expert");
}
