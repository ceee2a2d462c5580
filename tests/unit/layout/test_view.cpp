// Views: local shapes, memory of the caller, and what they refuse.

#include <doctest/doctest.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "shardwise/core/mesh.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/testing/layouts.hpp"
#include "shardwise/testing/shapes.hpp"
#include "support/messages.hpp"
#include "support/oracle.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::message_of;

namespace {

const Shape global{{Axis::batch, 2}, {Axis::feature, 5, 3}};

}  // namespace

TEST_CASE("a view knows the global shape, its place and what it holds") {
  std::array<float, 2 * 6> memory{};
  const View<float, Sharded<Axis::feature>> view(memory, global, {1, 3});
  CHECK(view.global() == global);
  CHECK(view.local() == Shape{{Axis::batch, 2}, {Axis::feature, 2, 3}});
  CHECK(view.place() == Place{1, 3});
  CHECK(view.size() == 12);
  CHECK(view.rows() == 2);
  CHECK(view.columns() == 6);
  CHECK(view.data() == memory.data());
  CHECK(view.span().size() == 12);
}

TEST_CASE("a view shows memory that somebody else owns") {
  std::vector<double> memory(30, 1);
  const View<double, Partial> view(memory, global, {0, 4});
  view[7] = 5;
  CHECK(memory[7] == 5);
  memory[8] = 6;
  const View<const double, Partial> constant = view;
  CHECK(constant[8] == 6);
  CHECK(constant.data() == memory.data());
  CHECK(constant.global() == global);
  CHECK(constant.place() == Place{0, 4});
}

TEST_CASE("a default-made view shows one element that is not there") {
  const View<float, Invariant> view;
  CHECK(view.data() == nullptr);
  CHECK(view.columns() == 1);
}

TEST_CASE("empty shards are views of nothing") {
  std::vector<float> none;
  const View<float, Sharded<Axis::batch>> view(none, global, {2, 3});
  CHECK(view.size() == 0);
  CHECK(view.rows() == 0);
  CHECK(view.columns() == 15);
  CHECK(view.span().empty());
}

TEST_CASE("memory of another size is refused, with rank, layout, both shapes and both sizes") {
  std::vector<float> memory(11);
  const std::string text = message_of([&] {
    View<float, Sharded<Axis::feature>>(std::span(memory), global, {1, 3});
  });
  check_mentions(text, {"rank 1 of 3", "[batch 2, feature 2*3]", "[batch 2, feature 5*3]",
                        "Sharded<feature>", "12 elements", "memory of 11"});
  memory.resize(13);
  CHECK_THROWS_AS((View<float, Sharded<Axis::feature>>(std::span(memory), global, {1, 3})),
                  shape_error);
  memory.resize(12);
  CHECK_NOTHROW((View<float, Sharded<Axis::feature>>(std::span(memory), global, {1, 3})));
}

TEST_CASE("an axis that the tensor lacks cannot be split") {
  const std::string text = message_of([] {
    View<float, Sharded<Axis::channel>>(static_cast<float*>(nullptr), global, {0, 2});
  });
  check_mentions(text, {"[batch 2, feature 5*3]", "Sharded<channel>"});
  CHECK_THROWS_AS(local_shape<Sharded<Axis::channel>>(global, {0, 2}), shape_error);
  CHECK_THROWS_AS(local_block<Sharded<Axis::channel>>(global, {0, 2}), shape_error);
}

TEST_CASE("known extents must be met") {
  using E = Extents<Dim{Axis::batch, dynamic}, Dim{Axis::feature, 5, 3}>;
  std::vector<float> memory(30);
  const View<float, Invariant, E> view(memory, global, {});
  CHECK(view.global() == global);
  const View<float, Invariant> loose = [&] {
    const View<float, Invariant, E> known(memory, global, {});
    return View<float, Invariant>(known.span(), known.global(), known.place());
  }();
  CHECK(loose.global() == global);
  const Shape other{{Axis::batch, 2}, {Axis::feature, 15}};
  const std::string text = message_of([&] { View<float, Invariant, E>(memory, other, {}); });
  check_mentions(text, {"[batch ?, feature 5*3]", "[batch 2, feature 15]"});
  CHECK_THROWS_AS((View<float, Invariant, E>(memory, other, {})), shape_error);
}

TEST_CASE("extents of which the compiler knows all convert to those of which it knows none") {
  using E = Extents<Dim{Axis::batch, 2}, Dim{Axis::feature, 5, 3}>;
  std::vector<float> memory(30);
  const View<float, Partial, E> known(memory, global, {1, 2});
  const auto sum = [](View<const float, Partial> view) { return view.size(); };
  CHECK(sum(known) == 30);
  const View<const float, Partial, E> constant = known;
  CHECK(constant.data() == memory.data());
  CHECK(sum(constant) == 30);
}

