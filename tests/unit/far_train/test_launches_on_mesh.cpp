// Recorded steps on a mesh come to the bits of steps that are called, launch for launch.

#include <doctest/doctest.h>

#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/core/mesh.hpp"
#include "unit/far_train/launches_on_mesh.hpp"

using namespace testing;

namespace {

template <class P>
void check_launches(const mesh& sizes, Keep keep, const StepOptions& options = {}) {
  CAPTURE(sizes);
  CAPTURE(static_cast<int>(keep));
  run_ranks(sizes.size(), [&](ThreadCommunicator& threads) {
    MeshRanks<Threads> near_ranks(Threads(threads), sizes);
    Reference near;
    const Bits expected =
        OnMesh<P, Reference, MeshRanks<Threads>>(near, near_ranks, keep, options).called();
    Far far;
    MeshRanks<FarCommunicator> ranks(FarCommunicator(threads, far), sizes);
    const auto on_device = [&] {
      return OnMesh<P, Far, MeshRanks<FarCommunicator>>(far, ranks, keep, options);
    };
    CHECK(on_device().called() == expected);
    CHECK(on_device().launched() == expected);
  });
}

constexpr mesh square{.data = 2, .tensor = 2};

}  // namespace

TEST_CASE("launches on meshes, of two losses") {
  for (const mesh& sizes : {mesh{}, mesh{.data = 3}, mesh{.tensor = 2}, square,
                            mesh{.replica = 2, .context = 2, .tensor = 2}})
    check_launches<float>(sizes, Keep::whole);
}

TEST_CASE("launches on a mesh where ranks keep shares, with clipped gradients") {
  for (const Norm norm : {Norm::euclidean, Norm::infinity})
    for (const Keep keep :
         {Keep::whole, Keep::state_over_data, Keep::gradients_over_data, Keep::all_over_data})
      check_launches<float>(square, keep, {.clip_norm = 0.2, .norm = norm});
}

TEST_CASE("launches where two of seven ranks have no sample, whatever ranks keep") {
  for (const Keep keep : {Keep::whole, Keep::gradients_over_data, Keep::all_over_data})
    check_launches<Precision<bf16, float>>({.data = 7}, keep, {.clip_norm = 0.2});
}

TEST_CASE("a loss of one slice that is no number stops the launches of all ranks of a mesh") {
  for (const Keep keep :
       {Keep::whole, Keep::state_over_data, Keep::gradients_over_data, Keep::all_over_data})
    run_ranks(4, [&](ThreadCommunicator& threads) {
      Far far;
      MeshRanks<FarCommunicator> ranks(FarCommunicator(threads, far), square);
      OnMesh<float, Far, MeshRanks<FarCommunicator>>(far, ranks, keep, {}).check_stops();
    });
}
