// The sizes of a mesh, the places of its ranks, and what is said of sizes that fit no ranks.

#include <doctest/doctest.h>

#include <climits>
#include <string>
#include <vector>

#include "shardwise/core/mesh.hpp"
#include "support/messages.hpp"

using namespace shardwise;

using enum MeshAxis;

namespace {

constexpr mesh two_four{.data = 2, .tensor = 4};
static_assert(two_four.size() == 8 && two_four[data] == 2 && two_four[context] == 1);
static_assert(mesh{.data = 2, .tensor = mesh::rest}.on_ranks(8) == two_four);
static_assert(mesh{.data = mesh::rest, .tensor = 8}.on_ranks(8) == mesh{.tensor = 8});
static_assert(two_four.on_ranks(8) == two_four);
constexpr MeshPlace sixth = place_in(two_four, 6);
static_assert(detail::rank_at(sixth) == 6);

}  // namespace

TEST_CASE("a mesh is written as its sizes other than one") {
  CHECK(to_string(two_four) == "data=2,tensor=4");
  CHECK(to_string(mesh{}) == "tensor=1");
  CHECK(to_string(mesh{2, 3, 4, 5, 6}) == "pipeline=2,replica=3,data=4,context=5,tensor=6");
  CHECK(to_string(mesh{.tensor = mesh::rest}) == "tensor=*");
}

TEST_CASE("sizes that fit no ranks are an error that says what to do") {
  const auto on = [](mesh sizes, int ranks) {
    return testing::message_of<argument_error>([&] { sizes.on_ranks(ranks); });
  };
  CHECK(on({.data = 2, .tensor = 2}, 6) ==
        "mesh data=2,tensor=2: it has 4 ranks, but the number of ranks is 6; start 4, or give "
        "sizes that multiply to 6");
  CHECK(on({}, 2) ==
        "mesh tensor=1: it has 1 rank, but the number of ranks is 2; start 1, or give sizes that "
        "multiply to 2");
  CHECK(on({.data = 3, .tensor = mesh::rest}, 8) ==
        "mesh data=3,tensor=*: the number of ranks must be a multiple of 3, but it is 8; start "
        "another number, or give other sizes");
  CHECK(on({.data = 3, .tensor = mesh::rest}, 0).find("multiple of 3, but it is 0") !=
        std::string::npos);
  CHECK(on({.data = mesh::rest, .tensor = mesh::rest}, 8) ==
        "mesh data=*,tensor=*: two axes have the size `*`, the rest of the ranks; at most one may "
        "have it");
  for (const int wrong : {0, -1, -INT_MAX})
    CHECK(on({.data = 2, .tensor = wrong}, 8) ==
          "mesh data=2,tensor=" + std::to_string(wrong) + ": the size of tensor is " +
              std::to_string(wrong) + "; each size is at least 1");
  CHECK(on({.data = 65536, .tensor = 65536}, 8) ==
        "mesh data=65536,tensor=65536: its sizes multiply to more than 2147483647 ranks; give "
        "smaller ones");
  CHECK(on({INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX}, 1).find("more than 2147483647") !=
        std::string::npos);
  CHECK(testing::message_of<argument_error>(
            [] { static_cast<void>(mesh{.data = 2, .tensor = mesh::rest}.size()); }) ==
        "mesh data=2,tensor=*: the size of tensor depends on the number of ranks; call on_ranks() "
        "first");
}

TEST_CASE("ranks along the last axis of the order have successive numbers") {
  CHECK(sixth[data] == Place{1, 2});
  CHECK(sixth[tensor] == Place{2, 4});
  CHECK(sixth[replica] == Place{0, 1});
  const auto along = [](MeshAxis axis, const MeshOrder& order) {
    std::vector<int> ranks;
    for (int i = 0; i < 3; ++i) {
      MeshPlace place = place_in({.context = 3, .tensor = 3}, 0, order);
      place[axis].rank = i;
      ranks.push_back(detail::rank_at(place, order));
    }
    return ranks;
  };
  CHECK(along(tensor, mesh_axes) == std::vector{0, 1, 2});
  CHECK(along(context, mesh_axes) == std::vector{0, 3, 6});
  const MeshOrder context_last{pipeline, replica, data, tensor, context};
  CHECK(along(context, context_last) == std::vector{0, 1, 2});
  CHECK(along(tensor, context_last) == std::vector{0, 3, 6});
}

TEST_CASE("each rank has a place of its own, in every order") {
  const mesh sizes{2, 1, 3, 2, 2};
  for (const MeshOrder& order : {mesh_axes, MeshOrder{tensor, context, data, replica, pipeline},
                                 MeshOrder{data, tensor, pipeline, context, replica}}) {
    std::vector<MeshPlace> seen;
    for (int rank = 0; rank < sizes.size(); ++rank) {
      const MeshPlace place = place_in(sizes, rank, order);
      CHECK(detail::rank_at(place, order) == rank);
      for (const MeshAxis axis : mesh_axes) {
        CHECK(place[axis].size == sizes[axis]);
        CHECK(place[axis].rank >= 0);
        CHECK(place[axis].rank < sizes[axis]);
      }
      for (const MeshPlace& other : seen) CHECK_FALSE(place == other);
      seen.push_back(place);
    }
  }
}

// g++ 12 fills a part of an array that begins with {} if a constant changed another one of its
// type.
TEST_CASE("a place is that of one rank, whatever constants were computed") {
  constexpr MeshPlace constant = place_in({.data = 2}, 1);
  static_assert(constant[data] == Place{1, 2});
  MeshPlace place;
  place[tensor] = {0, 2};
  for (const MeshAxis axis : mesh_axes) {
    CHECK(place[axis].rank == 0);
    CHECK(place[axis].size == (axis == tensor ? 2 : 1));
  }
}
