// Thread ranks on a mesh: how it is chosen and described, that ranks agree on it, and that a
// failure on one rank reaches all ranks of all groups.

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/describe_mesh.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/comm/mesh_sizes.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_mesh.hpp"
#include "support/messages.hpp"

using namespace shardwise;

using testing::contains;
using enum MeshAxis;

static_assert(Communicator<MeshRanks<ThreadCommunicator>>);
static_assert(ReadsPeers<MeshRanks<ThreadCommunicator>>);

namespace {

using Ranks = MeshRanks<ThreadCommunicator>;

constexpr MeshOrder data_last{pipeline, replica, context, tensor, data};

template <class F>
std::string error_of(F f) {
  return testing::message_of<std::exception>(f);
}

float sum_along(Ranks& ranks, MeshAxis axis, float mine) {
  ranks.along(axis).all_reduce(std::span<const float>(&mine, 1), std::span(&mine, 1));
  return mine;
}

/// As the parts of a step follow each other: sums of layers, then of gradients, then over all.
void make_step(Ranks& ranks) {
  float mine = sum_along(ranks, tensor, 1) + sum_along(ranks, data, 1);
  ranks.all_reduce(std::span<const float>(&mine, 1), std::span(&mine, 1));
}

/// Runs `fault` in the second of four steps on 4 x 2 ranks. Returns how many ranks get an error
/// that says `what`.
int ranks_told(const std::function<void(Ranks&)>& fault, const std::string& what) {
  std::atomic<int> told = 0;
  const auto run = [&](Ranks& ranks) {
    for (std::uint64_t step = 1; step <= 4; ++step) {
      mark_step(step);
      step == 2 ? fault(ranks) : make_step(ranks);
    }
  };
  error_of([&] {
    run_mesh({.data = 4, .tensor = 2}, [&](Ranks& ranks) {
      const std::string message = error_of([&] { run(ranks); });
      {  // doctest shares what is captured while an error leaves
        CAPTURE(message);
        CHECK(contains(message, what));
      }
      if (contains(message, what)) ++told;
      throw std::runtime_error(message);
    });
  });
  return told;
}

detail::MachineName machine(const std::string& name) {
  detail::MachineName result{};
  name.copy(result.data(), result.size() - 1);
  return result;
}

}  // namespace

TEST_CASE("sizes are read from a text, in any order") {
  CHECK(parse_mesh("data=2,tensor=4") == mesh{.data = 2, .tensor = 4});
  CHECK(parse_mesh("tensor=*,pipeline=2") == mesh{.pipeline = 2, .tensor = mesh::rest});
  CHECK(parse_mesh("replica=3,context=5") == mesh{.replica = 3, .context = 5});
  const mesh sizes{2, 3, 4, 5, mesh::rest};
  CHECK(parse_mesh(to_string(sizes)) == sizes);
  CHECK(parse_mesh("tensor=2147483647").tensor == 2147483647);
}

TEST_CASE("a text that is no mesh is an error that says why") {
  const auto of = [](std::string_view text) { return error_of([&] { parse_mesh(text); }); };
  for (const std::string item : {"data", "2", "data:2", ""})
    CHECK(of(item) == "mesh '" + item + "': '" + item +
                          "' is not an axis with its size; write axis=size, for example "
                          "data=2,tensor=*");
  CHECK(contains(of("data=2,"), "'' is not an axis with its size"));
  CHECK(of("data=2,tensro=4") ==
        "mesh 'data=2,tensro=4': 'tensro' is no axis; axes are pipeline, replica, data, context, "
        "tensor");
  for (const std::string size : {"0", "-1", "", "two", "2.5", " 2", "2 ", "+2", "0x2", "2*",
                                 "2147483648", "99999999999999999999"})
    CHECK(of("data=" + size) == "mesh 'data=" + size + "': the size of data is '" + size +
                                    "'; it must be a whole number of 1 to 2147483647, or * for "
                                    "the rest of the ranks");
  CHECK(of("data=2,tensor=4,data=2") ==
        "mesh 'data=2,tensor=4,data=2': it has two sizes of data; give one");
  CHECK(contains(of("data=*,tensor=*"), "two axes have the size `*`"));
  CHECK(contains(of("data=65536,tensor=32768"), "multiply to more than 2147483647 ranks"));
}