TEST_CASE("global runs number the local elements by their place in the global tensor") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const Shape& shape : shardwise::shapes_for(ranks)) {
      CAPTURE(ranks);
      CAPTURE(to_string(shape));
      testing::for_each_layout(testing::AllLayouts{}, [&]<class L>() {
        testing::Values numbers(shape.elements());
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
        testing::PerRank got(static_cast<std::size_t>(ranks));
        bool alike = true;
        for (int rank = 0; rank < ranks; ++rank) {
          const View<const float, L> view(static_cast<const float*>(nullptr), shape, {rank, ranks});
          testing::Values& mine = got[static_cast<std::size_t>(rank)];
          for_each_global_run(
              view, [&](std::size_t in_global, std::size_t in_local, std::size_t length) {
                CHECK(in_local == mine.size());
                for (std::size_t i = 0; i < length; ++i) {
                  alike = alike && detail::number_in_whole(view, in_local + i) == in_global + i;
                  mine.push_back(static_cast<float>(in_global + i));
                }
              });
        }
        CHECK(alike);
        // Laid out as a sum, too, every rank's elements carry the numbers of the whole tensor.
        testing::Meaning meaning = testing::meaning_of<L>();
        if (meaning.kind == testing::Meaning::Kind::sum)
          meaning.kind = testing::Meaning::Kind::same;
        CHECK(got == testing::lay_out(meaning, shape, ranks, numbers));
      });
    }
  }
}

TEST_CASE("layouts have names for messages") {
  CHECK(layout_name<Invariant>() == "Invariant");
  CHECK(layout_name<Replicated>() == "Replicated");
  CHECK(layout_name<Partial>() == "Partial");
  CHECK(layout_name<Sharded<Axis::sequence>>() == "Sharded<sequence>");
}

TEST_CASE("views over a mesh hold blocks of blocks, each element of the tensor on one rank") {
  using enum MeshAxis;
  using Rows = Sharded<Axis::batch>;
  using L = Over<On<data, Rows>, On<context, Sharded<Axis::feature>>, On<tensor, Rows>>;
  const mesh sizes{.data = 2, .context = 2, .tensor = 3};
  for (const std::size_t batch : {0U, 1U, 5U, 7U}) {
    CAPTURE(batch);
    const Shape shape{{Axis::batch, batch}, {Axis::sequence, 2}, {Axis::feature, 3, 2}};
    std::vector<int> times(shape.elements());
    for (int rank = 0; rank < sizes.size(); ++rank) {
      const Tensor<float, L> part(shape, place_in(sizes, rank));
      CHECK(part.place() == place_in(sizes, rank));
      std::size_t held = 0;
      for_each_global_run(part.view(), [&](std::size_t in_global, std::size_t, std::size_t length) {
        for (std::size_t i = 0; i < length; ++i) {
          CHECK(detail::number_in_whole(part.view(), held + i) == in_global + i);
          ++times[in_global + i];
        }
        held += length;
      });
      CHECK(held == part.size());
    }
    CHECK(times == std::vector<int>(shape.elements(), 1));
  }
}

TEST_CASE("memory that is not that of the place on a mesh is refused") {
  using L = Over<On<MeshAxis::data, Sharded<Axis::batch>>, On<MeshAxis::tensor, Partial>>;
  std::vector<float> memory(30);
  const MeshPlace place = place_in({.data = 2, .tensor = 3}, 4);
  check_mentions(
      message_of([&] { View<float, L>(memory, global, place); }),
      {"rank 1 of 2 along data, rank 1 of 3 along tensor holds",
       "Over<On<data, Sharded<batch>>, On<tensor, Partial>>", "15 elements", "memory of 30"});
}

TEST_CASE("an axis that the tensor lacks is refused with the whole tensor and the whole layout") {
  using L =
      Over<On<MeshAxis::data, Sharded<Axis::batch>>, On<MeshAxis::tensor, Sharded<Axis::channel>>>;
  const MeshPlace place = place_in({.data = 2, .tensor = 3}, 4);
  const std::string message =
      "a tensor [batch 2, feature 5*3] cannot be laid out as Over<On<data, Sharded<batch>>, "
      "On<tensor, Sharded<channel>>>: it has no axis channel, of which ranks along tensor would "
      "have "
      "parts. Name one of its axes in the layout, or take a mesh with one rank along tensor";
  check_mentions(message_of([&] { local_shape<L>(global, place); }), {message});
  check_mentions(message_of([&] { detail::local_begin<L>(global, place); }), {message});
}

TEST_CASE("one rank along a mesh axis holds all, also of a tensor without the axis that it cuts") {
  using L = SamplesOverMesh<Invariant, Axis::sequence>;
  const MeshPlace place = place_in({.data = 2}, 1);
  CHECK(local_shape<L>(global, place) == Shape{{Axis::batch, 1}, {Axis::feature, 5, 3}});
  CHECK(detail::local_begin<L>(global, place) == detail::PartBegin{1, 0, 0, 0, 0, 0});
}

TEST_CASE("elements without memory are nowhere, and no elements need none") {
  std::array<float, 30> memory{};
  float* const none = nullptr;
  CHECK(detail::is_nowhere(View<float, Invariant>(none, global, {})));
  CHECK_FALSE(detail::is_nowhere(View<float, Invariant>(memory, global, {})));
  CHECK_FALSE(detail::is_nowhere(View<float, Sharded<Axis::batch>>(none, global, {2, 3})));
}
