// Boxes against naive indexing: one element at a time by its coordinates.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "shardwise/core/box.hpp"

using namespace shardwise;

namespace {

class Random {
 public:
  /// From 0 to `below` - 1.
  std::size_t below(std::size_t below) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(state_ >> 33) % below;
  }

 private:
  std::uint64_t state_ = 1;
};

/// A box with a tensor around it on each side of a copy.
struct Boxes {
  Shape box;
  detail::BoxIn from, to;
};

Boxes random_boxes(Random& random) {
  Boxes boxes;
  const std::size_t axes = random.below(5);
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const auto name = static_cast<Axis>(axis);
    const std::size_t grain = 1 + random.below(2);
    const std::size_t units = random.below(10) == 0 ? 0 : 1 + random.below(4);
    boxes.box.append({name, units, grain});
    for (detail::BoxIn* in : {&boxes.from, &boxes.to}) {
      // Half of the tensors reach no further than the box, so that runs of several axes occur.
      const std::size_t more = random.below(2) == 0 ? 0 : random.below(4);
      in->whole.append({name, units + more, grain});
      in->begin[axis] = more == 0 ? 0 : random.below(more * grain + 1);
    }
  }
  return boxes;
}

/// Offset of the element at `coordinates` of the box.
std::size_t offset(const detail::BoxIn& in,
                   const std::array<std::size_t, Shape::max_rank>& coordinates) {
  std::size_t result = 0;
  for (std::size_t axis = 0; axis < in.whole.rank(); ++axis)
    result = result * in.whole[axis].extent() + in.begin[axis] + coordinates[axis];
  return result;
}

template <class F>
void for_each_element(const Shape& box, F&& f) {
  for (std::size_t i = 0; i < box.elements(); ++i) {
    std::array<std::size_t, Shape::max_rank> coordinates{};
    std::size_t rest = i;
    for (std::size_t axis = box.rank(); axis-- > 0;) {
      coordinates[axis] = rest % box[axis].extent();
      rest /= box[axis].extent();
    }
    f(coordinates);
  }
}

}  // namespace

TEST_CASE("copy_box copies the box and nothing else") {
  Random random;
  int with_elements = 0;
  for (int repetition = 0; repetition < 3000; ++repetition) {
    const Boxes boxes = random_boxes(random);
    std::vector<int> source(boxes.from.whole.elements());
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<int>(i) + 1;
    std::vector<int> target(boxes.to.whole.elements(), -1);
    std::vector<int> expected = target;
    for_each_element(boxes.box, [&](const auto& at) {
      expected.at(offset(boxes.to, at)) = source.at(offset(boxes.from, at));
      ++with_elements;
    });
    detail::copy_box(boxes.box, source.data(), boxes.from, target.data(), boxes.to);
    CAPTURE(to_string(boxes.box));
    CAPTURE(to_string(boxes.from.whole));
    CAPTURE(to_string(boxes.to.whole));
    CHECK(target == expected);
  }
  CHECK(with_elements > 10'000);
}

TEST_CASE("runs come in row-major order, cover the box once, and are as long as they can be") {
  Random random;
  for (int repetition = 0; repetition < 3000; ++repetition) {
    const Boxes boxes = random_boxes(random);
    std::vector<std::array<std::size_t, 2>> expected;
    for_each_element(boxes.box, [&](const auto& at) {
      expected.push_back({offset(boxes.from, at), offset(boxes.to, at)});
    });
    std::vector<std::array<std::size_t, 2>> got;
    std::size_t shortest = boxes.box.elements();
    detail::for_each_run(boxes.box, boxes.from, boxes.to,
                         [&](std::size_t a, std::size_t b, std::size_t length) {
                           shortest = std::min(shortest, length);
                           for (std::size_t i = 0; i < length; ++i) got.push_back({a + i, b + i});
                         });
    CAPTURE(to_string(boxes.box));
    CHECK(got == expected);
    const bool fills_both =
        boxes.box == boxes.from.whole && boxes.box == boxes.to.whole && !expected.empty();
    if (fills_both) CHECK(shortest == boxes.box.elements());
    if (boxes.box.rank() > 0 && !expected.empty()) CHECK(shortest >= boxes.box.back().extent());
  }
}

TEST_CASE("an empty box touches no memory") {
  const Shape nothing{{Axis::batch, 0}, {Axis::feature, 3}};
  detail::copy_box<int>(nothing, nullptr, {nothing, {}}, nullptr, {nothing, {}});
  detail::for_each_run(
      nothing, {nothing, {}}, {nothing, {}},
      [](std::size_t, std::size_t, std::size_t) { FAIL_CHECK("a run of nothing"); });
}

TEST_CASE("a tensor without axes is one element") {
  const int source = 7;
  int target = 0;
  detail::copy_box(Shape{}, &source, {}, &target, {});
  CHECK(target == 7);
}

TEST_CASE("a box is moved along one axis") {
  const detail::BoxIn in{{{Axis::batch, 3}, {Axis::feature, 4}}, {}};
  CHECK(in.stride(0) == 4);
  CHECK(in.stride(1) == 1);
  CHECK(in.at(1, 2).begin[1] == 2);
  CHECK(in.at(1, 2).begin[0] == 0);
  CHECK(in.begin[1] == 0);
}