TEST_CASE("an option is preferred to SHARDWISE_MESH, and both to all ranks along tensor") {
  const auto variable = [](const std::optional<std::string>& value) {
    return [value](const std::string& name) {
      return name == "SHARDWISE_MESH" ? value : std::nullopt;
    };
  };
  CHECK(choose_mesh("data=2", variable("data=3")).data == 2);
  CHECK(choose_mesh("", variable("data=3")).data == 3);
  for (const auto& nothing : {std::optional<std::string>(), std::optional<std::string>("")})
    CHECK(choose_mesh("", variable(nothing)) == mesh{.tensor = mesh::rest});
  CHECK(contains(error_of([&] { choose_mesh("data=0", variable("data=3")); }),
                 "--mesh: mesh 'data=0': the size of data is '0'"));
  CHECK(contains(error_of([&] { choose_mesh("", variable("date=3")); }),
                 "SHARDWISE_MESH: mesh 'date=3': 'date' is no axis"));
}

TEST_CASE("groups have the ranks that differ along their axis alone, in every order") {
  const mesh sizes{2, 1, 3, 1, 2};
  for (const MeshOrder& order : {mesh_axes, data_last}) {
    run_mesh(
        sizes,
        [&](Ranks& ranks) {
          CHECK(ranks.sizes() == sizes);
          CHECK(ranks.place() == place_in(sizes, ranks.rank(), order));
          for (const MeshAxis axis : mesh_axes) {
            CHECK(ranks.along(axis).size() == sizes[axis]);
            CHECK(ranks.along(axis).rank() == ranks.place()[axis].rank);
            const std::vector<int> group = gathered(ranks.along(axis), ranks.rank());
            MeshPlace place = ranks.place();
            for (int i = 0; i < sizes[axis]; ++i) {
              place[axis].rank = i;
              CHECK(group[static_cast<std::size_t>(i)] == detail::rank_at(place, order));
            }
          }
        },
        order);
  }
}

TEST_CASE("all ranks along one axis, one rank alone, and a part of a mesh") {
  run_mesh({.tensor = 3}, [](Ranks& ranks) {
    CHECK(sum_along(ranks, tensor, 1) == 3);
    CHECK(sum_along(ranks, data, 1) == 1);
    Ranks part = ranks.split(ranks.rank() % 2, 0);
    CHECK(part.sizes() == mesh{.tensor = ranks.rank() % 2 == 0 ? 2 : 1});
    CHECK(sum_along(part, tensor, 1) == static_cast<float>(part.size()));
  });
  MeshRanks<SingleRank> single(SingleRank{}, {});
  CHECK(single.along(data).size() == 1);
  CHECK(single.place() == place_in({}, 0));
}

TEST_CASE("sizes that do not fit are told to every rank") {
  const std::string what = "mesh data=2,tensor=2: it has 4 ranks, but the number of ranks is 6";
  run_ranks(6, [&](ThreadCommunicator& world) {
    CHECK(contains(error_of([&] { Ranks(world, {.data = 2, .tensor = 2}); }), what));
    world.barrier();  // who catches it on every rank may go on
  });
  CHECK(contains(error_of([] { run_mesh({.data = 0}, [](Ranks&) {}); }), "the size of data is 0"));
  CHECK(contains(error_of([] { run_mesh({.data = mesh::rest}, [](Ranks&) {}); }),
                 "call on_ranks() first"));
  CHECK(contains(error_of([] {
                   run_mesh({.data = 2}, [](Ranks&) {}, {data, tensor, data, context, replica});
                 }),
                 "mesh: the order of ranks is data, tensor, data, context, replica; it leaves out "
                 "pipeline, and must name each axis once"));
}

TEST_CASE("a rank with another mesh is told on every rank, and ranks may go on") {
  run_ranks(6, [](ThreadCommunicator& world) {
    const int rank = world.rank();
    const mesh sizes = rank == 4 ? mesh{.data = 3, .tensor = 2} : mesh{.data = 2, .tensor = 3};
    CHECK(error_of([&] { Ranks(world, sizes); }) ==
          "ranks disagree on the mesh: ranks 0 to 3, 5 have data=2,tensor=3, rank 4 has "
          "data=3,tensor=2; give all ranks the same one");
    const MeshOrder order = rank < 1 ? data_last : mesh_axes;
    CHECK(error_of([&] { Ranks(world, {.data = 6}, order); }) ==
          "ranks disagree on the mesh: rank 0 has data=6 in the order pipeline, replica, context, "
          "tensor, data, ranks 1 to 5 have data=6; give all ranks the same one");
    world.barrier();
  });
}

TEST_CASE("a failure on one rank of a mesh reaches all ranks of all groups") {
  const auto throws = [](Ranks& ranks) {
    if (ranks.rank() == 5) throw std::runtime_error("the disk is full");
    make_step(ranks);
  };
  const auto leaves_out_a_step = [](Ranks& ranks) {
    if (ranks.rank() != 5) make_step(ranks);
  };
  const auto makes_a_step_once_more = [](Ranks& ranks) {
    if (ranks.place()[data].rank == 1) make_step(ranks);  // on both ranks along tensor
    make_step(ranks);
  };
  const auto sums_along_another_axis = [](Ranks& ranks) {
    sum_along(ranks, ranks.rank() == 2 ? data : tensor, 1);
    make_step(ranks);
  };
  CHECK(ranks_told(throws, "the disk is full") == 8);
  CHECK(ranks_told(leaves_out_a_step, "rank 4 is at step 2, rank 5 at step 3: rank 5 left out") ==
        8);
  CHECK(ranks_told(makes_a_step_once_more, "it made once more all_reduce") == 8);
  CHECK(ranks_told(sums_along_another_axis, "no rank can go on, each waits for another") == 8);
}

TEST_CASE("a mesh is described with its machines") {
  const std::vector<detail::MachineName> two{machine("a"), machine("a"), machine("b"),
                                             machine("b")};
  CHECK(detail::describe_mesh({.data = 2, .tensor = 2}, mesh_axes, two) ==
        "mesh data=2,tensor=2: 4 ranks on 2 machines\n"
        "data 0: a 0 1\n"
        "data 1: b 2 3\n");
  const std::string advice =
      " along tensor span machines, so its sums of every layer cross the network. Start a "
      "multiple of 2 ranks on each machine, one machine after another, and let the order of ranks "
      "end with tensor\n";
  CHECK(detail::describe_mesh({.data = 2, .tensor = 2}, data_last, two) ==
        "mesh data=2,tensor=2: 4 ranks on 2 machines\n"
        "data 0: a 0, b 2\n"
        "data 1: a 1, b 3\n"
        "warning: 2 of 2 groups" +
            advice);
  CHECK(detail::describe_mesh({.tensor = 4}, mesh_axes, two)
            .starts_with("mesh tensor=4: 4 ranks on 2 machines\n"
                         "all ranks: a 0 1, b 2 3\n"
                         "warning: 1 of 1 group along tensor spans machines"));
  CHECK(detail::describe_mesh({.pipeline = 2, .context = 2}, mesh_axes, two) ==
        "mesh pipeline=2,context=2: 4 ranks on 2 machines\n"
        "pipeline 0, context 0: a 0\n"
        "pipeline 0, context 1: a 1\n"
        "pipeline 1, context 0: b 2\n"
        "pipeline 1, context 1: b 3\n");
  CHECK(detail::describe_mesh({}, mesh_axes, {machine("a")}) ==
        "mesh tensor=1: 1 rank on 1 machine\nall ranks: a 0\n");
}

TEST_CASE("every rank gets the same description, of the machines that ranks name") {
  run_mesh({.data = 2, .tensor = 2}, [](Ranks& ranks) {
    const std::string own = detail::machine_of(ranks);
    CHECK_FALSE(own.empty());
    CHECK(describe(ranks) == "mesh data=2,tensor=2: 4 ranks on 1 machine\ndata 0: " + own +
                                 " 0 1\ndata 1: " + own + " 2 3\n");
    const std::string long_name(100, 'x');
    CHECK(contains(describe(ranks, ranks.rank() == 3 ? long_name : "a"),
                   "data 1: a 2, " + std::string(63, 'x') +
                       " 3\nwarning: 1 of 2 groups along tensor "
                       "spans machines"));
  });
}
